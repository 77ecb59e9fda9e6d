"""The families that are built here. To add one: a file like its neighbours, and a line below."""

from __future__ import annotations

from bus.errors import ModelUnsupportedError
from runtime.graphs.families import gemma, llama, mistral, phi, phi3, qwen, smollm3
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import Family
from runtime.graphs.families.omitted import OMITTED

FAMILIES = (
    llama.FAMILY,
    mistral.FAMILY,
    qwen.QWEN2,
    qwen.QWEN2_VL,
    qwen.QWEN3,
    qwen.QWEN3_VL,
    gemma.GEMMA2,
    gemma.GEMMA3,
    phi.FAMILY,
    phi3.FAMILY,
    smollm3.FAMILY,
)


def text_model(config: ModelConfig) -> ModelConfig:
    """The configuration of the decoder, where it stands inside that of a model of several modalities."""
    # A model that also talks has its language model in one part and its voice in another.
    config = config.inner("thinker_config") or config
    inner = config.inner("text_config")
    if inner is None:
        return config
    # The whole model's head is tied where the whole says so, whatever the text model says of itself.
    tied = config.get("tie_word_embeddings") or inner.get("tie_word_embeddings")
    if config.model_type in qwen.QWEN_OMNI:
        # Its text model says so by default, and has a head of its own all the same.
        tied = config.get("tie_word_embeddings")
    shared = {name: config.get(name) for name in ("model_type", "eos_token_id", "pad_token_id")}
    omitted = next((values for name, values in OMITTED.items() if name == inner.get("model_type")), {})
    left_out = {name: shared.get(name, value) for name, value in omitted.items() if name not in set(inner)}
    return inner.filled(**shared).having(tie_word_embeddings=tied, **left_out)


def family_of(config: ModelConfig) -> Family:
    """The family of a configuration.

    Raises:
        ModelUnsupportedError: None that is known; lists them.
    """
    by_type = {name: family for family in FAMILIES for name in family.model_types}
    if config.model_type not in by_type:
        raise ModelUnsupportedError(
            f"decoders of model_type {config.model_type!r} are not built here; known: {', '.join(by_type)}",
            model_type=config.model_type,
        )
    return by_type[config.model_type]
