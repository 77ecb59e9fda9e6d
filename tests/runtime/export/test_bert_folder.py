"""Sentence encoders as sentence-transformers keeps them, around a small BERT that transformers saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedModel

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.bert_folder import bert_weights
from runtime.export.hugging_face import BuildOptions, entry_of
from runtime.graphs.families.config import ModelConfig
from runtime.repository import Catalog, Repository
from runtime.text.embedder import TextEmbedder
from runtime.weights.folder import SafetensorsFolder
from tests.runtime import reference

VOCABULARY = 120
TEXTS = ["one two three four five six seven", "eight", "nine nine ten eleven", " ".join(["twelve"] * 40)]
LONGEST = 24


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=48,
    )  # fmt: skip
    model = BertModel(config)
    reference.randomise(model)
    model.train(False)
    return model


@pytest.fixture
def folder(model: PreTrainedModel, tmp_path: Path) -> Path:
    folder = reference.save(model, tmp_path / "Tiny-BERT")
    words = sorted({word for text in TEXTS for word in text.split()})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "sentence_bert_config.json", {"max_seq_length": LONGEST})
    return folder


def write(path: Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values))


def embedder(folder: Path, root: Path) -> TextEmbedder:
    known = Repository(root / "models", catalog=Catalog(()))
    entry = entry_of(str(folder), known, BuildOptions(license="MIT"))
    repository = Repository(known.root, catalog=Catalog((entry,)))
    repository.pull(entry.id)
    return TextEmbedder.load(repository, "tiny-bert", threads=1)


def right_vectors(model: PreTrainedModel, tokens: list[NDArray[np.int32]], pooling: str) -> NDArray[np.float32]:
    """Each text alone, without padding."""
    vectors = []
    for ids in tokens:
        with torch.inference_mode():
            states = model(input_ids=torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0]
        vectors.append({"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling].numpy())
    return np.stack(vectors)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("mode", "pooling"),
    [("pooling_mode_mean_tokens", "mean"), ("pooling_mode_cls_token", "cls"), ("pooling_mode_lasttoken", "last")],
)
def test_vectors_are_those_of_the_reference(
    mode: str, pooling: str, normalise: bool, model: PreTrainedModel, folder: Path, tmp_path: Path
) -> None:
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": False, mode: True})
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    write(folder / "modules.json", [{"type": f"sentence_transformers.models.{name}"} for name in modules])
    built = embedder(folder, tmp_path)
    tokens = built.tokenize(TEXTS)
    assert [len(ids) for ids in tokens] == [9, 3, 6, LONGEST]
    right = right_vectors(model, tokens, pooling)
    if normalise:
        right /= np.linalg.norm(right, axis=1, keepdims=True)
    np.testing.assert_allclose(np.stack(built.run(tokens)), right, atol=1e-3)


def test_a_folder_that_says_nothing_of_it_gives_means_of_length_1(
    model: PreTrainedModel, folder: Path, tmp_path: Path
) -> None:
    built = embedder(folder, tmp_path)
    tokens = built.tokenize(TEXTS)
    right = right_vectors(model, tokens, "mean")
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    np.testing.assert_allclose(np.stack(built.run(tokens)), right, atol=1e-4)


def test_another_pooling_is_refused(folder: Path, tmp_path: Path) -> None:
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_max_tokens": True})
    with pytest.raises(ModelUnsupportedError, match="pooling_mode_mean_tokens"):
        embedder(folder, tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"path": ""}]'])
def test_a_damaged_list_of_modules_is_refused(text: str, folder: Path, tmp_path: Path) -> None:
    (folder / "modules.json").write_text(text)
    with pytest.raises(ModelCorruptError, match=r"modules\.json"):
        embedder(folder, tmp_path)


@pytest.mark.parametrize(("key", "value"), [("num_hidden_layers", 2), ("hidden_size", 32), ("type_vocab_size", 1)])
def test_a_configuration_that_lies_is_refused(key: str, value: int, folder: Path) -> None:
    config = ModelConfig.read(folder / "config.json").having(**{key: value})
    with pytest.raises(ModelCorruptError, match="tensor"):
        bert_weights(SafetensorsFolder(folder), config)


def test_another_activation_is_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "config.json"
    write(path, json.loads(path.read_text()) | {"hidden_act": "relu"})
    with pytest.raises(ModelUnsupportedError, match="'relu'"):
        embedder(folder, tmp_path)
