"""How a model's media are prepared, as its folder says it: in one file, or in one for each modality."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from runtime.graphs.families.config import ModelConfig

_PROCESSOR, _IMAGE, _VIDEO = "processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The configurations of a model's processors; empty where the folder has none.

    Attributes:
        processor: Of how media stand in a text.
        image: Of pictures.
        video: Of films; where the folder has none of their own, as pictures.
        audio: Of sound.
    """

    processor: ModelConfig
    image: ModelConfig
    video: ModelConfig
    audio: ModelConfig

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder.

        Raises:
            ModelCorruptError: A file that holds no JSON object.
        """
        processor, shared = _read(folder, _PROCESSOR), _read(folder, _IMAGE)
        image = processor.inner("image_processor") or shared
        own = folder / _VIDEO
        video = processor.inner("video_processor") or (_read(folder, _VIDEO) if own.is_file() else image)
        return cls(processor, image, video, processor.inner("feature_extractor") or shared)


def _read(folder: Path, name: str) -> ModelConfig:
    path = folder / name
    return ModelConfig.read(path) if path.is_file() else ModelConfig({}, file=name)
