"""The unified encoding of one piece of input: tokens in the language model's space, with positions."""

from __future__ import annotations

from pydantic import Field, model_validator

from bus.contracts.base import Contract
from bus.contracts.media import Modality
from bus.contracts.tensor import TensorRef


class FramePiece(Contract):
    """A piece of how a block stands in a prompt: words of the model's own markup, or places for embeddings.

    Positions count on from piece to piece; a piece of words may go back, so that two marks share one.
    """

    text: str = Field(default="", description="Markup in the model's own control tokens.")
    slots: int = Field(default=0, ge=0, description="How many of the block's embeddings stand here.")
    back: int = Field(default=0, ge=0, description="How many positions before the next free one the words begin.")
    once: bool = Field(default=False, description="Whether the words are left out where they stand just before.")
    apart: bool = Field(default=False, description="Whether a space is put behind the words before any other letter.")

    @model_validator(mode="after")
    def _one_of_two(self) -> FramePiece:
        if bool(self.text) == bool(self.slots):
            raise ValueError("a piece of a frame has text or slots, exactly one of them")
        if self.slots and (self.back or self.once or self.apart):
            raise ValueError("the positions of embeddings are in the block; only words go back, or stand once or apart")
        return self


class TokenBlock(Contract):
    """One image, clip, video or piece of text as the language model takes it.

    A block has embeddings, or text that the language model's own tokenizer and embedding table turn
    into the one-dimensional case; an encoder that answers natively gives embeddings and positions.
    """

    schema_name = "omnibus.token_block"
    schema_version = 1

    modality: Modality
    embeddings: TensorRef | None = Field(default=None, description="float16 or float32 (token, dim).")
    positions: TensorRef | None = Field(
        default=None, description="int32 (3, token): time, height, width, from 0 within the block."
    )
    text: str | None = Field(default=None, description="What the block says, when it stands for text.")
    grid: tuple[int, int, int] = Field(default=(1, 1, 1), description="Time steps, rows, columns.")
    seconds_per_step: float | None = Field(default=None, description="Seconds between two time steps.")
    start_s: float | None = Field(default=None, description="Where the block begins on the media's clock.")
    encoder: str = Field(description="Encoder id and version, `id@version`.")
    composition: str | None = Field(
        default=None, description="Name of the composition that stands in for a native encoder, if one does."
    )
    compression: float = Field(default=1.0, gt=0, description="Tokens before compression / tokens after.")
    source: str = Field(description="Digest of the media that the block came from.")
    frame: tuple[FramePiece, ...] = Field(
        default=(), description="How its embeddings stand in the prompt, with markup between them; empty: in a row."
    )
    regions: TensorRef | None = Field(
        default=None,
        description="float32 (token, 4): left, top, right, bottom of what each token sees, as shares of the picture.",
    )
    complexity: float | None = Field(
        default=None, ge=0, le=1, description="How much there is to see or hear, where compression followed it."
    )

    @model_validator(mode="after")
    def _consistent(self) -> TokenBlock:
        if self.embeddings is None:
            if self.text is None:
                raise ValueError("a token block has embeddings or text")
            if self.positions is not None:
                raise ValueError("positions belong to embeddings; a text block has none")
            return self
        if len(self.embeddings.shape) != 2 or self.embeddings.dtype not in ("float16", "float32"):
            raise ValueError(
                f"embeddings are float16 or float32 (token, dim), not {self.embeddings.dtype} {self.embeddings.shape}"
            )
        tokens = self.embeddings.shape[0]
        if self.positions is not None and (self.positions.dtype, self.positions.shape) != ("int32", (3, tokens)):
            raise ValueError(f"positions are int32 (3, {tokens}), not {self.positions.dtype} {self.positions.shape}")
        if self.frame and sum(piece.slots for piece in self.frame) != tokens:
            raise ValueError(f"the frame has {sum(piece.slots for piece in self.frame)} slots for {tokens} embeddings")
        return self
