"""Functions of one process that use one chat model have one tokenizer between them."""

from __future__ import annotations

import gc
import weakref

import pytest

from runtime.generation.installed_tokenizer import installed_tokenizer
from runtime.repository import Repository

pytestmark = pytest.mark.models


def test_a_models_tokenizer_is_read_once_for_as_long_as_somebody_holds_it() -> None:
    repository = Repository()
    manifest = repository.resolve("smollm2-135m-instruct")
    tokenizer = installed_tokenizer(repository, manifest)
    assert installed_tokenizer(repository, manifest) is tokenizer
    # From the vocabulary file of SmolLM2.
    assert tokenizer.encode("Hello world").tolist() == [19556, 905]
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None
