"""Build a served Llama model out of a GGUF file: graph, embedding table, tokenizer and chat template."""

from __future__ import annotations

from typing import Any

import numpy as np

from bus.errors import ModelCorruptError
from runtime.graphs.llama import Floats, LlamaShape, decoder
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.gguf import GgufFile
from runtime.weights.gguf_tokenizer import chat_template, tokenizer_json

_NAMES = {
    "attention_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "feed_forward_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data`, `embeddings.npy` float16 (token, hidden), `tokenizer.json`, `chat.jinja`.

    Raises:
        ModelCorruptError: The GGUF file is damaged or is of another architecture.
    """
    file = GgufFile(job.raw / "model.gguf")
    shape = shape_of(file)
    decoder(shape, LlamaWeights(file, shape)).save(job.out / "model.onnx")
    # Half precision holds the table exactly enough: its own source is 8-bit blocks with half-precision scales.
    np.save(job.out / "embeddings.npy", file.tensor("token_embd.weight").astype(np.float16))
    (job.out / "tokenizer.json").write_text(tokenizer_json(file.metadata), encoding="utf-8")
    (job.out / "chat.jinja").write_text(chat_template(file.metadata), encoding="utf-8")
    metadata = file.metadata
    return Built(
        dims={
            "layers": shape.layers,
            "hidden": shape.hidden,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "vocabulary": shape.vocabulary,
            "context": shape.context,
        },
        parameters={
            "end_tokens": [metadata["tokenizer.ggml.eos_token_id"]],
            "pad_token": metadata.get("tokenizer.ggml.padding_token_id", 0),
        },
    )


def shape_of(file: GgufFile) -> LlamaShape:
    """The sizes that a GGUF file's header gives.

    Raises:
        ModelCorruptError: Another architecture than Llama, or sizes that are missing.
    """
    about: dict[str, Any] = file.metadata
    architecture = about.get("general.architecture")
    if architecture != "llama":
        raise ModelCorruptError(f"the GGUF file holds a model of architecture {architecture!r}, not 'llama'")
    try:
        heads, hidden = about["llama.attention.head_count"], about["llama.embedding_length"]
        return LlamaShape(
            layers=about["llama.block_count"],
            hidden=hidden,
            heads=heads,
            kv_heads=about.get("llama.attention.head_count_kv", heads),
            head_dim=about.get("llama.attention.key_length", hidden // heads),
            feed_forward=about["llama.feed_forward_length"],
            vocabulary=file.shapes["token_embd.weight"][0],
            context=about["llama.context_length"],
            rope_theta=about.get("llama.rope.freq_base", 10000.0),
            norm_epsilon=about["llama.attention.layer_norm_rms_epsilon"],
        )
    except KeyError as error:
        raise ModelCorruptError(f"the GGUF file does not say {error}") from error


class LlamaWeights:
    """A GGUF file's weights under the names that the graph uses."""

    def __init__(self, file: GgufFile, shape: LlamaShape) -> None:
        self._file, self._shape = file, shape

    def __call__(self, name: str) -> Floats:
        """A weight, float32, `(out, in)` or `(hidden,)`."""
        if name == "norm":
            return self._file.tensor("output_norm.weight")
        if name == "head":
            tied = "output.weight" not in self._file
            return self._file.tensor("token_embd.weight" if tied else "output.weight")
        _, layer, part = name.split(".")
        weight = self._file.tensor(f"blk.{layer}.{_NAMES[part]}.weight")
        if part in ("q", "k"):
            return _halves(weight, self._shape.heads if part == "q" else self._shape.kv_heads)
        return weight


def _halves(weight: Floats, heads: int) -> Floats:
    """Undo GGUF's order of rows, in which the two halves of each rotary pair are neighbours."""
    outputs, inputs = weight.shape
    pairs = weight.reshape(heads, outputs // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(outputs, inputs)
