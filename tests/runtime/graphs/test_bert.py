"""The sentence encoder's graph against the equations in plain NumPy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from runtime.engines.onnx import OnnxSession
from runtime.graphs.bert import BertShape, encoder

SHAPE = BertShape(layers=2, hidden=32, heads=4, norm_epsilon=1e-12)
WIDE = 48


def random_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    hidden = SHAPE.hidden
    made = {
        "embeddings.word_embeddings.weight": random.standard_normal((50, hidden)),
        "embeddings.position_embeddings.weight": random.standard_normal((16, hidden)),
        "embeddings.token_type_embeddings.weight": random.standard_normal((2, hidden)),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(SHAPE.layers):
        prefix = f"encoder.layer.{layer}."
        sizes = {
            "attention.self.query": (hidden, hidden),
            "attention.self.key": (hidden, hidden),
            "attention.self.value": (hidden, hidden),
            "attention.output.dense": (hidden, hidden),
            "intermediate.dense": (WIDE, hidden),
            "output.dense": (hidden, WIDE),
        }
        for name, (rows, columns) in sizes.items():
            made[f"{prefix}{name}.weight"] = random.standard_normal((rows, columns)) / np.sqrt(columns)
            made[f"{prefix}{name}.bias"] = random.standard_normal(rows)
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
    for name in norms:
        made[f"{name}.weight"] = random.uniform(0.5, 1.5, hidden)
        made[f"{name}.bias"] = random.standard_normal(hidden)
    return {name: array.astype(np.float32) for name, array in made.items()}


def embed(made: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    mean = last_hidden(made, ids).mean(axis=0)
    result: np.ndarray = mean / np.linalg.norm(mean)
    return result


def last_hidden(made: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Every token's vector after the last layer."""

    def linear(value: np.ndarray, name: str) -> np.ndarray:
        result: np.ndarray = value @ made[f"{name}.weight"].T.astype(np.float64) + made[f"{name}.bias"]
        return result

    def norm(value: np.ndarray, name: str) -> np.ndarray:
        centred = value - value.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + SHAPE.norm_epsilon)
        result: np.ndarray = centred / spread * made[f"{name}.weight"] + made[f"{name}.bias"]
        return result

    value = made["embeddings.word_embeddings.weight"][ids] + made["embeddings.token_type_embeddings.weight"][0]
    value = norm(value + made["embeddings.position_embeddings.weight"][: len(ids)], "embeddings.LayerNorm")
    for layer in range(SHAPE.layers):
        prefix = f"encoder.layer.{layer}."
        query, key, content = (
            linear(value, f"{prefix}attention.self.{part}").reshape(len(ids), SHAPE.heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended = (weights @ content).swapaxes(0, 1).reshape(len(ids), -1)
        value = norm(linear(attended, f"{prefix}attention.output.dense") + value, f"{prefix}attention.output.LayerNorm")
        wide = linear(value, f"{prefix}intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        value = norm(linear(wide, f"{prefix}output.dense") + value, f"{prefix}output.LayerNorm")
    return value


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> OnnxSession:
    path: Path = tmp_path_factory.mktemp("bert") / "model.onnx"
    encoder(SHAPE, random_weights().__getitem__).save(path)
    return OnnxSession(path, threads=1)


def test_padded_texts_get_the_vectors_of_the_equations(session: OnnxSession) -> None:
    texts = [[1, 2, 3, 4, 5, 6], [7, 8], [49]]
    ids, mask = np.zeros((3, 6), np.int32), np.zeros((3, 6), np.int32)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    (vectors,) = session.run({"input_ids": ids, "attention_mask": mask})
    made = random_weights()
    for row, text in enumerate(texts):
        np.testing.assert_allclose(vectors[row], embed(made, text), atol=1e-4)
