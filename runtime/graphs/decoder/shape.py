"""What a decoder looks like: the one description that every family is mapped to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bus.errors import ModelCorruptError, ModelUnsupportedError

_LANES = 8
_FURTHEST = 32768  # as many rows have the tables of angles, which every token reads a few of


class Activation(StrEnum):
    """The feed-forward's nonlinearity."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class Rotary:
    """How queries and keys are turned by a token's position.

    Attributes:
        frequencies: Radians a position, for each pair of dimensions; fewer than half of a head's: the rest is not
            turned.
        gain: What cosine and sine are multiplied by.
        axes: The axis of the position (0 time, 1 height, 2 width) that each frequency turns by; empty: a token's place
            in its row.
    """

    frequencies: tuple[float, ...]
    gain: float = 1.0
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """One layer.

    Attributes:
        rotary: Positions of its attention; None: it has none.
        window: Tokens that one sees, itself included; None: all before it.
    """

    rotary: Rotary | None
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """Sizes and choices of a decoder.

    Attributes:
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        feed_forward: Width inside the feed-forward.
        vocabulary: Rows of the output head.
        context: The most tokens a row may have.
        blocks: The layers.
        norm_epsilon: Of all norms.
        activation: Of the feed-forward.
        layer_norms: LayerNorm with biases instead of RMSNorm.
        norm_offset: Added to every norm's weight: Gemma stores them less one.
        gated: The feed-forward has a gate beside its way up.
        parallel: Attention and feed-forward read the same norm, and their sum is added once.
        qk_norm: Every head's query and key is normed before it is turned.
        post_norms: What attention and feed-forward give is normed before it is added.
        qkv_bias: Biases of the query, key and value projections.
        out_bias: Bias of attention's output projection.
        feed_forward_bias: Biases of the feed-forward.
        head_bias: Bias of the output head.
        attention_scale: What scores are multiplied by; None: one by the root of `head_dim`.
        attention_softcap: Limit that scores approach; 0: none.
        logit_softcap: Limit that logits approach; 0: none.
        embedding_scale: What rows of the embedding table are multiplied by.
        tied: The output head is the embedding table.
        longest: The positions that the model was trained on; where they have three axes, those of films run ahead of
            their tokens.

    Raises:
        ModelCorruptError: Sizes that do not fit together.
        ModelUnsupportedError: Sizes that the attention operator does not take.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context: int
    blocks: tuple[Block, ...]
    norm_epsilon: float
    activation: Activation = Activation.SILU
    layer_norms: bool = False
    norm_offset: float = 0.0
    gated: bool = True
    parallel: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    feed_forward_bias: bool = False
    head_bias: bool = False
    attention_scale: float | None = None
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    tied: bool = False
    longest: int = 0

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ModelCorruptError(f"{self.heads} heads cannot share {self.kv_heads} key and value heads evenly")
        if self.head_dim % _LANES:
            raise ModelUnsupportedError(f"heads of {self.head_dim} dimensions are not built here; multiples of 8 are")
        for rotary in self.rotaries:
            turned = 2 * len(rotary.frequencies)
            if turned > self.head_dim:
                raise ModelCorruptError(f"{turned} dimensions are turned of a head that has {self.head_dim}")
            if turned % (2 * _LANES) and not rotary.axes:
                raise ModelUnsupportedError(
                    f"positions that turn {turned} dimensions of a head are not built here; multiples of 16 are"
                )
            if rotary.axes and not 2 * len(rotary.axes) == turned == self.head_dim:
                raise ModelCorruptError(
                    f"sections of {len(rotary.axes)} frequencies are given, a head of {self.head_dim} has "
                    f"{self.head_dim // 2}"
                )

    @property
    def layers(self) -> int:
        """How many layers."""
        return len(self.blocks)

    @property
    def rotaries(self) -> tuple[Rotary, ...]:
        """Each way of turning that some layer uses, once."""
        return tuple(dict.fromkeys(block.rotary for block in self.blocks if block.rotary is not None))

    @property
    def takes_positions(self) -> bool:
        """Whether positions of three axes are an input of the graph."""
        return any(rotary.axes for rotary in self.rotaries)

    @property
    def positions(self) -> int:
        """How many positions the graph knows, from 0."""
        return max(self.context, min(self.longest, _FURTHEST)) if self.takes_positions else self.context

    @property
    def dims(self) -> dict[str, int]:
        """What a manifest says of it."""
        return {
            "layers": self.layers,
            "hidden": self.hidden,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocabulary": self.vocabulary,
            "context": self.context,
            "positions": self.positions,
        }
