"""The contracts of native multimodal models: media on their way from the store to token blocks."""

from __future__ import annotations

from pydantic import Field

from bus.contracts import Contract, FramePiece, Modality, ModelManifest, TensorRef, TokenBlock
from functions.stages.parts import MediaOptions

NATIVE_MODEL = "native"
"""What the setups of these stages resolve: no model is the default, each request names one."""

INLINE_NBYTES = 4096
"""Below this many bytes a tensor of a piece rides along: tens of pieces travel in one message."""

_PARAMETERS = "multimodal"


def is_native(manifest: ModelManifest) -> bool:
    """Whether a model takes media itself, by encoders of its own."""
    return _PARAMETERS in manifest.parameters


class PreparedMedia(Contract):
    """One piece of media as its encoder takes it, or the block that an earlier request had of it."""

    part: int = Field(ge=0)
    modality: Modality = Field(description="`audio` for the sound track of a video, too.")
    source: str = Field(description="Digest of the media.")
    options: MediaOptions
    key: str = Field(description="What its block is remembered by.")
    block: TokenBlock | None = Field(default=None, description="Known already: nothing is left to be done.")
    inputs: dict[str, TensorRef] = Field(default_factory=dict, description="By the encoder graph's inputs.")
    frame: tuple[FramePiece, ...] = ()
    positions: TensorRef | None = Field(default=None, description="int32 (3, token), from 0.")
    regions: TensorRef | None = Field(default=None, description="float32 (token, 4), shares of the picture.")
    grid: tuple[int, int, int] = (1, 1, 1)
    seconds_per_step: float | None = None
    start_s: float | None = None
    complexity: float = Field(default=1.0, ge=0, le=1)

    @property
    def tokens(self) -> int:
        """How many tokens it becomes; fewer where its encoder's output is compressed."""
        if self.block is None:
            return sum(piece.slots for piece in self.frame)
        return 0 if self.block.embeddings is None else self.block.embeddings.shape[0]
