"""The weights of a decoder: what the graph calls them, and what shape each must have."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.graphs.decoder.shape import DecoderShape


@dataclass(frozen=True, slots=True)
class Part:
    """A weight of a layer or of the whole model.

    Attributes:
        pieces: Rows of each matrix that is packed into it; of a norm, its width.
        inputs: Columns; None: it is a vector.
        bias: Whether a bias goes with it.
        is_norm: Whether it is a norm's weight.
    """

    pieces: tuple[int, ...]
    inputs: int | None = None
    bias: bool = False
    is_norm: bool = False

    def shapes(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tensors that it is stored in.

        Args:
            count: How many tensors: one for each piece, or a single one.
        """
        rows = self.pieces if count == len(self.pieces) else (sum(self.pieces),)
        return tuple((row,) if self.inputs is None else (row, self.inputs) for row in rows)


def block_parts(shape: DecoderShape) -> dict[str, Part]:
    """The weights of one layer by name."""
    hidden, wide = shape.hidden, shape.feed_forward
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    parts = {
        "attention_norm": _norm(shape, hidden),
        "qkv": Part((queries, keys, keys), hidden, shape.qkv_bias),
        "o": Part((hidden,), queries, shape.out_bias),
        "gate_up": Part((wide, wide) if shape.gated else (wide,), hidden, shape.feed_forward_bias),
        "down": Part((hidden,), wide, shape.feed_forward_bias),
    }
    if not shape.parallel:
        parts["feed_forward_norm"] = _norm(shape, hidden)
    if shape.qk_norm:
        parts |= {"q_norm": _norm(shape, shape.head_dim), "k_norm": _norm(shape, shape.head_dim)}
    if shape.post_norms:
        parts |= {"post_attention_norm": _norm(shape, hidden), "post_feed_forward_norm": _norm(shape, hidden)}
    return parts


def model_parts(shape: DecoderShape) -> dict[str, Part]:
    """The weights outside the layers by name; a tied head is not among them."""
    table = Part((shape.vocabulary,), shape.hidden)
    parts = {"embeddings": table, "norm": _norm(shape, shape.hidden)}
    return parts if shape.tied else parts | {"head": Part(table.pieces, table.inputs, shape.head_bias)}


def _norm(shape: DecoderShape, width: int) -> Part:
    return Part((width,), bias=shape.layer_norms, is_norm=True)
