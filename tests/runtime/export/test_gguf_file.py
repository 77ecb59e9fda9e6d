"""A GGUF file on this machine, built, installed and asked: the answer is the reference's."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner
from transformers import PreTrainedModel

from bus.errors import InvalidInputError, ModelCorruptError
from infra.cli.models import models
from runtime.export.hugging_face import BuildOptions, entry_of
from runtime.generation.decoder import Decoder
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Catalog, Repository
from tests.runtime import reference
from tests.runtime.export.folders import TEMPLATE, chat_folder
from tests.runtime.graphs.families.cases import Case
from tests.runtime.graphs.families.gguf_files import write_gguf

CHAT = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return Case("qwen2", "Qwen2").model()


@pytest.fixture
def words(tmp_path: Path) -> ChatTokenizer:
    """The tokenizer that the file gets, as another folder has it."""
    folder = chat_folder(tmp_path / "words").folder
    (folder / "chat.jinja").write_text(
        '{% set bos_token = "<s>" +%}{% set eos_token = "</s>" +%}' + TEMPLATE, encoding="utf-8"
    )
    return ChatTokenizer(folder)


def write(path: Path, model: PreTrainedModel, folder: Path, *, ends: bool = True) -> Path:
    """A file with the model, and with the tokenizer and the template of a folder."""
    state = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)

    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_license("mit")
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token.startswith("<") and token.endswith(">") else 1 for token in tokens])
        writer.add_token_merges([" ".join(pair) for pair in state["merges"]])
        writer.add_bos_token_id(1)
        writer.add_pad_token_id(0)
        writer.add_chat_template(TEMPLATE)
        if ends:
            writer.add_eos_token_id(2)
            writer.add_eot_token_id(4)

    return write_gguf(path, model, "qwen2", more)


def test_a_file_becomes_a_model_that_answers_as_the_reference_does(
    model: PreTrainedModel, words: ChatTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIBUS_MODELS", str(tmp_path / "models"))
    path = write(tmp_path / "Tiny-Q8.gguf", model, tmp_path / "words")
    found = CliRunner().invoke(models, ["build", str(path), "--quantize", "float32", "--context", "64"])
    assert "tiny-q8@1 is ready" in found.output
    repository = Repository()
    built = repository.resolve("tiny-q8")
    assert (built.family, built.license, built.dims["context"]) == ("qwen2", "MIT", 64)
    assert built.parameters["end_tokens"] == [2, 4]

    tokenizer = ChatTokenizer(repository.folder(built))
    assert tokenizer.chat(CHAT) == words.chat(CHAT)
    ids = tokenizer.encode(tokenizer.chat(CHAT), markup=True)
    assert ids.tolist() == words.encode(words.chat(CHAT), markup=True).tolist()
    logits = Decoder(repository.folder(built), built, slots=1, threads=1).verify(0, ids, 0)
    np.testing.assert_allclose(logits, reference.logits(model, ids.tolist()), atol=1e-3)


def test_a_file_whose_answers_would_not_end_is_refused(
    model: PreTrainedModel, words: ChatTokenizer, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.gguf", model, tmp_path / "words", ends=False)
    known = Repository(tmp_path / "models", catalog=Catalog(()))
    entry = entry_of(str(path), known, BuildOptions())
    with pytest.raises(ModelCorruptError, match="ends an answer"):
        Repository(known.root, catalog=Catalog((entry,))).pull("x")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"gone\.gguf"):
        entry_of(str(tmp_path / "gone.gguf"), Repository(tmp_path, catalog=Catalog(())), BuildOptions())
