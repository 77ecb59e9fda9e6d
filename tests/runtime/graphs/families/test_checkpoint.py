"""What a folder's weights and its configuration say must be the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.checkpoint import open_decoder
from tests.runtime import reference
from tests.runtime.graphs.families.cases import CASES

Weights = dict[str, torch.Tensor]
QUERY, OUT = "model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama, as transformers saves it."""
    return reference.save(CASES[0].model(), tmp_path_factory.mktemp("saved"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change_weights(folder: Path, change: Callable[[Weights], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda weights: weights.pop(QUERY), f"no tensor '{QUERY}'"),
        (lambda weights: weights.update({QUERY: torch.zeros(4, 4)}), rf"'{QUERY}' has shape \(4, 4\)"),
        (lambda weights: weights.update({"model.layers.3.mlp.extra": torch.zeros(1)}), "mlp.extra"),
        (lambda weights: weights.update({"lm_head.bias": torch.zeros(320)}), "lm_head.bias"),
        (lambda weights: weights.pop("lm_head.weight"), "lm_head.weight"),
    ],
    ids=["missing", "of another shape", "unknown", "an unknown bias", "no head"],
)
def test_a_tensor_that_does_not_fit_is_named(change: Callable[[Weights], object], named: str, folder: Path) -> None:
    change_weights(folder, change)
    with pytest.raises(ModelCorruptError, match=named):
        open_decoder(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_refused_when_they_are_read(value: float, folder: Path) -> None:
    change_weights(folder, lambda weights: weights[OUT].fill_(value))
    _, weights = open_decoder(folder)
    with pytest.raises(ModelCorruptError, match=OUT):
        weights("blocks.0.o")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_hidden_layers": 2}, "layers.2"),
        ({"num_hidden_layers": 4}, "layers.3"),
        ({"num_key_value_heads": 4}, "k_proj"),
        ({"vocab_size": 319}, "embed_tokens"),
        ({"head_dim": 16}, "q_proj"),
        ({"num_key_value_heads": 3}, "4 heads"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"intermediate_size": None}, "intermediate_size"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_configuration_that_lies_about_its_sizes_is_refused(values: dict[str, Any], named: str, folder: Path) -> None:
    change_config(folder, **values)
    with pytest.raises(ModelCorruptError, match=named):
        open_decoder(folder)


@pytest.mark.parametrize(
    ("values", "named", "known"),
    [
        ({"model_type": "mamba"}, "'mamba'", "qwen3"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "'spiral'", "llama3"),
        ({"hidden_act": "snake"}, "'snake'", "silu"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config", "gptq"),
    ],
)
def test_what_is_not_built_here_is_named_with_what_is(
    values: dict[str, Any], named: str, known: str, folder: Path
) -> None:
    change_config(folder, **values)
    with pytest.raises(ModelUnsupportedError, match=f"{named}.*{known}"):
        open_decoder(folder)


def test_a_folder_without_a_readable_configuration_is_refused(folder: Path) -> None:
    for text in ("{", "[]", ""):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelCorruptError, match=r"config\.json"):
            open_decoder(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelCorruptError, match=r"config\.json"):
        open_decoder(folder)


def test_a_tied_model_may_carry_a_copy_of_its_table(folder: Path) -> None:
    def tie(weights: Weights) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()

    change_weights(folder, tie)
    change_config(folder, tie_word_embeddings=True)
    _, weights = open_decoder(folder)
    np.testing.assert_array_equal(weights("head"), weights("embeddings"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_read_as_what_it_stands_for(dtype: torch.dtype, folder: Path) -> None:
    def halve(weights: Weights) -> None:
        weights.update({name: weight.to(dtype) for name, weight in weights.items()})

    change_weights(folder, halve)
    _, weights = open_decoder(folder)
    right = load_file(folder / "model.safetensors")["model.layers.0.mlp.down_proj.weight"].float().numpy()
    np.testing.assert_array_equal(weights("blocks.0.down"), right)


def test_a_decoder_inside_a_model_of_several_modalities_is_found(folder: Path) -> None:
    path = folder / "config.json"
    text = json.loads(path.read_text())
    _, alone = open_decoder(folder)
    expected = alone("blocks.2.gate_up")
    path.write_text(json.dumps({"model_type": "gemma_with_eyes", "text_config": text}))

    def move(weights: Weights) -> None:
        for name in list(weights):
            weights[name.replace("model.", "model.language_model.")] = weights.pop(name)

    change_weights(folder, move)
    shape, inside = open_decoder(folder, context=40)
    assert shape.context == 40
    np.testing.assert_array_equal(inside("blocks.2.gate_up"), expected)
