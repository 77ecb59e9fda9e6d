"""Sound on its way to Whisper-like encoders: mel frames in chunks, and which rows of the encoder become tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.multimodal.patching import Integers, runs
from runtime.multimodal.prepared import Floats

HOP = 160
"""Samples of a mel frame, at 16 kHz."""

SECONDS_PER_TOKEN = 0.04
"""Two frames become a row, two rows a token."""

_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Hearing:
    """How a tower takes sound.

    Attributes:
        mels: Mel bands.
        chunk_frames: Frames that look at each other.
        ahead: Frames behind the end of a chunk that its last row is made of too, of the silence that follows.
        across: Whether a token may be made of the end of one chunk and the beginning of the next.
    """

    mels: int
    chunk_frames: int
    ahead: int = 0
    across: bool = False

    def frames(self, samples: Floats) -> int:
        """Mel frames of a clip; the shortest that makes a token is the least."""
        return max(_FEWEST, -(-len(samples) // HOP))

    def chunks(self, samples: Floats, longest: int) -> dict[str, NDArray[Any]]:
        """What the encoder takes of one clip.

        Args:
            samples: float32 `(sample,)`, mono, 16 kHz.
            longest: Frames of the silence that the model pads every clip to.

        Returns:
            `mel` float32 `(mel, frame)`, chunk behind chunk; `given` int64 `(chunk,)`, the frames of each in it;
            `counted` int64 `(chunk,)`, those that the clip has.
        """
        from runtime.speech.mel import log_mel

        count = self.frames(samples)
        most = max(count, longest)
        computed = min(count + 2, most)
        if computed == most and len(samples) < most * HOP:
            # At the very end the reference mirrors the silence and not nothing.
            samples = np.pad(samples, (0, most * HOP - len(samples)))
        mel = log_mel(samples, frames=computed, mels=self.mels)
        counted = np.diff([*range(0, count, self.chunk_frames), count])
        given = counted.copy()
        given[-1] = min(given[-1] + self.ahead, computed - (count - given[-1]), self.chunk_frames)
        return {"mel": mel[:, : given.sum()], "given": given.astype(np.int64), "counted": counted.astype(np.int64)}

    def tokens(self, counted: Integers) -> int:
        """Tokens of a clip by the frames of its chunks."""
        parts = [_rows(counted).sum()] if self.across else _rows(counted)
        return int(sum(int(rows) // 2 for rows in parts))

    def packed(self, clips: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Several clips as the graph takes them together; see `runtime.graphs.encoders.hearing.hearing`."""
        given, counted = (np.concatenate([clip[name] for clip in clips]) for name in ("given", "counted"))
        mel = np.zeros((len(given), given.max(), self.mels), np.float32)
        pieces = (piece for clip in clips for piece in np.split(clip["mel"], np.cumsum(clip["given"])[:-1], axis=1))
        for chunk, piece in zip(mel, pieces, strict=True):
            chunk[: piece.shape[1]] = piece.T
        kept = _rows(counted)
        order = np.argsort(kept, kind="stable")
        starts = np.empty_like(kept)
        starts[order] = np.cumsum(kept[order]) - kept[order]
        across = (given.max() - 1) // 2 + 1
        return {
            "mel": mel,
            "lengths": given,
            "rows": np.concatenate([chunk * across + np.arange(kept[chunk]) for chunk in order]),
            "runs": runs(kept[order]),
            "pairs": np.concatenate(list(self._pairs(starts, kept, [len(clip["given"]) for clip in clips]))),
        }

    def _pairs(self, starts: Integers, kept: Integers, chunks: Sequence[int]) -> Sequence[Integers]:
        """The rows of each token, int64 `(token, 2)`, clip by clip."""
        rows = [start + np.arange(count) for start, count in zip(starts, kept, strict=True)]
        if self.across:
            ends = np.cumsum([0, *chunks])
            rows = [np.concatenate(rows[first:last]) for first, last in pairwise(ends)]
        return [one[: len(one) // 2 * 2].reshape(-1, 2) for one in rows]


def _rows(frames: Integers) -> Integers:
    """Rows of the tower for so many mel frames."""
    return (frames - 1) // 2 + 1
