"""Prompts on their way into the cache, piece by piece, without computing what is known already."""

from __future__ import annotations

import time

from runtime.generation.chunking import PrefillPace
from runtime.generation.decoder import Decoder, Floats
from runtime.generation.prefix_cache import BLOCK_TOKENS, PrefixCache, block_keys
from runtime.generation.scheduler import Scheduler
from runtime.generation.sequence import Sequence


class Prefill:
    """Computes prompts; used from the engine's thread only.

    Args:
        decoder: The model.
        scheduler: Who decodes at the moment.
        prefixes: Keys and values of earlier prompts.
        pace: How long a piece may be.
    """

    def __init__(self, decoder: Decoder, scheduler: Scheduler, prefixes: PrefixCache, pace: PrefillPace) -> None:
        self._decoder, self._scheduler, self._prefixes, self._pace = decoder, scheduler, prefixes, pace

    def step(self, sequence: Sequence, row: int) -> Floats | None:
        """Compute a piece; logits float32 `(vocabulary,)` behind the prompt when it was the last one.

        Args:
            sequence: Whose prompt it is.
            row: Where its keys and values go.
        """
        for other in sequence.beside:
            if other.first is not None and other in self._scheduler.decoding:
                return self._copied(other, sequence, row, other.first)
        embeddings = self._begin(sequence, row) if sequence.embeddings is None else sequence.embeddings
        start = sequence.length
        end = self._end_of_piece(start, len(embeddings))
        begun_s = time.perf_counter()
        positions = sequence.prompt.positions
        places = None if positions is None else positions[:, start:end]
        logits = self._decoder.prefill(row, embeddings[start:end], start, places)
        self._pace.prefilled(end - start, time.perf_counter() - begun_s)
        sequence.length = end
        if end < len(embeddings):
            return None
        sequence.embeddings = None
        self._prefixes.store(sequence.keys, row)
        if sequence.beside:
            sequence.first = logits.copy()
        return logits

    def _copied(self, other: Sequence, sequence: Sequence, row: int, logits: Floats) -> Floats:
        """Take the prompt's keys and values from another answer to it, which has gone on behind them."""
        length = len(sequence.prompt.ids)
        self._decoder.pool.move(self._scheduler.row_of(other), row, length)
        sequence.length = sequence.generation.cached_tokens = length
        sequence.keys, sequence.first = other.keys, logits
        return logits.copy()  # whoever chooses from them works in place

    def _begin(self, sequence: Sequence, row: int) -> Floats:
        """Embed the prompt, and take from the cache what is known of it."""
        embeddings = sequence.embeddings = self._decoder.embed(sequence.prompt.ids, sequence.prompt.embeddings)
        sequence.keys = block_keys(sequence.prompt)
        # The last token is always computed, for its logits choose the first token of the answer; and not alone, see
        # `_end_of_piece`.
        usable = max(0, len(sequence.prompt.ids) - 2) // BLOCK_TOKENS
        sequence.length = self._prefixes.restore(sequence.keys[:usable], row)
        sequence.generation.cached_tokens = sequence.length
        return embeddings

    def _end_of_piece(self, start: int, total: int) -> int:
        # No piece of one token: attention of one token is computed in another order than that of several, and an
        # answer should not depend on where a prompt was cut.
        end = min(start + self._pace.chunk(len(self._scheduler.decoding)), total)
        return end - 1 if total - end == 1 and end - start > 2 else end
