"""The families of multimodal models that are served here. To add one: a file like its neighbours, and a line below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bus.contracts import ModelManifest
from bus.errors import ModelUnsupportedError
from runtime.multimodal.families.idefics2 import Idefics2
from runtime.multimodal.families.idefics3 import Idefics3
from runtime.multimodal.families.llava_onevision import LlavaOnevision
from runtime.multimodal.families.qwen_audio import QwenAudio
from runtime.multimodal.families.qwen_omni import QwenOmni
from runtime.multimodal.families.qwen_vl import QwenVl
from runtime.multimodal.family import MultimodalFamily

PARAMETERS = "multimodal"
"""Where a manifest's parameters hold those of its family."""

EXACT_PIXELS = "exact_pixels"
"""Which of those parameters says that pictures are made from whole photos, not from ones shrunk while decoded."""

FAMILIES: Mapping[str, Callable[[Mapping[str, Any]], MultimodalFamily]] = {
    "idefics2": Idefics2,
    "idefics3": Idefics3,
    "smolvlm": Idefics3,
    "llava_onevision": LlavaOnevision,
    "qwen2_vl": QwenVl,
    "qwen2_5_vl": QwenVl,
    "qwen2_audio": QwenAudio,
    "qwen2_5_omni": QwenOmni,
    "qwen2_5_omni_thinker": QwenOmni,
}
"""Families by the `model_type` of their configurations."""


def exact_pixels(manifest: ModelManifest) -> bool:
    """Whether a model's pictures are made from whole photos."""
    return bool(manifest.parameters.get(PARAMETERS, {}).get(EXACT_PIXELS))


def family_of(manifest: ModelManifest) -> MultimodalFamily:
    """The family of a model.

    Raises:
        ModelUnsupportedError: A model that takes text alone, or of a family that is not served here.
    """
    make = FAMILIES.get(manifest.family)
    if make is None or PARAMETERS not in manifest.parameters:
        raise ModelUnsupportedError(
            f"{manifest.ref} takes {', '.join(manifest.modalities_in)}; media take a model of one of the families "
            f"{', '.join(FAMILIES)}",
            model=manifest.ref,
        )
    return make(manifest.parameters[PARAMETERS])
