"""`video.preprocess`: frames at their real times, and the sound track."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, MediaLimits
from bus.ports import Array
from bus.store.media import load_media
from functions.context import Context
from functions.decorator import function
from functions.stages.audio.preprocess import audio_tensor, setup
from functions.stages.blame import about
from functions.stages.parts import AudioTensor, ImageTensor, MediaItem

if TYPE_CHECKING:
    from runtime.speech.vad import VoiceActivity


class VideoPreprocessInputs(Contract):
    """Films in the object store."""

    videos: tuple[MediaItem, ...] = ()
    frames: int = Field(default=8, ge=1, description="The most frames of each; `limits.max_frames` is above it.")
    frames_per_second: float = Field(default=1.0, gt=0, description="How densely a short one is sampled.")
    limits: MediaLimits = MediaLimits()


class VideoInfo(Contract):
    """What one film is."""

    part: int = Field(ge=0)
    seconds: float = Field(ge=0)
    frames: int = Field(ge=1, description="How many were taken.")
    has_audio: bool
    source: str = Field(description="Digest of the media.")


class VideoPreprocessOutputs(Contract):
    """Frames and sound tracks of all films; `part` says whose they are."""

    images: tuple[ImageTensor, ...] = ()
    clips: tuple[AudioTensor, ...] = Field(default=(), description="Only of the films that have sound.")
    videos: tuple[VideoInfo, ...] = ()


Decoded = tuple[list[tuple[Array, int, int, float]], Array | None, float]


@function(
    "video.preprocess",
    setup=setup,
    models=("silero-vad",),
    group="media",
    cacheable=True,
    timeout_s=180.0,
)
async def preprocess(context: Context[VoiceActivity], inputs: VideoPreprocessInputs) -> VideoPreprocessOutputs:
    """Sample frames by time, decode the sound.

    Raises:
        MediaTooLargeError: Longer, or of more pixels, than allowed.
        MediaUnsupportedError: Not a film, or one without a video stream.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    films = []
    for item in inputs.videos:
        context.check()
        films.append(await _film(context, item, inputs))
    images = tuple(image for film in films for image in film[0])
    clips = tuple(film[1] for film in films if film[1] is not None)
    context.note(videos=len(films), frames=len(images))
    return VideoPreprocessOutputs(images=images, clips=clips, videos=tuple(film[2] for film in films))


async def _film(
    context: Context[VoiceActivity], item: MediaItem, inputs: VideoPreprocessInputs
) -> tuple[list[ImageTensor], AudioTensor | None, VideoInfo]:
    with about(item.part):
        data = await load_media(context.store, item.ref, inputs.limits.max_bytes)
        taken, samples, seconds = await context.run(_decode, data, inputs)
    images = [
        ImageTensor(
            part=item.part,
            pixels=await context.tensors.put(pixels),
            width=width,
            height=height,
            source=item.ref.digest,
            time_s=time_s,
        )
        for pixels, width, height, time_s in taken
    ]
    clip = None if samples is None else await audio_tensor(context, item, samples)
    info = VideoInfo(
        part=item.part, seconds=seconds, frames=len(taken), has_audio=clip is not None, source=item.ref.digest
    )
    return images, clip, info


def _decode(data: bytes, inputs: VideoPreprocessInputs) -> Decoded:
    from runtime.media.video import decode
    from runtime.vision.square import encoder_pixels

    clip = decode(data, inputs.limits, frames=inputs.frames, frames_per_second=inputs.frames_per_second)
    frames = [
        (encoder_pixels(frame.image), frame.image.width, frame.image.height, frame.time_s) for frame in clip.frames
    ]
    return frames, clip.samples, clip.seconds
