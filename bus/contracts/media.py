"""Media by reference, and the limits that are part of the contract."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from bus.contracts.base import Contract


class Modality(StrEnum):
    """What a piece of input is."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"


class MediaRef(Contract):
    """Media in the object store, stored once per content."""

    digest: str = Field(description="BLAKE3 of the bytes, hex.")
    nbytes: int = Field(ge=0)
    media_type: str = Field(description="MIME type, from the content where it could be told.")
    key: str = Field(description="Key in the object store.")
    name: str | None = Field(default=None, description="The file name that the sender gave.")


class MediaSource(Contract):
    """Media as a request names it: already stored, or at a URL that `media.fetch` will read."""

    modality: Modality | None = Field(default=None, description="What the sender says it is; None: look.")
    ref: MediaRef | None = None
    url: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> MediaSource:
        if (self.ref is None) == (self.url is None):
            raise ValueError("a media source has a ref or a url, exactly one of them")
        return self


class MediaLimits(Contract):
    """The most that one piece of media may be."""

    max_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    max_pixels: int = Field(default=64_000_000, gt=0, description="Width × height of an image or a frame.")
    max_seconds: float = Field(default=3600.0, gt=0, description="Length of audio or video.")
    max_frames: int = Field(default=64, gt=0, description="Frames sampled from a video or an animation.")
    max_items: int = Field(default=32, gt=0, description="Pieces of media in a request.")
