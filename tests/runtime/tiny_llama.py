"""A tiny Llama with random weights: as a GGUF file, as a served model, and as plain NumPy."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from bus.contracts import ModelManifest
from runtime.export.decoder import write_decoder
from runtime.graphs.decoder.weights import as_float, in_8_bits
from runtime.graphs.families import llama
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.weights.gguf import GgufFile

Floats = NDArray[np.float64]

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDE, VOCABULARY, CONTEXT = 2, 64, 4, 2, 16, 96, 300, 64
THETA, EPSILON = 10000.0, 1e-5
END = 299


def weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random weights under GGUF's names, in the order of rows that Hugging Face uses."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
        return drawn

    def gain() -> NDArray[np.float32]:
        return random.uniform(0.5, 1.5, HIDDEN).astype(np.float32)

    made = {"token_embd": random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float16).astype(np.float32)}
    for layer in range(LAYERS):
        made |= {
            f"blk.{layer}.attn_norm": gain(),
            f"blk.{layer}.attn_q": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_k": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_v": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_output": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"blk.{layer}.ffn_norm": gain(),
            f"blk.{layer}.ffn_gate": matrix(WIDE, HIDDEN),
            f"blk.{layer}.ffn_up": matrix(WIDE, HIDDEN),
            f"blk.{layer}.ffn_down": matrix(HIDDEN, WIDE),
        }
    return made | {"output_norm": gain(), "output": matrix(VOCABULARY, HIDDEN) * 4}


def write_gguf(path: Path, made: dict[str, NDArray[np.float32]]) -> Path:
    """The weights as llama.cpp's converter writes them: float32, rows of q and k turned for its rotary order."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(THETA)
    for name, array in made.items():
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-1])
        stored = array
        if heads:  # `permute` of llama.cpp's convert_hf_to_gguf.py
            stored = array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def serve(folder: Path, seed: int = 0, *, quantized: bool = False) -> ModelManifest:
    """Build the served files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = GgufCheckpoint(GgufFile(write_gguf(folder / "model.gguf", weights(seed))))
    shape = llama.FAMILY.shape(checkpoint.config)
    read = DecoderWeights(checkpoint, llama.FAMILY, shape)
    write_decoder(folder, shape, read, in_8_bits if quantized else as_float)
    return ModelManifest(
        id="tiny",
        version="1",
        family="llama",
        modalities_in=("text",),
        modalities_out=("text",),
        files=(),
        source=(),
        license="MIT",
        dims=shape.dims,
        parameters={"end_tokens": [END]},
    )


def logits(made: dict[str, NDArray[np.float32]], embeddings: NDArray[np.float32]) -> Floats:
    """The forward pass over a whole prompt, float64 `(token, vocabulary)`, straight from the equations."""
    stream = embeddings.astype(np.float64)
    length = len(stream)
    cosine, sine = _angles(length)
    mask = np.triu(np.full((length, length), -np.inf), 1)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        normed = _norm(stream, made[f"{block}.attn_norm"])
        query, key, value = (
            (normed @ made[f"{block}.attn_{part}"].T.astype(np.float64)).reshape(length, -1, HEAD_DIM).swapaxes(0, 1)
            for part in "qkv"
        )
        query, key = _rotate(query, cosine, sine), _rotate(key, cosine, sine)
        key, value = (np.repeat(x, HEADS // KV_HEADS, axis=0) for x in (key, value))
        scores = _softmax(query @ key.swapaxes(1, 2) / np.sqrt(HEAD_DIM) + mask)
        attended = (scores @ value).swapaxes(0, 1).reshape(length, -1)
        stream = stream + attended @ made[f"{block}.attn_output"].T
        normed = _norm(stream, made[f"{block}.ffn_norm"])
        gate = normed @ made[f"{block}.ffn_gate"].T
        stream = (
            stream + (gate / (1 + np.exp(-gate)) * (normed @ made[f"{block}.ffn_up"].T)) @ made[f"{block}.ffn_down"].T
        )
    result: Floats = _norm(stream, made["output_norm"]) @ made["output"].T.astype(np.float64)
    return result


def greedy(made: dict[str, NDArray[np.float32]], prompt: list[int], count: int) -> list[int]:
    """Continue a prompt by its likeliest tokens."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(logits(made, made["token_embd"][ids])[-1].argmax()))
        if ids[-1] == END:
            break
    return ids[len(prompt) :]


def _norm(value: Floats, gain: NDArray[np.float32]) -> Floats:
    result: Floats = value / np.sqrt((value**2).mean(axis=-1, keepdims=True) + EPSILON) * gain
    return result


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return result


def _angles(length: int) -> tuple[Floats, Floats]:
    angles = np.outer(np.arange(length), THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM))
    doubled = np.concatenate([angles, angles], axis=1)
    return np.cos(doubled), np.sin(doubled)


def _rotate(value: Floats, cosine: Floats, sine: Floats) -> Floats:
    half = HEAD_DIM // 2
    turned = np.concatenate([-value[..., half:], value[..., :half]], axis=-1)
    result: Floats = value * cosine + turned * sine
    return result
