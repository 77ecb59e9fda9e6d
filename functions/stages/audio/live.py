"""`audio.live`: what is being said, one hearing after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract
from bus.errors import InvalidInputError
from functions.context import Context
from functions.decorator import function
from functions.stages.parts import AudioTensor, SpeechSegment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from runtime.repository import Repository
    from runtime.speech.live import LiveHearing, LiveState


_MOST_WORDS = 448
"""A window has no more words than the speech model's context has tokens."""


class LiveProgress(Contract):
    """What one hearing leaves to the next, whichever worker does it; times are seconds since the stream began."""

    begun_s: float = Field(
        default=0.0, ge=0.0, allow_inf_nan=False, description="Where the sound that is still needed begins."
    )
    settled_s: float = Field(default=0.0, ge=0.0, allow_inf_nan=False, description="Where the settled words end.")
    recent: tuple[str, ...] = Field(default=(), max_length=64, description="The last settled words.")
    before: int = Field(default=0, ge=0, description="How many of these were said before the sound begins.")
    guess: tuple[SpeechSegment, ...] = Field(
        default=(), max_length=_MOST_WORDS, description="Words that may still change."
    )
    language: str = Field(default="", description="Code; empty: it is told from the first words.")


class LiveInputs(Contract):
    """One clip: all sound of the stream from `progress.begun_s` on, half a minute at most."""

    clips: tuple[AudioTensor, ...] = Field(max_length=1)
    progress: LiveProgress | None = Field(default=None, description="Of the hearing before; None: this is the first.")
    last: bool = Field(default=False, description="Nothing more will come: everything is settled.")


class LiveOutputs(Contract):
    """What is settled now, what may still change, and what to send with the next sound."""

    settled: str = Field(default="", description="Words behind those that were settled before.")
    tail: str = ""
    progress: LiveProgress = LiveProgress()


def setup(repository: Repository) -> LiveHearing:
    """Load the speech model."""
    from runtime.speech.live import LiveHearing
    from runtime.speech.whisper import Whisper

    return LiveHearing(Whisper.load(repository, "whisper-base"))


@function(
    "audio.live",
    setup=setup,
    models=("whisper-base",),
    group="speech",
    timeout_s=60.0,
)
async def live(context: Context[LiveHearing], inputs: LiveInputs) -> LiveOutputs:
    """Hear a stream's newest sound; words that two hearings agree on are settled.

    Raises:
        InvalidInputError: More sound than half a minute, or an unknown language.
    """
    progress = inputs.progress or LiveProgress()
    (clip,) = inputs.clips
    samples = await context.tensors.get(clip.samples)
    voice = [(segment.start_s, segment.end_s) for segment in clip.voice]
    state, words = await context.run(_hear, context, progress, samples, voice, inputs.last)
    context.note(seconds=round(clip.seconds, 3), settled=len(words))
    return LiveOutputs(settled=state.joined(words), tail=state.tail, progress=_progress(state))


def _hear(
    context: Context[LiveHearing],
    progress: LiveProgress,
    samples: NDArray[np.float32],
    voice: list[tuple[float, float]],
    last: bool,
) -> tuple[LiveState, tuple[str, ...]]:
    from runtime.speech.live import LiveState

    if progress.before > len(progress.recent):
        raise InvalidInputError(
            f"before is {progress.before}, but there are {len(progress.recent)} recent words; send progress as it came"
        )
    state = LiveState(
        begun_s=progress.begun_s,
        settled_s=progress.settled_s,
        recent=progress.recent,
        before=progress.before,
        guess=tuple((word.start_s, word.end_s, word.text) for word in progress.guess),
        language=progress.language,
    )
    found = context.model.hear(state, samples, voice, last=last, cancelled=lambda: context.cancelled)
    context.check()  # what a cancelled run has heard so far is not settled
    return found


def _progress(state: LiveState) -> LiveProgress:
    return LiveProgress(
        begun_s=state.begun_s,
        settled_s=state.settled_s,
        recent=state.recent,
        before=state.before,
        guess=tuple(SpeechSegment(start_s=start_s, end_s=end_s, text=word) for start_s, end_s, word in state.guess),
        language=state.language,
    )
