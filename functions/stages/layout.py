"""A prompt under construction: pieces one behind the other become token ids, embeddings and positions.

Positions follow the M-RoPE rule: text counts on in all three axes, a block keeps its own three-dimensional positions
from where the text stopped, and what follows starts behind the block's largest. Words of the block's frame that stand
between its embeddings push the rest of the block on by as many positions as they take.

Source: Wang et al., Qwen2-VL (2024), section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bus.contracts import Modality
from functions.stages.pieces import Markup, Piece, SoftTokens, Words

if TYPE_CHECKING:
    from runtime.generation.tokenizer import ChatTokenizer, PromptText

_MEDIA_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Laid:
    """A finished prompt.

    Attributes:
        ids: int32 `(token,)`; -1 where an embedding stands.
        embeddings: float32 `(slot, dim)`.
        positions: int32 `(3, token)`.
        counts: Tokens by modality.
        parts: Tokens by piece of media, its markup among them.
        spans: Where the embeddings of each piece of media stand: first token and the one behind the last.
    """

    ids: NDArray[np.int32]
    embeddings: NDArray[np.float32]
    positions: NDArray[np.int32]
    counts: dict[str, int]
    parts: dict[int, int]
    spans: dict[int, list[tuple[int, int]]]


class Layout:
    """Lays out one prompt.

    Args:
        tokenizer: Of the language model.
        hidden: Width of its embeddings.
    """

    def __init__(self, tokenizer: ChatTokenizer, hidden: int) -> None:
        self._tokenizer = tokenizer
        self._run: list[tuple[Words | Markup, PromptText]] = []
        self._ids: list[NDArray[np.int32]] = []
        self._nothing = np.zeros((0, hidden), np.float32)
        self._embeddings: list[NDArray[np.float32]] = []
        self._positions: list[NDArray[np.int32]] = []
        self._counts: dict[str, int] = {}
        self._parts: dict[int, int] = {}
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self._next = self._length = 0
        self._apart = False

    def add(self, piece: Piece) -> None:
        """Put a piece behind what is there."""
        if isinstance(piece, SoftTokens):
            self._add_soft(piece)
        elif isinstance(piece, Words) or not piece.back:
            self._add_text(piece)
        else:
            self._flush()
            self._add_text(piece)
            self._flush(piece.back)

    def finish(self) -> Laid:
        """The prompt; nothing can be added any more."""
        self._flush()
        return Laid(
            np.concatenate(self._ids),
            self._media(),
            np.ascontiguousarray(np.concatenate(self._positions, axis=1)),
            self._counts,
            self._parts,
            self._spans,
        )

    def _media(self) -> NDArray[np.float32]:
        """All embeddings; those of a single piece as they are, since a copy takes as long as all the rest."""
        if len(self._embeddings) == 1:
            return self._embeddings[0]
        return np.concatenate([self._nothing, *self._embeddings])

    def _add_text(self, piece: Words | Markup) -> None:
        from runtime.generation.tokenizer import PromptText

        last = self._run[-1][0] if self._run else None
        if isinstance(piece, Markup) and piece.once and isinstance(last, Markup) and last.text.endswith(piece.text):
            return
        if not piece.text:
            return
        # What a letter follows, and no markup, has a space behind it.
        space = " " if self._apart and not piece.text[0].isspace() and piece.text[0] != "<" else ""
        self._run.append((piece, PromptText(space + piece.text, markup=isinstance(piece, Markup))))
        self._apart = isinstance(piece, Markup) and piece.apart

    def _add_soft(self, soft: SoftTokens) -> None:
        self._embeddings.append(soft.embeddings)
        if not soft.frame:
            self._flush()
            self._add_slots(soft, soft.positions + np.int32(self._next))
            return
        used, reached, start = 0, 0, -1
        for frame in soft.frame:
            if frame.text:
                markup = Markup(frame.text, soft.part, soft.modality, frame.back, frame.once, frame.apart)
                self.add(markup)
                continue
            self._flush()
            start = self._next if start < 0 else start + self._next - reached
            self._add_slots(soft, soft.positions[:, used : used + frame.slots] + np.int32(start))
            used, reached = used + frame.slots, self._next

    def _add_slots(self, soft: SoftTokens, positions: NDArray[np.int32]) -> None:
        count = positions.shape[1]
        if not count:
            return
        self._apart = False
        if soft.part is not None:
            self._spans.setdefault(soft.part, []).append((self._length, self._length + count))
        self._append(np.full(count, _MEDIA_TOKEN, np.int32), positions)
        self._next = int(positions.max()) + 1
        self._count(soft.modality, soft.part, count)

    def _flush(self, back: int = 0) -> None:
        """Add what stands between two media as one text: a word may begin in one part and end in the next."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][1].markup:
            mark = self._tokenizer.encode_mark(run[0][1].text)
            self._append_words(mark, back)
            self._count(run[0][0].modality, run[0][0].part, len(mark))
            return
        ids, owners = self._tokenizer.encode_parts([text for _, text in run])
        self._append_words(ids, back)
        for (piece, _), count in zip(run, np.bincount(owners, minlength=len(run)).tolist(), strict=True):
            self._count(piece.modality, piece.part, count)

    def _append_words(self, ids: NDArray[np.int32], back: int) -> None:
        """Tokens that follow each other, from so many positions before the next free one."""
        start = self._next - back
        places = np.empty((3, len(ids)), np.int32)
        places[:] = np.arange(start, start + len(ids), dtype=np.int32)
        self._append(ids, places)
        self._next = max(self._next, start + len(ids))

    def _append(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> None:
        self._ids.append(ids)
        self._positions.append(positions)
        self._length += len(ids)

    def _count(self, modality: Modality, part: int | None, count: int) -> None:
        if count:
            self._counts[modality.value] = self._counts.get(modality.value, 0) + count
        if count and part is not None:
            self._parts[part] = self._parts.get(part, 0) + count
