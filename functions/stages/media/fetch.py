"""`media.fetch`: everything that a request brings, stored once, its kind told from its content."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, MediaLimits, MediaSource, Modality
from bus.errors import LimitExceededError, MediaFetchError, MediaUnreadableError, MediaUnsupportedError
from bus.store.media import load_media, save_media
from functions.context import Context
from functions.decorator import function
from functions.stages.media.download import Downloader
from functions.stages.media.policy import FetchPolicy
from functions.stages.parts import MediaItem

if TYPE_CHECKING:
    from runtime.repository import Repository


class FetchInputs(Contract):
    """The request's list of media."""

    media: tuple[MediaSource, ...] = ()
    limits: MediaLimits = MediaLimits()


class FetchOutputs(Contract):
    """The same media in the object store, by what they are; `part` is the index in the request's list."""

    images: tuple[MediaItem, ...] = ()
    audio: tuple[MediaItem, ...] = ()
    videos: tuple[MediaItem, ...] = ()
    nbytes: int = Field(default=0, description="Bytes of all of them.")


def setup(repository: Repository) -> Downloader:
    """Needs no model: the policy of this deployment."""
    return Downloader(FetchPolicy.from_environment())


@function("media.fetch", setup=setup, group="media", slots=16, timeout_s=60.0)
async def fetch(context: Context[Downloader], inputs: FetchInputs) -> FetchOutputs:
    """Store every piece of media once, by content.

    Raises:
        LimitExceededError: More pieces than allowed.
        MediaFetchError: A URL that was refused, or did not answer (retryable).
        MediaTooLargeError: More bytes than allowed.
        MediaUnreadableError: Empty.
        MediaUnsupportedError: A format nobody here decodes, or not what the sender says it is.
    """
    if len(inputs.media) > inputs.limits.max_items:
        raise LimitExceededError(
            f"the request has {len(inputs.media)} pieces of media; at most {inputs.limits.max_items} are taken",
            items=len(inputs.media),
            max_items=inputs.limits.max_items,
        )
    pieces = [_take(context, part, source, inputs.limits) for part, source in enumerate(inputs.media)]
    taken = await asyncio.gather(*pieces)
    by_modality = {
        modality: tuple(item for kind, item in taken if kind is modality)
        for modality in (Modality.IMAGE, Modality.AUDIO, Modality.VIDEO)
    }
    nbytes = sum(item.ref.nbytes for _, item in taken)
    context.note(items=len(taken), nbytes=nbytes)
    return FetchOutputs(
        images=by_modality[Modality.IMAGE],
        audio=by_modality[Modality.AUDIO],
        videos=by_modality[Modality.VIDEO],
        nbytes=nbytes,
    )


async def _take(
    context: Context[Downloader], part: int, source: MediaSource, limits: MediaLimits
) -> tuple[Modality, MediaItem]:
    if source.ref is not None:
        data = await load_media(context.store, source.ref, limits.max_bytes)
        name = source.ref.name
    elif source.url is not None:
        data = await context.model.read(source.url, limits.max_bytes)
        name = None
    else:
        raise MediaFetchError(f"media {part} has neither a stored reference nor a URL")
    if not data:
        raise MediaUnreadableError(f"media {part} is empty: it has 0 bytes; send the file's content", part=part)
    media_type, modality = await context.run(_identify, data, part, source.modality)
    ref = await save_media(context.store, data, media_type, name)
    return modality, MediaItem(part=part, ref=ref)


def _identify(data: bytes, part: int, said: Modality | None) -> tuple[str, Modality]:
    from runtime.media.sniff import sniff

    kind = sniff(data)
    if kind is None:
        raise MediaUnsupportedError(
            f"media {part} ({len(data)} bytes) is of no known format; send an image, sound or video file",
            part=part,
        )
    if said is not None and said not in kind.modalities:
        raise MediaUnsupportedError(
            f"media {part} was sent as {said.value} but is {kind.media_type}; send it as "
            f"{' or '.join(sorted(kind.modalities))}",
            part=part,
            media_type=kind.media_type,
        )
    if said is not None:
        return kind.media_type, said
    if len(kind.modalities) == 1:
        return kind.media_type, next(iter(kind.modalities))
    from runtime.media.video import has_pictures

    return kind.media_type, Modality.VIDEO if has_pictures(data) else Modality.AUDIO
