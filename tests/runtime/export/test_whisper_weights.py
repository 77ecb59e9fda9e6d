"""The speech model's own weights in the reference's model: it hears the same, and in 8 bits nearly the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from tokenizers import Tokenizer
from transformers import PreTrainedModel, WhisperConfig, WhisperForConditionalGeneration

from runtime.graphs.whisper import WhisperDims
from runtime.repository import Catalog, Repository
from runtime.speech.mel import log_mel
from runtime.weights.ctranslate2 import CTranslate2File
from tests.made.voice import said
from tests.runtime.export.whisper_steps import WhisperSteps

pytestmark = pytest.mark.models

TEXT = "The ferry to the island leaves twice a day, once after breakfast and once before dark."
START = [50258, 50259, 50359, 50363]
END = 50257


def perplexity(logits: NDArray[np.float32], tokens: list[int]) -> float:
    scores = logits.astype(np.float64)
    scores -= scores.max(axis=-1, keepdims=True)
    return float(np.exp((np.log(np.exp(scores).sum(axis=-1)) - scores[np.arange(len(tokens)), tokens]).mean()))


def test_the_real_weights_hear_what_the_reference_hears(tmp_path: Path) -> None:
    repository = Repository()
    served = repository.resolve("whisper-base")
    words = Tokenizer.from_file(str(repository.file(served, "tokenizer.json")))
    tokens = [*words.encode(f" {TEXT}", add_special_tokens=False).ids, END]
    sound = resample_poly(said(TEXT).astype(np.float64), 2, 3).astype(np.float32)
    mel = log_mel(sound, frames=3000, mels=80)

    weights = raw_weights(repository, tmp_path)
    with torch.inference_mode():
        given = torch.tensor([[*START, *tokens[:-1]]])
        whole = published(weights)(input_features=torch.from_numpy(mel)[None], decoder_input_ids=given).logits[0]
    right = whole[len(START) - 1 :].numpy()

    exact = WhisperSteps.exact(tmp_path, weights).follow(mel, START, tokens)
    np.testing.assert_allclose(exact, right, atol=1e-3)
    blocks = WhisperSteps(repository.folder(served), WhisperDims.of(weights)).follow(mel, START, tokens)
    assert perplexity(blocks, tokens) == pytest.approx(perplexity(right, tokens), rel=0.005)


def raw_weights(repository: Repository, folder: Path) -> dict[str, NDArray[np.float32]]:
    """The package's weights before anything was built of them."""
    entry = repository.catalog.get("whisper-base")
    alone = Catalog((entry.model_copy(update={"build": None}),))
    raw = Repository(folder / "raw", downloads=repository.downloads, catalog=alone)
    (pulled,) = raw.pull(entry.id)
    file = CTranslate2File(raw.file(pulled, "model.bin"))
    return {name: file.float32(name) for name in file}


def published(weights: dict[str, NDArray[np.float32]]) -> PreTrainedModel:
    """CTranslate2's weights in the reference's own model of that size."""
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8,
            encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        )
    )  # fmt: skip
    state = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    modules = {
        "self_attention/layer_norm": ["self_attn_layer_norm"],
        "self_attention/linear_0": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attention/linear_1": ["self_attn.out_proj"],
        "attention/layer_norm": ["encoder_attn_layer_norm"],
        "attention/linear_0": ["encoder_attn.q_proj"],
        "attention/linear_1": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
        "attention/linear_2": ["encoder_attn.out_proj"],
        "ffn/layer_norm": ["final_layer_norm"],
        "ffn/linear_0": ["fc1"],
        "ffn/linear_1": ["fc2"],
    }
    suffixes = {"gamma": "weight", "beta": "bias"}
    for name, weight in weights.items():
        half, _, rest = name.partition("/")
        part, _, kind = rest.rpartition("/")
        suffix = suffixes.get(kind, kind)
        if part.startswith("layer_") and part != "layer_norm":
            layer, _, inner = part.removeprefix("layer_").partition("/")
            places = [f"model.{half}.layers.{layer}.{module}.{suffix}" for module in modules[inner]]
        elif kind == "encodings":
            places = [f"model.{half}.embed_positions.weight"]
        elif part == "embeddings":
            places = ["model.decoder.embed_tokens.weight", "proj_out.weight"]
            weight = np.concatenate([weight, weight])
        elif part:
            places = [f"model.{half}.{part}.{suffix}"]
        else:
            continue
        for place, piece in zip(places, np.split(weight, len(places)), strict=True):
            if place in state:  # a key's bias is zero, and the reference has none
                state[place] = torch.from_numpy(piece.copy())
    model.load_state_dict(state)
    model.train(False)
    return model
