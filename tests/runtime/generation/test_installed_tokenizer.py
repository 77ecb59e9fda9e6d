"""Functions of one process that use one chat model have one tokenizer between them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from runtime.generation.installed_tokenizer import installed_tokenizer
from runtime.repository import Repository

pytestmark = pytest.mark.models

MODEL = "smollm2-135m-instruct"


def test_a_models_tokenizer_is_read_once_for_as_long_as_somebody_holds_it(tmp_path: Path) -> None:
    manifest = Repository().resolve(MODEL)
    (tmp_path / MODEL).mkdir()  # a folder of its own, which nobody else in this process holds the tokenizer of
    (tmp_path / MODEL / manifest.version).symlink_to(Repository().folder(manifest))
    repository = Repository(tmp_path)
    tokenizer = installed_tokenizer(repository, manifest)
    assert installed_tokenizer(repository, manifest) is tokenizer
    # From the vocabulary file of SmolLM2.
    assert tokenizer.encode("Hello world").tolist() == [19556, 905]
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None
