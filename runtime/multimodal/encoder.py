"""The encoders of a multimodal model, run for the media of all requests together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from bus.contracts import ModelManifest
from bus.errors import EngineError
from runtime.batching.batcher import Batcher
from runtime.engines.onnx import OnnxSession
from runtime.multimodal.family import MultimodalFamily
from runtime.multimodal.known import family_of
from runtime.multimodal.prepared import Floats, Prepared
from runtime.multimodal.tile_runs import run_tiles

_MOST_PIECES = 16
_MOST_VALUES = 1 << 23
"""Input values of a run: what is more takes as long one after the other, and more memory."""


class MediaEncoder:
    """Encodes media; pieces of about the same size that come at the same time share a run.

    A graph is opened when the first piece is encoded by it: a request whose media are all known needs none.

    Args:
        folder: The model's folder.
        manifest: Its manifest.
        threads: See `OnnxSession`.
        device: See `OnnxSession`.

    Attributes:
        family: The model's family.
        ref: `id@version` of the model.

    Raises:
        ModelUnsupportedError: A model that takes text alone, or of a family that is not served here.
    """

    def __init__(self, folder: Path, manifest: ModelManifest, *, threads: int = 0, device: str = "auto") -> None:
        self.family: MultimodalFamily = family_of(manifest)
        self.ref = manifest.ref
        self._folder, self._threads, self._device = folder, threads, device
        self._sessions: dict[str, OnnxSession] = {}
        self._opening = Lock()
        self._batcher: Batcher[Prepared, Floats] = Batcher(self._run, _limit)

    async def encode(
        self, pieces: Sequence[Prepared], *, tenant: str = "", cancelled: Callable[[], bool] = lambda: False
    ) -> list[Floats]:
        """Embeddings of each piece, float32 `(token, dim)`.

        Args:
            pieces: What the model's family prepared.
            tenant: Whose they are.
            cancelled: Asked before a piece is encoded.

        Raises:
            CancelledRequestError: Nobody waits any more.
            ModelCorruptError: A graph that is missing or damaged.
            EngineError: A run failed, or gave another number of tokens than was prepared for.
        """
        items = [((piece.modality, size_class(piece)), piece) for piece in pieces]
        return await self._batcher.submit(items, tenant=tenant, cancelled=cancelled)

    def close(self) -> None:
        """End its thread."""
        self._batcher.close()

    def _run(self, pieces: Sequence[Prepared]) -> list[Floats]:
        modality = pieces[0].modality
        session = self._session(self.family.encoders[modality])
        outputs = run_tiles(session, self.family.pack(modality, [piece.inputs for piece in pieces]))
        found = self.family.unpack(modality, outputs, pieces)
        for piece, embeddings in zip(pieces, found, strict=True):
            if len(embeddings) != piece.tokens:
                raise EngineError(
                    f"the {modality} encoder of {self.ref} gave {len(embeddings)} tokens where {piece.tokens} were "
                    "prepared for; build the model again"
                )
        return found

    def _session(self, file: str) -> OnnxSession:
        with self._opening:
            if file not in self._sessions:
                # Pieces are of very different sizes: what a large one took would be held for good.
                self._sessions[file] = OnnxSession(
                    self._folder / file, threads=self._threads, device=self._device, shrink=True
                )
            return self._sessions[file]


def size_class(piece: Prepared) -> int:
    """Twice as many input values are the next class; pieces of one class run together."""
    return max(1, sum(array.size for array in piece.inputs.values())).bit_length()


def _limit(bucket: object) -> int:
    assert isinstance(bucket, tuple)
    return max(1, min(_MOST_PIECES, _MOST_VALUES >> int(bucket[1])))
