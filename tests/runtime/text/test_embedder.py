"""Pooling, normalising and shortening as the manifest says, on a small encoder with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from bus.contracts import ModelManifest
from bus.errors import InvalidInputError, ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.graphs import bert
from runtime.repository import BuildJob
from runtime.text.embedder import TextEmbedder
from tests.runtime.graphs.test_bert import SHAPE, embed, last_hidden, random_weights

WORDS = {f"w{number}": number for number in range(50)}


def build(folder: Path, dims: dict[str, int] | None = None, **parameters: Any) -> TextEmbedder:
    """The embedder of a folder as it comes from Hugging Face."""
    raw, out = folder / "raw", folder / "out"
    raw.mkdir()
    out.mkdir()
    save_file(random_weights(), str(raw / "model.safetensors"))
    config = {
        "model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": SHAPE.layers, "hidden_size": SHAPE.hidden,
        "num_attention_heads": SHAPE.heads, "layer_norm_eps": SHAPE.norm_epsilon, "max_position_embeddings": 16,
    }  # fmt: skip
    (raw / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(raw / "tokenizer.json"))
    built = bert.build(BuildJob(raw=raw, out=out, parameters=parameters, needs={}))
    manifest = ModelManifest(
        id="small", version="1", family="bert", modalities_in=("text",), modalities_out=("text",), files=(),
        source=(), license="MIT", dims=dims or dict(built.dims), parameters={"max_tokens": 16, **parameters},
    )  # fmt: skip
    return TextEmbedder(OnnxSession(out / "model.onnx", threads=1), out / "tokenizer.json", manifest)


def words(*ids: int) -> str:
    return " ".join(f"w{one}" for one in ids)


TEXTS = [[1, 2, 3, 4, 5], [7, 8], [49]]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_tokens_become_one_vector_as_the_manifest_says(tmp_path: Path, pooling: str, normalise: bool) -> None:
    embedder = build(tmp_path, pooling=pooling, normalise=normalise)
    vectors, lengths = embedder.embed([words(*text) for text in TEXTS])
    assert lengths.tolist() == [5, 2, 1]
    for vector, text in zip(vectors, TEXTS, strict=True):
        hidden = last_hidden(random_weights(), text)
        pooled = {"mean": hidden.mean(axis=0), "cls": hidden[0], "last": hidden[-1]}[pooling]
        expected = pooled / np.linalg.norm(pooled) if normalise else pooled
        np.testing.assert_allclose(vector, expected, atol=1e-4)


def test_the_mean_of_length_one_is_the_default(tmp_path: Path) -> None:
    vectors, _ = build(tmp_path).embed([words(1, 2, 3)])
    np.testing.assert_allclose(vectors[0], embed(random_weights(), [1, 2, 3]), atol=1e-4)


def test_a_way_of_pooling_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"'max'.*cls, last, mean"):
        build(tmp_path, pooling="max")


def test_vectors_are_shortened_to_what_the_model_was_trained_for(tmp_path: Path) -> None:
    embedder = build(tmp_path, dimensions=[16, 8])
    vectors, _ = embedder.embed([words(1, 2, 3)])
    short = embedder.shorten(vectors, 8)
    np.testing.assert_allclose(short[0], vectors[0, :8] / np.linalg.norm(vectors[0, :8]), rtol=1e-6)
    for whole in (None, SHAPE.hidden):
        np.testing.assert_array_equal(embedder.shorten(vectors, whole), vectors)
    for wrong in (4, 0, -8, 33, 10**9):
        with pytest.raises(InvalidInputError, match=r"8, 16, 32 dimensions, not") as refused:
            embedder.shorten(vectors, wrong)
        assert refused.value.details["param"] == "dimensions"


def test_vectors_that_are_not_normalised_stay_so_when_they_are_shortened(tmp_path: Path) -> None:
    embedder = build(tmp_path, dimensions=[8], normalise=False)
    vectors, _ = embedder.embed([words(1, 2, 3)])
    np.testing.assert_array_equal(embedder.shorten(vectors, 8), vectors[:, :8])


def test_a_model_that_was_not_trained_for_it_is_not_shortened(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="32 dimensions, not 8"):
        build(tmp_path).check_dimensions(8)


def test_a_manifest_that_lies_about_the_dimensions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"small@1 says 31 dimensions; its model gives float32 \(batch, 32\)"):
        build(tmp_path, dims={"hidden": 31})


def test_a_tokenizer_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    build(tmp_path)
    session = OnnxSession(tmp_path / "out" / "model.onnx", threads=1)
    (tmp_path / "broken.json").write_text("{")
    manifest = ModelManifest(
        id="small", version="1", family="bert", modalities_in=(), modalities_out=(), files=(), source=(),
        license="MIT", dims={"hidden": 32}, parameters={"max_tokens": 16},
    )  # fmt: skip
    with pytest.raises(ModelCorruptError, match=r"broken\.json"):
        TextEmbedder(session, tmp_path / "broken.json", manifest)


def test_long_texts_are_cut_and_a_text_of_one_token_is_enough(tmp_path: Path) -> None:
    embedder = build(tmp_path)
    ids = embedder.tokenize([words(*([3] * 10_000)), "w1"])
    assert [len(one) for one in ids] == [16, 1]
    assert np.isfinite(np.stack(embedder.run(ids))).all()


def test_texts_that_run_together_get_the_vectors_they_get_alone(tmp_path: Path) -> None:
    embedder = build(tmp_path)
    random = np.random.default_rng(0)
    ids = embedder.tokenize([words(*random.integers(1, 50, size)) for size in random.integers(1, 17, 40)])
    together = embedder.run(ids)
    for place in (0, 17, 39):
        np.testing.assert_allclose(together[place], embedder.run([ids[place]])[0], atol=1e-5)


def test_a_cancelled_call_leaves_the_rest_at_zero(tmp_path: Path) -> None:
    vectors, _ = build(tmp_path).embed([words(1), words(2, 3)], cancelled=lambda: True)
    assert not vectors.any()


@pytest.mark.parametrize(("tokens", "limit"), [(1, 64), (64, 64), (65, 16), (128, 16), (129, 8), (10_000, 8)])
def test_longer_texts_share_smaller_batches(tmp_path: Path, tokens: int, limit: int) -> None:
    embedder = build(tmp_path)
    assert embedder.limit(embedder.bucket(np.ones(tokens, np.int32))) == limit
