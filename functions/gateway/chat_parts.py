"""The pieces of a chat message in OpenAI's shape, and the media among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bus.contracts import MediaSource, Modality
from bus.errors import InvalidInputError, OmnibusError
from bus.ports import ObjectStore
from functions.gateway.inline_media import media_from_base64, media_from_url
from functions.stages.parts import ContentPart, MediaOptions

_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "opus": "audio/ogg"}


class Lenient(BaseModel):
    """A part of a body: clients send fields that are newer than this code."""

    model_config = ConfigDict(extra="allow")


class MediaUrl(Lenient):
    """Media by `data:`, `http:` or `https:` URL.

    `max_tokens`, `ocr` and `transcribe` are extensions of OpenAI's shape.
    """

    url: str
    detail: Literal["low", "high", "auto"] | None = Field(
        default=None,
        description="How closely a model with eyes of its own looks: `low` takes the fewest tokens that it was trained "
        "with, and fewer where there is little to see; `high` and `auto` all that the model would.",
    )
    max_tokens: int | None = Field(
        default=None, ge=1, le=1_000_000, description="The most tokens that it may become; none: the model's own limit."
    )
    ocr: bool = Field(
        default=False,
        description="Of an image: read the text on it, too. Its lines follow the image in the prompt, each with where "
        "it stands, and are listed in `omnibus.sources`.",
    )
    transcribe: bool = Field(default=False, description="Of a video: write down what is said, too; see `input_audio`.")


class InputAudio(Lenient):
    """A clip inside the body."""

    data: str = Field(description="Base64.")
    format: str = Field(default="wav", description="Such as wav or mp3.")
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="An extension, see `image_url`.")
    transcribe: bool = Field(
        default=False,
        description="An extension: write down what is said, too, for a model that hears by itself, or that only sees a "
        "film. It follows the piece in the prompt, sentence by sentence with its seconds, and is listed in "
        "`omnibus.sources`. Where another model hears for the language model, it is what that gets in any case.",
    )


class ChatPart(Lenient):
    """A piece of a message: `text`, `image_url`, `input_audio` or `video_url`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: MediaUrl | str | None = None
    input_audio: InputAudio | None = None
    video_url: MediaUrl | str | None = None


@dataclass
class ChatMedia:
    """The media of a chat, in the order in which its messages hold them.

    Attributes:
        sources: What they are.
        places: Where in the body each one is, such as `messages.0.content.1`.
        options: How those are to be looked at that are not as usual.
        read: Those whose text is to be read, too.
        listen: Those whose words are to be written down, too.
    """

    sources: list[MediaSource] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    options: list[MediaOptions] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    listen: list[int] = field(default_factory=list)

    def add(self, source: MediaSource, where: str, wanted: MediaUrl | InputAudio | str) -> ContentPart:
        """Note a piece; returns what stands for it in its message."""
        part = len(self.sources)
        self.sources.append(source)
        self.places.append(where)
        if not isinstance(wanted, str):
            detail = wanted.detail or "auto" if isinstance(wanted, MediaUrl) else "auto"
            options = MediaOptions(part=part, detail=detail, max_tokens=wanted.max_tokens)
            if options != MediaOptions(part=part):
                self.options.append(options)
            if isinstance(wanted, MediaUrl) and wanted.ocr:
                self.read.append(part)
            if wanted.transcribe:
                self.listen.append(part)
        return ContentPart(part=part)

    def inputs(self) -> dict[str, Any]:
        """The pipeline's inputs about media; none where the chat is text alone."""
        found: dict[str, Any] = {}
        if self.sources:
            found["media"] = [source.model_dump(exclude_none=True) for source in self.sources]
        if self.read:
            found["read"] = list(self.read)
        return found

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors about a piece of media name its place in the body."""
        try:
            yield
        except OmnibusError as error:
            part = error.details.get("part")
            if isinstance(part, int) and 0 <= part < len(self.places):
                error.details.setdefault("param", self.places[part])
            raise


async def content_part(part: ChatPart, where: str, media: ChatMedia, store: ObjectStore) -> ContentPart:
    """A piece of a message as the stages take it; media inside the body are stored.

    Raises:
        InvalidInputError: Names the field that is wrong or not supported.
    """
    if part.type in ("text", "input_text", "refusal"):
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise InvalidInputError(f"{where}.text is missing", param=f"{where}.text")
        return ContentPart(text=text)
    if part.type == "input_audio" and part.input_audio is not None:
        source = await _clip(part.input_audio, f"{where}.input_audio", store)
        return media.add(source, where, part.input_audio)
    for name, wanted, modality in (
        ("image_url", part.image_url, Modality.IMAGE),
        ("video_url", part.video_url, Modality.VIDEO),
    ):
        if part.type == name and wanted is not None:
            url = wanted if isinstance(wanted, str) else wanted.url
            source = await media_from_url(store, url, modality, f"{where}.{name}.url")
            return media.add(source, where, wanted)
    raise InvalidInputError(
        f"{where} is a part of type {part.type!r} without what the type says; "
        "text, image_url, input_audio and video_url are taken",
        param=where,
    )


async def _clip(clip: InputAudio, where: str, store: ObjectStore) -> MediaSource:
    # The format is a hint: `media.fetch` tells it from the content.
    media_type = _AUDIO_TYPES.get(clip.format.lower(), "application/octet-stream")
    return await media_from_base64(store, clip.data, media_type, Modality.AUDIO, f"{where}.data")
