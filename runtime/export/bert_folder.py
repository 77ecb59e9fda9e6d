"""Build a served sentence encoder out of a Hugging Face folder with a BERT."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.bert import BertShape, encoder
from runtime.graphs.families.config import ModelConfig, chosen
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.folder import SafetensorsFolder
from runtime.weights.tensors import CheckedTensors, Floats, Tensors

# What sentence-transformers writes of the way from tokens to one vector, and what we call it.
_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
# Heads that a checkpoint may have on top of the encoder.
_IGNORED = ("pooler.", "cls.", "embeddings.position_ids")


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data` and `tokenizer.json`.

    Raises:
        ModelUnsupportedError: A feature that is not built here, a pooling that is not known, or no fast tokenizer.
        ModelCorruptError: Files that are missing, damaged, or do not fit together.
    """
    config = ModelConfig.read(job.raw / "config.json")
    if config.text("hidden_act") != "gelu":
        raise ModelUnsupportedError(f"config.json asks for {config.text('hidden_act')!r}; BERT with 'gelu' is built")
    pooling, normalise = _pooling(job.raw / "1_Pooling/config.json"), _normalises(job.raw / "modules.json")
    shape = BertShape(
        layers=config.size("num_hidden_layers"),
        hidden=config.size("hidden_size"),
        heads=config.size("num_attention_heads"),
        norm_epsilon=config.number("layer_norm_eps"),
    )
    read = bert_weights(SafetensorsFolder(job.raw), config).__getitem__
    encoder(shape, read, pooling=pooling, normalise=normalise).save(job.out / "model.onnx")
    if not (job.raw / "tokenizer.json").is_file():
        raise ModelUnsupportedError("the folder has no tokenizer.json; save it with a fast tokenizer of transformers")
    shutil.copyfile(job.raw / "tokenizer.json", job.out / "tokenizer.json")
    positions = config.size("max_position_embeddings")
    sentences = job.raw / "sentence_bert_config.json"
    longest = ModelConfig.read(sentences).size("max_seq_length", positions) if sentences.is_file() else positions
    return Built(
        dims={"hidden": shape.hidden, "positions": positions},
        parameters={"max_tokens": min(longest, positions), "pooling": pooling, "normalise": normalise},
    )


def bert_weights(tensors: Tensors, config: ModelConfig) -> dict[str, Floats]:
    """All weights of the encoder by their own names, without what may stand before them.

    Raises:
        ModelCorruptError: A tensor that is missing, of another shape, unknown, or not finite.
    """
    prefix = "bert." if "bert.embeddings.word_embeddings.weight" in tensors.shapes else ""
    read = CheckedTensors(tensors, prefix)
    hidden, wide = config.size("hidden_size"), config.size("intermediate_size")
    sizes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.size("vocab_size"), hidden),
        "embeddings.position_embeddings.weight": (config.size("max_position_embeddings"), hidden),
        "embeddings.token_type_embeddings.weight": (config.size("type_vocab_size"), hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(config.size("num_hidden_layers")):
        block = f"encoder.layer.{layer}"
        square = (hidden, hidden)
        matrices = {f"attention.self.{part}": square for part in ("query", "key", "value")} | {
            "attention.output.dense": square, "intermediate.dense": (wide, hidden), "output.dense": (hidden, wide),
        }  # fmt: skip
        for name, size in matrices.items():
            sizes |= {f"{block}.{name}.weight": size, f"{block}.{name}.bias": size[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            sizes |= {f"{block}.{name}.weight": (hidden,), f"{block}.{name}.bias": (hidden,)}
    weights = {name: read(name, *size) for name, size in sizes.items()}
    read.check_nothing_left(*_IGNORED)
    return weights


def _pooling(path: Path) -> str:
    """How the tokens of a text become one vector; the mean where nothing is said."""
    if not path.is_file():
        return "mean"
    config = ModelConfig.read(path)
    asked = [name for name in config if name.startswith("pooling_mode_") and config.flag(name)]
    return chosen("pooling", " and ".join(asked), _POOLINGS)


def _normalises(path: Path) -> bool:
    """Whether vectors get the length 1; they do where nothing is said."""
    if not path.is_file():
        return True
    try:
        return any(str(module["type"]).endswith(".Normalize") for module in json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ModelCorruptError(f"modules.json cannot be read: {error!r}", file=path.name) from error
