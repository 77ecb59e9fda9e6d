"""Speech written down while it is being said: a text that only grows, and a guess at what comes next.

Whisper hears the sound that is not settled again and again as it grows. Words that two hearings in a row agree on are
settled; so is everything before a pause. A hearing depends on its state and the sound alone, so that any worker can do
the next one.

Source: Macháček, Dabre and Bojar 2023, "Turning Whisper into Real-Time Transcription System", local agreement (n = 2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from runtime.speech.vad import VoiceActivity
from runtime.speech.whisper import Heard, Whisper
from runtime.speech.words import TimedText, joined

_RATE_HZ = 16_000
_RECENT_WORDS = 64
_OVERLAP_WORDS = 5
_JITTER_S = 0.1
_NEAR_S = 1.0


@dataclass(frozen=True, kw_only=True)
class LiveConfig:
    """When live speech is heard and settled.

    Attributes:
        step_s: New sound that is worth another hearing.
        pause_s: Silence after which what was said is settled.
        keep_s: Settled sound is let go when more than this is held.
        most_s: What is guessed is settled when this much is held; less than a window.
        margin_s: Sound kept before what is not settled.
        prompt_characters: Settled text that the next hearing is told.
    """

    step_s: float = 1.0
    pause_s: float = 1.0
    keep_s: float = 12.0
    most_s: float = 25.0
    margin_s: float = 0.3
    prompt_characters: int = 200


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """What one hearing leaves to the next; of bounded size; times are seconds since the stream began.

    Attributes:
        begun_s: Where the sound that is still needed begins.
        settled_s: Where the settled words end.
        recent: The last settled words.
        before: How many of these were said before `begun_s`.
        guess: The last hearing's words behind the settled ones.
        language: What is spoken; empty while it is not known.
    """

    begun_s: float = 0.0
    settled_s: float = 0.0
    recent: tuple[str, ...] = ()
    before: int = 0
    guess: tuple[TimedText, ...] = ()
    language: str = ""

    @property
    def tail(self) -> str:
        """What may still change."""
        return self.joined([word for _, _, word in self.guess])

    def joined(self, words: Sequence[str]) -> str:
        """Words as a text of the stream's language."""
        return joined(words, self.language)

    def settle(self, count: int) -> tuple[LiveState, tuple[str, ...]]:
        """With the first words of the guess settled, and these."""
        if not count:
            return self, ()
        words = tuple(word for _, _, word in self.guess[:count])
        recent = (*self.recent, *words)
        gone = max(0, len(recent) - _RECENT_WORDS)
        state = replace(
            self,
            settled_s=self.guess[count - 1][1],
            recent=recent[gone:],
            before=max(0, self.before - gone),
            guess=self.guess[count:],
        )
        return state, words

    def advance(self, to_s: float) -> LiveState:
        """Without the sound before a time; all words before it are settled."""
        begun_s = max(self.begun_s, to_s)
        return replace(self, begun_s=begun_s, settled_s=max(self.settled_s, begun_s), before=len(self.recent))


class LiveHearing:
    """Hears a stream step by step; keeps nothing itself, so that it serves many streams from several threads.

    Args:
        whisper: Hears.
        config: When words are settled.
    """

    def __init__(self, whisper: Whisper, config: LiveConfig | None = None) -> None:
        self._whisper = whisper
        self.config = config or LiveConfig()

    def hear(
        self,
        state: LiveState,
        samples: NDArray[np.float32],
        voice: Sequence[tuple[float, float]],
        *,
        last: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[LiveState, tuple[str, ...]]:
        """One hearing: what the next one needs, and the words that are settled now.

        Args:
            state: What the hearing before left.
            samples: float32 (sample,), mono, 16 kHz, all from `state.begun_s` on; at most a window.
            voice: Where in the samples somebody speaks, (start, end) in seconds, in order.
            last: Whether nothing more will come.
            cancelled: Asked before every token.

        Raises:
            InvalidInputError: More sound than a window, or an unknown language in the state.
        """
        held_s = len(samples) / _RATE_HZ
        if not voice:
            state, words = state.settle(len(state.guess))
            return self._let_go(state, held_s, paused=True), words
        heard = self._whisper.transcribe(
            samples,
            language=state.language or None,
            words=True,
            prompt=self._prompt(state),
            cancelled=cancelled,
        )
        fresh = fresh_words(state, _placed(heard, state.begun_s))
        paused = held_s - voice[-1][1] >= self.config.pause_s
        full = held_s >= self.config.most_s
        agreed = len(fresh) if last or paused or full else agreeing(state.guess, fresh)
        language = state.language or (heard.language if fresh else "")
        state, words = replace(state, guess=fresh, language=language).settle(agreed)
        return self._let_go(state, held_s, paused), words

    def _let_go(self, state: LiveState, held_s: float, paused: bool) -> LiveState:
        """Without the sound that no later hearing needs."""
        end_s = state.begun_s + held_s
        if paused and not state.guess:
            return state.advance(end_s - self.config.margin_s)
        if held_s < self.config.keep_s:
            return state
        # Full without a word in so long a time: there is none to lose.
        lost = held_s >= self.config.most_s and state.settled_s < end_s - self.config.keep_s
        return state.advance(end_s if lost else state.settled_s)

    def _prompt(self, state: LiveState) -> str:
        """The end of the text whose sound is gone: names stay as they were written, sentences go on."""
        return joined(state.recent[: state.before], state.language)[-self.config.prompt_characters :]


class LiveTranscriber:
    """One stream: push sound, read text.

    Args:
        hearing: Hears it.
        voice: Tells where somebody speaks.
        language: Code of the language; None: it is told from the first words.
    """

    def __init__(self, hearing: LiveHearing, voice: VoiceActivity, language: str | None = None) -> None:
        self._hearing, self._voice = hearing, voice
        self._state = LiveState(language=language or "")
        self._words: tuple[str, ...] = ()
        self._held = np.zeros(0, np.float32)
        self._heard_s = 0.0

    @property
    def stable(self) -> str:
        """The settled text; later ones begin with it."""
        return joined(self._words, self._state.language)

    @property
    def tail(self) -> str:
        """What may still change."""
        return self._state.tail

    @property
    def held_samples(self) -> int:
        """How much sound is kept for the next hearing."""
        return len(self._held)

    def push(self, samples: NDArray[np.float32]) -> None:
        """Add sound; it is heard as soon as there is enough of it.

        Args:
            samples: float32 (sample,), mono, 16 kHz, in [-1, 1].
        """
        piece = int(self._hearing.config.step_s * _RATE_HZ)
        for start in range(0, len(samples), piece):
            self._held = np.concatenate([self._held, samples[start : start + piece]])
            if self._end_s - self._heard_s >= self._hearing.config.step_s:
                self._hear(last=False)

    def finish(self) -> str:
        """Settle everything; returns the whole text. Nothing more may be pushed."""
        self._hear(last=True)
        return self.stable

    @property
    def _end_s(self) -> float:
        return self._state.begun_s + len(self._held) / _RATE_HZ

    def _hear(self, *, last: bool) -> None:
        self._heard_s, begun_s = self._end_s, self._state.begun_s
        self._state, words = self._hearing.hear(self._state, self._held, self._voice.segments(self._held), last=last)
        self._words += words
        self._held = self._held[round((self._state.begun_s - begun_s) * _RATE_HZ) :]


def agreeing(guess: Sequence[TimedText], fresh: Sequence[TimedText]) -> int:
    """How many words from the start two hearings agree on, whatever their marks and capitals."""
    pairs = zip(guess, fresh, strict=False)
    return sum(1 for _ in takewhile(lambda pair: _plain(pair[0][2]) == _plain(pair[1][2]), pairs))


def fresh_words(state: LiveState, heard: Sequence[TimedText]) -> tuple[TimedText, ...]:
    """The words of a hearing behind the settled ones."""
    words = [word for word in heard if word[0] >= state.settled_s - _JITTER_S or word[1] > state.settled_s + _JITTER_S]
    if not words or words[0][0] > state.settled_s + _NEAR_S:
        return tuple(words)
    for count in range(min(_OVERLAP_WORDS, len(words), len(state.recent)), 0, -1):
        said = [_plain(word) for word in state.recent[-count:]]
        if said == [_plain(word) for _, _, word in words[:count]]:
            return tuple(words[count:])
    return tuple(words)


def _placed(heard: Heard, from_s: float) -> list[TimedText]:
    return [(start_s + from_s, end_s + from_s, word) for start_s, end_s, word in heard.words]


def _plain(word: str) -> str:
    return re.sub(r"[^\w]", "", word.lower()) or word
