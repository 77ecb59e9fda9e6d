"""`audio.preprocess`: any sound to 16 kHz mono, with the places where somebody speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, MediaLimits
from bus.ports import Array
from bus.store.media import load_media
from functions.context import Context
from functions.decorator import function
from functions.stages.blame import about
from functions.stages.parts import AudioTensor, MediaItem, SpeechSegment

if TYPE_CHECKING:
    from runtime.repository import Repository
    from runtime.speech.vad import VoiceActivity


class AudioPreprocessInputs(Contract):
    """Sound files in the object store; films give their sound track."""

    clips: tuple[MediaItem, ...] = ()
    parts: tuple[int, ...] | None = Field(default=None, description="Of those of these parts alone; None: of all.")
    silent: bool = Field(default=False, description="Whether films without sound are left out, and not refused.")
    limits: MediaLimits = MediaLimits()


class AudioPreprocessOutputs(Contract):
    """One clip a file."""

    clips: tuple[AudioTensor, ...] = ()


def setup(repository: Repository) -> VoiceActivity:
    """Load voice activity detection."""
    from runtime.speech.vad import VoiceActivity

    return VoiceActivity.load(repository)


@function(
    "audio.preprocess",
    setup=setup,
    models=("silero-vad",),
    group="media",
    cacheable=True,
    timeout_s=120.0,
)
async def preprocess(context: Context[VoiceActivity], inputs: AudioPreprocessInputs) -> AudioPreprocessOutputs:
    """Decode, mix down, resample and find the voice.

    Raises:
        MediaTooLargeError: Longer than allowed; told by the header or as soon as decoding passes the limit.
        MediaUnsupportedError: Not sound, or a file without an audio stream.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    clips: list[AudioTensor] = []
    for item in inputs.clips:
        if inputs.parts is not None and item.part not in inputs.parts:
            continue
        context.check()
        with about(item.part):
            data = await load_media(context.store, item.ref, inputs.limits.max_bytes)
            samples = await context.run(_decode, data, inputs.limits, inputs.silent)
        if samples is not None:
            clips.append(await audio_tensor(context, item, samples))
    context.note(clips=len(clips), seconds=round(sum(clip.seconds for clip in clips), 3))
    return AudioPreprocessOutputs(clips=tuple(clips))


async def audio_tensor(context: Context[VoiceActivity], item: MediaItem, samples: Array) -> AudioTensor:
    """A decoded clip as the speech stages take it.

    Args:
        context: Of the running stage.
        item: Where the sound came from.
        samples: float32 (sample,), mono, 16 kHz.
    """
    voice = await context.run(context.model.segments, samples)
    return AudioTensor(
        part=item.part,
        samples=await context.tensors.put(samples),
        seconds=len(samples) / 16_000,
        source=item.ref.digest,
        voice=tuple(SpeechSegment(start_s=start_s, end_s=end_s) for start_s, end_s in voice),
    )


def _decode(data: bytes, limits: MediaLimits, silent: bool) -> Array | None:
    from runtime.media.audio import decode
    from runtime.media.video import sound

    return sound(data, limits) if silent else decode(data, limits)
