"""A template has read what its workers would read."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from runtime.repository import Repository
from tests.delivery.processes import ROOT

_PRELOAD = """
import sys
from pathlib import Path
from runtime.repository import Repository
from runtime.text.vocabulary import read_tokenizer
from tests.runtime.text.test_vocabulary import damage
from warmpool.preload import preload
root = Path(sys.argv[1])
preload(models=root)
for model in sys.argv[2:]:
    path = Repository(root).folder(Repository(root).resolve(model)) / "tokenizer.json"
    damage(path)
    print(read_tokenizer(path).get_vocab_size())
"""


def copied(model: str, root: Path) -> None:
    """A model folder with nothing of its own but its manifest and its vocabulary."""
    repository = Repository()
    manifest = repository.resolve(model)
    place = root / manifest.id / manifest.version
    place.mkdir(parents=True)
    for file in manifest.files:
        (place / file.path).parent.mkdir(parents=True, exist_ok=True)
        source = repository.folder(manifest) / file.path
        if file.path == "tokenizer.json":
            (place / file.path).write_bytes(source.read_bytes())
        else:
            (place / file.path).symlink_to(source)
    (place / "manifest.json").write_bytes((repository.folder(manifest) / "manifest.json").read_bytes())


@pytest.mark.models
async def test_vocabularies_of_the_models_that_are_served_by_default_are_there(tmp_path: Path) -> None:
    names = ("all-minilm-l6-v2", "smollm2-135m-instruct", "whisper-base")
    for name in names:
        copied(name, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PRELOAD, str(tmp_path), *names, env=environment, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    # Of their published vocabularies.
    assert told.split() == [b"30522", b"49152", b"51865"]
