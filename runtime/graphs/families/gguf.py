"""A GGUF file as the checkpoint that it was made from: its configuration and its tensors under their first names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.decoder.weights import Floats
from runtime.graphs.families.config import ModelConfig
from runtime.weights.gguf import GgufFile

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
# What its converter turns: the two halves of each rotary pair become neighbours.
_TURNED = {"llama": {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}}

_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufCheckpoint:
    """Reads a GGUF file by the names of Hugging Face.

    Args:
        file: The file.
        context: The most tokens that a row is to have; None: as many as the model was trained on.

    Attributes:
        config: The configuration that the file's header amounts to.
        shapes: Shape by tensor name, outermost axis first.

    Raises:
        ModelUnsupportedError: A model of an architecture or with positions that are not read from GGUF files.
        ModelCorruptError: A header that leaves something out.
    """

    def __init__(self, file: GgufFile, context: int | None = None) -> None:
        self._file = file
        self._architecture = str(file.metadata.get("general.architecture"))
        if self._architecture not in _ARCHITECTURES:
            raise ModelUnsupportedError(
                f"the GGUF file holds a model of architecture {self._architecture!r}, which is not read from such "
                f"files; known: {', '.join(_ARCHITECTURES)}",
                model_type=self._architecture,
            )
        stored = file.shapes
        self._names = {_first_name(name): name for name in stored}
        self.shapes: Mapping[str, tuple[int, ...]] = {_first_name(name): shape for name, shape in stored.items()}
        try:
            self.config = ModelConfig(self._values(), context)
        except KeyError as error:
            raise ModelCorruptError(f"the GGUF file does not say {error}") from error

    def tensor(self, name: str) -> Floats:
        """A tensor as float32, in the order of rows that it had at first."""
        weight = self._file.tensor(self._names.get(name, name))
        for module, heads in _TURNED.get(self._architecture, {}).items():
            if f".{module}." in name:
                return _halves(weight, self.config.size(heads))
        return weight

    def _values(self) -> dict[str, Any]:
        about, name = self._file.metadata, self._architecture
        scaling = about.get(f"{name}.rope.scaling.type", "none")
        if scaling != "none" or "rope_freqs.weight" in self._file:
            raise ModelUnsupportedError(
                f"the GGUF file stretches positions ({scaling!r}), which is not read from such files; build the model "
                "from its safetensors",
                feature="rope_scaling",
            )
        heads = about[f"{name}.attention.head_count"]
        return {
            "model_type": name,
            "num_hidden_layers": about[f"{name}.block_count"],
            "hidden_size": about[f"{name}.embedding_length"],
            "num_attention_heads": heads,
            "num_key_value_heads": about.get(f"{name}.attention.head_count_kv", heads),
            "head_dim": about.get(f"{name}.attention.key_length"),
            "intermediate_size": about[f"{name}.feed_forward_length"],
            "vocab_size": next(iter(self._file.shapes["token_embd.weight"]), None),
            "max_position_embeddings": about[f"{name}.context_length"],
            "rope_theta": about.get(f"{name}.rope.freq_base", 10000.0),
            "rms_norm_eps": about[f"{name}.attention.layer_norm_rms_epsilon"],
            "tie_word_embeddings": "output.weight" not in self._file,
        }


def _first_name(stored: str) -> str:
    """The name before conversion; one that is not known stays as it is."""
    module, _, kind = stored.rpartition(".")
    if module in _MODEL:
        return f"{_MODEL[module]}.{kind}"
    block, _, part = module.partition(".")[2].partition(".")
    if module.startswith("blk.") and part in _LAYER:
        return f"model.layers.{block}.{_LAYER[part]}.{kind}"
    return stored


def _halves(weight: Floats, heads: int) -> Floats:
    """Undo the order of rows in which the two halves of each rotary pair are neighbours."""
    rows = weight.shape[0]
    if rows % (2 * heads):
        raise ModelCorruptError(f"{rows} rows of queries or keys cannot be shared by {heads} heads evenly")
    pairs = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
