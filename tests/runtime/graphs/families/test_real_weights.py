"""The chat model's own weights in the reference's model, read there by GGUF's own package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from bus.contracts import ModelManifest
from runtime.export.decoder import write_decoder
from runtime.generation.decoder import Decoder
from runtime.generation.tokenizer import ChatTokenizer
from runtime.graphs.decoder.weights import StoreMatrix, as_float, in_8_bits
from runtime.graphs.families import llama
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.repository import Catalog, Repository
from runtime.weights.gguf import GgufFile
from tests.runtime import reference

pytestmark = pytest.mark.models

TEXT = """The ferry to the island leaves twice a day, once after breakfast and once before dark. Most passengers carry
bread, letters and batteries, because the shop on the other side has not opened since the storm. Anna took the early
boat. She had promised to repair the clock in the harbour office, which had stopped at ten past four on the day her
father retired, and which nobody had dared to touch. The water was flat and grey. A man with two goats asked her
whether clocks could be repaired at all, or only replaced, and she said that it depended on how much somebody wanted
them to go on. When she opened the case she found the reason at once: a wasp had built its nest between the wheels,
and had left it years ago. She cleaned every wheel with a brush, put a drop of oil on each bearing, and set the hands
to the time on her telephone. Nothing happened. Then she remembered to hang the weight back on its chain, and the
clock began to tick so loudly that the harbour master came out of his room and sat down."""


def perplexity(ids: NDArray[np.int32], logits: NDArray[np.float32]) -> float:
    scores = logits[:-1].astype(np.float64)
    scores -= scores.max(axis=-1, keepdims=True)
    chosen = scores[np.arange(len(scores)), ids[1:]]
    return float(np.exp((np.log(np.exp(scores).sum(axis=-1)) - chosen).mean()))


def published(path: Path) -> PreTrainedModel:
    """SmolLM2-135M as transformers has it, with the file's weights."""
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = tensors[str(names.get_name(name, (".weight",)))]
            weight = gguf.dequantize(stored.data, stored.tensor_type).reshape(tuple(parameter.shape))
            heads = {"q_proj": 9, "k_proj": 3}.get(name.split(".")[-2])
            if heads:  # undo `permute` of llama.cpp's convert_hf_to_gguf.py
                weight = weight.reshape(heads, 32, 2, -1).swapaxes(1, 2).reshape(weight.shape)
            parameter.copy_(torch.from_numpy(weight.copy()))
    model.train(False)
    return model


def test_our_reading_is_as_sure_of_a_text_as_the_references(tmp_path: Path) -> None:
    repository = Repository()
    served = repository.resolve("chat")
    ids = ChatTokenizer(repository.folder(served)).encode(TEXT.replace("\n", " "))
    entry = repository.catalog.get(served.id)
    raw = Repository(
        tmp_path / "raw",
        downloads=repository.downloads,
        catalog=Catalog((entry.model_copy(update={"build": None}),)),
    )
    (pulled,) = raw.pull(entry.id)
    path = raw.file(pulled, "model.gguf")
    right = reference.logits(published(path), ids.tolist())

    exact = logits_of(path, served, tmp_path / "float32", as_float, ids)
    np.testing.assert_allclose(exact, right, atol=1e-3)
    in_blocks = logits_of(path, served, tmp_path / "q8", in_8_bits, ids)
    chosen = Decoder(repository.folder(served), served, slots=1, context=512, threads=2).verify(0, ids, 0)

    sure = perplexity(ids, right)
    assert perplexity(ids, exact) == pytest.approx(sure, rel=0.005)
    # Rounding may make it surer of so short a text, too; what counts is what is lost.
    assert perplexity(ids, in_blocks) <= sure * 1.005
    assert perplexity(ids, chosen) <= sure * 1.005
    assert perplexity(ids, chosen) <= sure * (1 + served.parameters["perplexity_loss"])


def logits_of(
    path: Path, manifest: ModelManifest, folder: Path, store: StoreMatrix, ids: NDArray[np.int32]
) -> NDArray[np.float32]:
    """After each token, of a form of the model that is built now."""
    folder.mkdir()
    checkpoint = GgufCheckpoint(GgufFile(path))
    shape = llama.FAMILY.shape(checkpoint.config)
    write_decoder(folder, shape, DecoderWeights(checkpoint, llama.FAMILY, shape), store)
    return Decoder(folder, manifest, slots=1, context=512, threads=2).verify(0, ids, 0).copy()
