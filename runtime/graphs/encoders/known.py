"""The families whose encoders are built here. To add one: a file like its neighbours, and a line below."""

from __future__ import annotations

from runtime.graphs.encoders import idefics2, idefics3, llava_onevision, qwen_audio, qwen_omni, qwen_vl
from runtime.graphs.encoders.family import EncoderFamily
from runtime.graphs.families.config import ModelConfig

ENCODERS: tuple[EncoderFamily, ...] = (
    idefics2.FAMILY,
    idefics3.FAMILY,
    idefics3.SMOLVLM,
    llava_onevision.FAMILY,
    qwen_vl.FAMILY,
    qwen_vl.FAMILY_2_5,
    qwen_audio.FAMILY,
    qwen_omni.FAMILY,
)


def encoders_of(config: ModelConfig) -> EncoderFamily | None:
    """The encoders of a configuration; None: it describes a model that takes text alone, as far as is built here."""
    by_type = {name: family for family in ENCODERS for name in family.model_types}
    return by_type.get(config.model_type)
