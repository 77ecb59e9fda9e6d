"""Voice activity detection: where in a clip somebody speaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from runtime.engines.onnx import OnnxSession

if TYPE_CHECKING:
    from runtime.repository import Repository

SAMPLE_RATE_HZ = 16_000
STEP = 512
"""Samples that one probability covers: 32 ms."""

_CONTEXT = 64
_STATE = 128
_STEPS_PER_RUN = 2048


@dataclass(frozen=True, kw_only=True)
class VoiceConfig:
    """When a probability becomes a segment; the defaults are Silero's.

    Attributes:
        threshold: Speech begins at this probability.
        exit_threshold: Speech goes on down to this probability.
        min_speech_s: Shorter segments are dropped.
        min_silence_s: Shorter pauses do not end a segment.
        padding_s: Kept on both sides of a segment.
    """

    threshold: float = 0.5
    exit_threshold: float = 0.35
    min_speech_s: float = 0.25
    min_silence_s: float = 0.1
    padding_s: float = 0.03


class VoiceActivity:
    """Silero's detector over a whole clip at once; stateless between calls, safe from several threads."""

    def __init__(self, session: OnnxSession, config: VoiceConfig | None = None) -> None:
        self._session = session
        self._config = config or VoiceConfig()

    @classmethod
    def load(cls, repository: Repository) -> Self:
        """The installed model `silero-vad`.

        Raises:
            ModelNotFoundError: It is not installed.
        """
        manifest = repository.resolve("silero-vad")
        # One thread: the model is a chain of tiny steps, more threads would only wait for each other.
        return cls(OnnxSession(repository.file(manifest, "model.onnx"), threads=1, spin=False))

    def probabilities(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """How likely somebody speaks in each 32 ms.

        Args:
            samples: float32 (sample,), mono, 16 kHz, in [-1, 1].

        Returns:
            float32 (step,) in [0, 1].
        """
        steps = -(-len(samples) // STEP)
        hidden = cell = np.zeros((1, 1, _STATE), np.float32)
        found = [np.zeros(0, np.float32)]
        for start in range(0, steps, _STEPS_PER_RUN):
            rows = _rows(samples, start, min(steps, start + _STEPS_PER_RUN))
            speech, hidden, cell = self._session.run(
                {"input": rows, "h": hidden, "c": cell}, ["speech_probs", "hn", "cn"]
            )
            found.append(speech)
        return np.concatenate(found)

    def segments(self, samples: NDArray[np.float32]) -> list[tuple[float, float]]:
        """Where somebody speaks, as (start, end) in seconds, in order.

        Args:
            samples: float32 (sample,), mono, 16 kHz, in [-1, 1].
        """
        return voiced_segments(self.probabilities(samples), len(samples) / SAMPLE_RATE_HZ, self._config)


def _rows(samples: NDArray[np.float32], start: int, end: int) -> NDArray[np.float32]:
    """Steps of a clip, (step, sample): each is the last 64 samples of the one before it and 512 of its own."""
    padded = np.zeros(_CONTEXT + (end - start) * STEP, np.float32)
    first = start * STEP - _CONTEXT
    kept = samples[max(0, first) : end * STEP]
    begin = max(0, -first)
    padded[begin : begin + len(kept)] = kept
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(padded, _CONTEXT + STEP)[::STEP])


def voiced_segments(
    probabilities: Sequence[float] | NDArray[np.float32], seconds: float, config: VoiceConfig
) -> list[tuple[float, float]]:
    """Segments out of probabilities: two thresholds, short pauses bridged, short sounds dropped, padded.

    Args:
        probabilities: One per 32 ms.
        seconds: Length of the clip.
        config: The rules.
    """
    step_s = STEP / SAMPLE_RATE_HZ
    found = [
        (start_s, min(end_s, seconds))
        for start_s, end_s in _bridged(_stretches(probabilities, config, step_s), config.min_silence_s)
        if end_s - start_s >= config.min_speech_s
    ]
    padded: list[tuple[float, float]] = []
    for start_s, end_s in found:
        # Two neighbours share a pause that is too short for the padding of both.
        floor_s = padded[-1][1] if padded else 0.0
        padded.append((max(floor_s, start_s - config.padding_s), min(seconds, end_s + config.padding_s)))
    return padded


def _stretches(
    probabilities: Sequence[float] | NDArray[np.float32], config: VoiceConfig, step_s: float
) -> Iterator[tuple[float, float]]:
    begun: int | None = None
    for index, probability in enumerate(probabilities):
        if begun is None and probability >= config.threshold:
            begun = index
        elif begun is not None and probability < config.exit_threshold:
            yield begun * step_s, index * step_s
            begun = None
    if begun is not None:
        yield begun * step_s, len(probabilities) * step_s


def _bridged(stretches: Iterator[tuple[float, float]], pause_s: float) -> Iterator[tuple[float, float]]:
    current = next(stretches, None)
    if current is None:
        return
    for start_s, end_s in stretches:
        if start_s - current[1] < pause_s:
            current = (current[0], end_s)
        else:
            yield current
            current = (start_s, end_s)
    yield current
