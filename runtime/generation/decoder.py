"""A decoder ready to generate: its graph, its embedding table, its cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError
from runtime.engines.onnx import Binding, OnnxSession
from runtime.generation.kv import KvPool
from runtime.generation.limits import context_tokens
from runtime.generation.request import MEDIA_TOKEN

Floats = NDArray[np.float32]

# Longer than the gap between two operators of a decode step, and nothing beside the work of another process.
_SPIN_US = 20


@dataclass(frozen=True, slots=True)
class _Step:
    """A binding and the arrays that it reads and writes."""

    binding: Binding
    looked_up: NDArray[Any]
    embeddings: Floats
    lengths: NDArray[np.int32]
    longest: NDArray[np.int32]
    logits_at: NDArray[np.int64]
    positions: NDArray[np.int32]
    logits: Floats


class Decoder:
    """Runs prefill and decode steps on rows of a cache.

    Args:
        folder: The model's folder: `model.onnx`, `embeddings.npy`.
        manifest: Its manifest.
        slots: Rows that run together.
        context: Tokens in a row, prompt and answer; None: what the manifest says.
        threads: See `OnnxSession`.
        device: See `OnnxSession`.

    Attributes:
        hidden: Width of an embedding.
        vocabulary: Tokens that there are.
        end_tokens: Those that end an answer.
        pool: The rows' memory.
        takes_positions: Whether a token's position is not its place: pictures and films have three axes.
        positions: How many positions the model knows.
        least_rows: Rows of a decode step, so that a row's logits do not depend on how many others are there.

    Raises:
        ModelCorruptError: A file is missing or damaged.
    """

    def __init__(
        self,
        folder: Path,
        manifest: ModelManifest,
        *,
        slots: int = 8,
        context: int | None = None,
        threads: int = 0,
        device: str = "auto",
    ) -> None:
        dims = manifest.dims
        try:
            self._table: NDArray[Any] = np.load(folder / "embeddings.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise ModelCorruptError(f"the embedding table of {manifest.ref} cannot be read: {error}") from error
        self.hidden = dims["hidden"]
        self.end_tokens = frozenset(manifest.parameters["end_tokens"])
        self.vocabulary = dims["vocabulary"]
        self._session = OnnxSession(folder / "model.onnx", threads=threads, device=device, spin_us=_SPIN_US)
        self.takes_positions = "positions" in self._session.inputs
        self.positions = dims.get("positions", dims["context"])
        # The kernel for one row in 4 bits adds up in another order than the one for several, and rounding of the
        # activations makes that difference as large as the rounding itself: a lone row brings a spare one along.
        self.least_rows = 2 if manifest.quantisation == "q4" else 1
        self.pool = KvPool(
            layers=dims["layers"],
            kv_heads=dims["kv_heads"],
            head_dim=dims["head_dim"],
            slots=slots,
            capacity=context or context_tokens(manifest),
            least=self.least_rows,
        )
        self._steps: dict[tuple[int, int, int], _Step] = {}

    def embed(self, tokens: NDArray[np.int32], media: Floats) -> Floats:
        """Embeddings of a prompt, float32 `(token, hidden)`.

        Args:
            tokens: int32 `(token,)`; `MEDIA_TOKEN` takes the next row of `media`.
            media: float32 `(slot, hidden)`.
        """
        embedded: Floats = self._table[np.maximum(tokens, 0)].astype(np.float32)
        embedded[tokens == MEDIA_TOKEN] = media
        return embedded

    def prefill(self, row: int, embeddings: Floats, start: int, positions: NDArray[np.int32] | None = None) -> Floats:
        """Append a piece of a prompt to a row; logits of its last token, float32 `(vocabulary,)`.

        Args:
            row: Which row.
            embeddings: float32 `(token, hidden)`.
            start: Tokens that the row has already.
            positions: int32 `(3, token)`, time, height and width, for a model that takes them; None: places in the row.
        """
        step = self._bind(row, row + 1, len(embeddings))
        step.embeddings[0] = embeddings
        step.logits_at[0] = len(embeddings) - 1
        self._run(step, np.array([start + len(embeddings)]), None if positions is None else positions[:, None])
        logits: Floats = step.logits[0, 0]
        return logits

    def verify(self, row: int, tokens: NDArray[np.int32], start: int, shift: int = 0) -> Floats:
        """Append a few tokens to a row; logits after each, float32 `(token, vocabulary)`, valid until the next.

        The logits are those of decoding the tokens one by one. Tokens that are not kept need not be taken back: the
        row's length says what is valid, and the next step writes over the rest.

        Args:
            row: Which row.
            tokens: int32 `(token,)`.
            start: Tokens that the row has already.
            shift: See `decode`.
        """
        step = self._kept(row, row + 1, len(tokens))
        self._look_up(tokens, step)
        self._run(step, np.array([start + len(tokens)]), shifts=np.array([shift]))
        logits: Floats = step.logits[0]
        return logits

    def decode(
        self, tokens: NDArray[np.int32], lengths: NDArray[np.int64], shifts: NDArray[np.int64] | None = None
    ) -> Floats:
        """Append one token to each of the rows 0 to n-1; logits, float32 `(row, vocabulary)`, valid until the next.

        Args:
            tokens: int32 `(row,)`.
            lengths: int64 `(row,)`, tokens of each row before this one.
            shifts: int64 `(row,)`, how far each token's position is ahead of its place in the row; None: not at all.
        """
        step = self._kept(0, len(tokens), 1)
        self._look_up(tokens, step)
        self._run(step, lengths + 1, shifts=shifts)
        logits: Floats = step.logits[:, 0]
        return logits

    def _look_up(self, tokens: NDArray[np.int32], step: _Step) -> None:
        # Into memory that is kept, and cast from there: a decode step takes no new memory.
        np.take(self._table, tokens.reshape(step.looked_up.shape[:2]), axis=0, out=step.looked_up, mode="clip")
        step.embeddings[...] = step.looked_up

    def _run(
        self,
        step: _Step,
        totals: NDArray[Any],
        positions: NDArray[np.int32] | None = None,
        shifts: NDArray[np.int64] | None = None,
    ) -> None:
        step.lengths[:] = totals - 1
        step.longest[()] = totals.max()
        if self.takes_positions:
            count = step.positions.shape[2]
            first = totals - count if shifts is None else totals - count + shifts
            step.positions[...] = first[:, None] + np.arange(count) if positions is None else positions
        step.binding.run()

    def _kept(self, start: int, stop: int, tokens: int) -> _Step:
        """A binding that gives the logits of every token, made once for its rows and number of tokens."""
        step = self._steps.get((start, stop, tokens))
        if step is None:
            step = self._steps[start, stop, tokens] = self._bind(start, stop, tokens, wanted=tokens)
            step.logits_at[:] = np.arange(tokens)
        return step

    def _bind(self, start: int, stop: int, tokens: int, wanted: int = 1) -> _Step:
        rows = stop - start
        step = _Step(
            binding=self._session.bind(),
            looked_up=np.zeros((rows, tokens, self.hidden), self._table.dtype),
            embeddings=np.zeros((rows, tokens, self.hidden), np.float32),
            lengths=np.zeros(rows, np.int32),
            longest=np.zeros((), np.int32),
            logits_at=np.zeros(wanted, np.int64),
            positions=np.zeros((3, rows, tokens), np.int32),
            logits=np.zeros((rows, wanted, self.vocabulary), np.float32),
        )
        step.binding.input("inputs_embeds", step.embeddings)
        step.binding.input("lengths", step.lengths)
        step.binding.input("capacity_used", step.longest)
        step.binding.input("logits_at", step.logits_at)
        if self.takes_positions:
            step.binding.input("positions", step.positions)
        step.binding.output("logits", step.logits)
        for place, cache in enumerate(self.pool.rows(start, stop)):
            name = f"{place // 2}.{('key', 'value')[place % 2]}"
            step.binding.input(f"past_key_values.{name}", cache)
            step.binding.output(f"present.{name}", cache)
        return step
