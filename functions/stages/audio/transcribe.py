"""`audio.transcribe`: what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bus.contracts import Contract, Modality, TokenBlock
from functions.context import Context
from functions.decorator import function
from functions.stages.parts import AudioTensor, Block, SpeechSegment, TranscribeOptions, Transcript
from runtime.text.pieces import join_pieces, joint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from runtime.repository import Repository
    from runtime.speech.whisper import Heard, Whisper

_RATE_HZ = 16_000
_LEAST_UNHEARD_S = 0.7
_SHORT_S = 8.0


class TranscribeInputs(Contract):
    """Clips of 16 kHz mono sound."""

    clips: tuple[AudioTensor, ...] = ()
    options: TranscribeOptions | None = None


class TranscribeOutputs(Contract):
    """One block and one transcript a clip; both empty of words where nobody speaks."""

    blocks: tuple[Block, ...] = ()
    transcripts: tuple[Transcript, ...] = ()


def setup(repository: Repository) -> Whisper:
    """Load the speech model."""
    from runtime.speech.whisper import Whisper

    return Whisper.load(repository, "whisper-base")


async def warm_up(model: Whisper) -> None:
    """Listen to a second of a tone: what is silent is not listened to."""
    import numpy as np

    tone = np.sin(np.arange(_RATE_HZ, dtype=np.float32) / 6)
    await asyncio.to_thread(model.transcribe, tone)


@function(
    "audio.transcribe",
    version=3,
    setup=setup,
    warm_up=warm_up,
    models=("whisper-base",),
    group="speech",
    cacheable=True,
    streams=True,
    timeout_s=600.0,
)
async def transcribe(context: Context[Whisper], inputs: TranscribeInputs) -> TranscribeOutputs:
    """Write down every clip, window by window; whoever asks for a stream reads each one as soon as it is written.

    Raises:
        InvalidInputError: A language that the model does not know.
    """
    options = inputs.options or TranscribeOptions()
    context.model.check_language(options.language)
    told = _Told(context)
    transcripts = [await _clip(context, clip, options, told) for clip in inputs.clips]
    context.note(
        seconds=round(sum(one.seconds for one in transcripts), 3), characters=sum(len(one.text) for one in transcripts)
    )
    blocks = tuple(
        Block(part=clip.part, block=_block(context.model.ref, clip, transcript))
        for clip, transcript in zip(inputs.clips, transcripts, strict=True)
    )
    return TranscribeOutputs(blocks=blocks, transcripts=tuple(transcripts))


class _Told:
    """What was streamed, joined as the whole transcript will be."""

    def __init__(self, context: Context[Whisper]) -> None:
        self._context, self._last = context, ""

    async def add(self, text: str) -> None:
        if text:
            await self._context.emit(joint(self._last, text) + text)
            self._last = text


async def _clip(context: Context[Whisper], clip: AudioTensor, options: TranscribeOptions, told: _Told) -> Transcript:
    from runtime.speech.windows import speech_windows

    samples = await context.tensors.get(clip.samples)
    window_s = context.model.window_samples / _RATE_HZ
    voice = [(segment.start_s, segment.end_s) for segment in clip.voice]
    language, segments, words = options.language, list[SpeechSegment](), list[SpeechSegment]()
    waiting = speech_windows(voice, samples, window_s)
    while waiting:
        context.check()
        start_s, end_s = waiting.pop(0)
        window = samples[int(start_s * _RATE_HZ) : int(end_s * _RATE_HZ)]
        heard = await context.run(_listen, context, window, language, options)
        if heard.text:  # what is heard in noise is no language
            language = heard.language
        said = _shifted(heard.segments, start_s)
        if options.stream:
            await told.add(_text(said))
        segments += said if options.timestamps else _as_one(said)
        words += _shifted(heard.words, start_s)
        if said and said[-1].end_s > start_s + _LEAST_UNHEARD_S and (rest := _unheard(said[-1].end_s, end_s, voice)):
            waiting.insert(0, (rest, end_s))
    # A model that hears silence invents words, so where nobody speaks nobody listens.
    return Transcript(
        part=clip.part,
        text=_text(segments),
        language=language or "",
        seconds=clip.seconds,
        segments=tuple(segments),
        words=tuple(words),
    )


def _shifted(found: Sequence[tuple[float, float, str]], by_s: float) -> list[SpeechSegment]:
    return [
        SpeechSegment(start_s=round(by_s + start_s, 3), end_s=round(by_s + end_s, 3), text=text)
        for start_s, end_s, text in found
    ]


def _as_one(said: Sequence[SpeechSegment]) -> list[SpeechSegment]:
    if not said:
        return []
    return [SpeechSegment(start_s=said[0].start_s, end_s=said[-1].end_s, text=_text(said))]


def _text(said: Sequence[SpeechSegment]) -> str:
    return join_pieces(segment.text for segment in said)


def _unheard(heard_s: float, end_s: float, voice: Sequence[tuple[float, float]]) -> float | None:
    """Where to listen again when the model stopped writing although somebody goes on speaking."""
    left = sum(max(0.0, min(until_s, end_s) - max(from_s, heard_s)) for from_s, until_s in voice)
    return heard_s if left >= _LEAST_UNHEARD_S else None


def _listen(
    context: Context[Whisper], window: NDArray[np.float32], language: str | None, options: TranscribeOptions
) -> Heard:
    heard = context.model.transcribe(
        window,
        language=language,
        # Without times to write the model leaves out what is said again, and stops early unseen.
        timestamps=options.timestamps or len(window) > _SHORT_S * _RATE_HZ,
        words=options.words,
        prompt=options.prompt,
        temperature=options.temperature,
        cancelled=lambda: context.cancelled,
    )
    context.check()  # what a cancelled run has heard so far is no transcript
    return heard


def _block(encoder: str, clip: AudioTensor, transcript: Transcript) -> TokenBlock:
    return TokenBlock(
        modality=Modality.AUDIO,
        text=transcript.text,
        start_s=transcript.segments[0].start_s if transcript.segments else None,
        encoder=encoder,
        source=clip.source,
    )
