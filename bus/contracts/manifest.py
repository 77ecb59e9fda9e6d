"""What a model is: enough to fetch, check, load and describe it without opening it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bus.contracts.base import Contract


class ModelFile(Contract):
    """One file of a model."""

    path: str = Field(description="Relative to the model's folder.")
    sha256: str
    nbytes: int = Field(ge=0)


class ModelManifest(Contract):
    """One version of one model, beside its files as `manifest.json`."""

    schema_name = "omnibus.model_manifest"
    schema_version = 1

    id: str
    version: str
    family: str = Field(description="Which code serves it, such as `llama`, `whisper`, `bert`.")
    modalities_in: tuple[str, ...]
    modalities_out: tuple[str, ...]
    files: tuple[ModelFile, ...]
    source: tuple[str, ...] = Field(description="Where the raw weights came from, such as `pypi://name==1.0`.")
    license: str = Field(description="SPDX id; the text is in the model's folder as LICENSE.")
    aliases: tuple[str, ...] = ()
    quantisation: str = "none"
    composition: bool = Field(default=False, description="Put together from other models, not trained as one.")
    dims: dict[str, int] = Field(default_factory=dict, description="Sizes by name: hidden, layers, context, …")
    limits: dict[str, float] = Field(default_factory=dict, description="Input limits by name.")
    memory_nbytes: int | None = Field(default=None, description="Measured when built; None: not measured.")
    baseline_ms: float | None = Field(default=None, description="Latency of a reference input when built.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="What the family's code needs to know.")

    @property
    def ref(self) -> str:
        """`id@version`."""
        return f"{self.id}@{self.version}"
