"""From the bytes of a picture, a film or a clip to what a family's encoder takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bus.contracts import MediaLimits, Modality
from runtime.multimodal.complexity import audio_complexity, image_complexity, video_complexity
from runtime.multimodal.family import Detail, Film, MultimodalFamily
from runtime.multimodal.prepared import Prepared

if TYPE_CHECKING:
    from PIL.Image import Image

_SMALL_SIDE = 64


@dataclass(frozen=True, slots=True)
class Readied:
    """A piece as its encoder takes it.

    Attributes:
        prepared: What the family made of it.
        complexity: How much there is to see or hear, from 0 to 1.
        damaged_s: Where a film is damaged, in seconds: what was on show before is taken instead.
    """

    prepared: Prepared
    complexity: float
    damaged_s: tuple[float, ...] = ()


class Readier:
    """Decodes media and lets a family prepare them.

    Args:
        family: Of the model that is to take them.
        exact_pixels: Whether pictures are made from whole photos, not from ones that are shrunk while decoded.

    Attributes:
        takes: What the model takes beside text.
        closer_alone: Whether a picture that is the only one of its prompt is prepared otherwise.
    """

    def __init__(self, family: MultimodalFamily, *, exact_pixels: bool = False) -> None:
        self._family, self._exact = family, exact_pixels
        self.closer_alone = family.closer_alone
        self.takes: tuple[Modality, ...] = tuple(kind for kind in family.placeholders if kind in family.encoders)

    def ready(self, data: bytes, modality: Modality, detail: Detail, limits: MediaLimits) -> list[Readied]:
        """A piece as its encoder takes it; of a film also its sound, where it has some and the model takes it.

        Args:
            data: The file.
            modality: What it is.
            detail: How closely it is to be looked at.
            limits: The most that it may be.

        Raises:
            MediaTooLargeError: Longer, or of more pixels, than allowed.
            MediaUnsupportedError: Not media of that kind, or of a format that is not decoded here.
            MediaUnreadableError: Empty, truncated or corrupt.
            ModelUnsupportedError: The family does not take it.
        """
        if modality is Modality.IMAGE:
            return [self._image(data, detail, limits)]
        if modality is Modality.AUDIO:
            return [self._audio(data, detail, limits)]
        film = self._video(data, detail, limits)
        track = self._track(data, detail, limits) if Modality.AUDIO in self.takes else None
        return [film] if track is None else [film, track]

    def _image(self, data: bytes, detail: Detail, limits: MediaLimits) -> Readied:
        from runtime.media.images import decode

        def resolution(width: int, height: int) -> tuple[int, int]:
            return self._family.resolution(width, height, detail)

        (picture,) = decode(data, limits, resolution=None if self._exact else resolution)
        return Readied(self._family.image(picture.image, detail), image_complexity(picture.image))

    def _audio(self, data: bytes, detail: Detail, limits: MediaLimits) -> Readied:
        from runtime.media.audio import decode

        samples = decode(data, limits)
        return Readied(self._family.audio(samples, detail), audio_complexity(samples))

    def _video(self, data: bytes, detail: Detail, limits: MediaLimits) -> Readied:
        from runtime.media.video import open_video

        with open_video(data, limits) as video:
            known = (video.seconds, video.frames_per_second, detail)
            even = self._family.frames(*known)
            wanted = self._family.frames(*known, video.frames.cuts(video.seconds))
            moments = _thinned(wanted, limits.max_frames)
            small: list[Image] = []
            frames = (frame.image for frame in video.frames.at(moments))
            film = Film(_noting(frames, small), moments, video.seconds, even=list(wanted) == list(even))
            prepared = self._family.video(film, detail)
            return Readied(prepared, video_complexity(small), tuple(video.frames.damaged_s))

    def _track(self, data: bytes, detail: Detail, limits: MediaLimits) -> Readied | None:
        from runtime.media.video import sound

        samples = sound(data, limits)
        return None if samples is None else Readied(self._family.audio(samples, detail), audio_complexity(samples))


def _thinned(moments: Sequence[float], most: int) -> list[float]:
    """So many of the moments at the most, evenly."""
    if len(moments) <= most:
        return list(moments)
    step = (len(moments) - 1) / max(1, most - 1)
    return [moments[round(place * step)] for place in range(most)]


def _noting(frames: Iterable[Image], small: list[Image]) -> Iterator[Image]:
    """The frames one by one, each leaving a copy that is as small as its complexity needs."""
    for frame in frames:
        copy = frame.convert("L")
        copy.thumbnail((_SMALL_SIDE, _SMALL_SIDE))
        small.append(copy)
        yield frame
