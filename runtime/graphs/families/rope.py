"""Rotary positions as a configuration gives them, in its newer form or the older one.

Newer: `rope_parameters` with everything. Older: `rope_theta` and `partial_rotary_factor` beside a `rope_scaling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bus.errors import ModelCorruptError
from runtime.graphs.decoder import rotary
from runtime.graphs.decoder.rotary import Frequencies
from runtime.graphs.decoder.shape import Rotary
from runtime.graphs.families.config import ModelConfig, chosen

_THETA = 10000.0
_LONGEST = 2**24


def rope(config: ModelConfig, head_dim: int) -> Rotary:
    """The way of turning that all layers of a model share.

    Raises:
        ModelUnsupportedError: A kind of scaling that is not known.
        ModelCorruptError: Values that are missing or do not fit.
    """
    given = config.inner("rope_parameters") or config.inner("rope_scaling") or ModelConfig({}, config.context)
    return rope_of(config, given, head_dim)


def rope_of(config: ModelConfig, given: ModelConfig, head_dim: int, default_theta: float = _THETA) -> Rotary:
    """One way of turning.

    Args:
        config: The whole configuration, which older models keep base and fraction in.
        given: The part that is about positions.
        head_dim: Width of a head.
        default_theta: The base, where none is given.

    Raises:
        ModelUnsupportedError: A kind of scaling that is not known.
        ModelCorruptError: Values that are missing or do not fit.
    """
    base = given.number("rope_theta", config.number("rope_theta", default_theta))
    fraction = given.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0, most=1), most=1)
    stretch = chosen("rope_type", given.get("rope_type", given.get("type", "default")), _SCALINGS)
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            scaled, gain = stretch(rotary.plain(base, int(head_dim * fraction)), config, given)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ModelCorruptError(f"config.json describes positions that cannot be computed: {error}") from error
    return Rotary(tuple(scaled.tolist()), gain, _axes(given, len(scaled)))


def trained_context(config: ModelConfig) -> int:
    """Tokens that a row may have: all of the model's, or those that its unstretched positions reach.

    Raises:
        ModelCorruptError: The length is not given.
    """
    longest = config.size("max_position_embeddings", most=_LONGEST)
    if config.context is None:
        given = config.inner("rope_parameters") or config.inner("rope_scaling")
        if given is not None and given.get("rope_type", given.get("type")) in ("longrope", "su"):
            return min(longest, _trained(config, given))
        return longest
    return min(longest, config.context)


def _axes(given: ModelConfig, count: int) -> tuple[int, ...]:
    """The axis of each frequency, by sections: so many of time, of height, of width."""
    sections = given.get("mrope_section")
    if sections is None:
        return ()
    if not isinstance(sections, list) or len(sections) != 3 or not all(type(size) is int for size in sections):
        raise given.wrong("mrope_section", "three whole numbers")
    if min(sections) < 0 or sum(sections) != count:
        raise given.wrong("mrope_section", f"sections of {count} frequencies in all")
    if not given.flag("mrope_interleaved"):
        return tuple(axis for axis, size in enumerate(sections) for _ in range(size))
    # In turns, for as long as height and width have some left; the slowest are all of time.
    return tuple(place % 3 if place % 3 and place < 3 * sections[place % 3] else 0 for place in range(sum(sections)))


def _trained(config: ModelConfig, given: ModelConfig) -> int:
    """The context before it was stretched; some families keep it beside the scaling."""
    beside = config.get("original_max_position_embeddings", config.size("max_position_embeddings"))
    return given.size("original_max_position_embeddings", beside)


Scaled = tuple[Frequencies, float]


def _default(frequencies: Frequencies, config: ModelConfig, given: ModelConfig) -> Scaled:
    return frequencies, 1.0


def _linear(frequencies: Frequencies, config: ModelConfig, given: ModelConfig) -> Scaled:
    return frequencies / given.number("factor"), 1.0


def _llama3(frequencies: Frequencies, config: ModelConfig, given: ModelConfig) -> Scaled:
    return rotary.llama3(
        frequencies,
        factor=given.number("factor"),
        low_freq_factor=given.number("low_freq_factor"),
        high_freq_factor=given.number("high_freq_factor"),
        trained=_trained(config, given),
    ), 1.0


def _yarn(frequencies: Frequencies, config: ModelConfig, given: ModelConfig) -> Scaled:
    given.refuse("mscale", "mscale_all_dim")
    factor = given.number("factor")
    stretched = rotary.yarn(
        frequencies,
        theta=given.number("rope_theta", config.number("rope_theta", _THETA)),
        factor=factor,
        fast=given.number("beta_fast", 32.0),
        slow=given.number("beta_slow", 1.0),
        trained=_trained(config, given),
        whole=given.flag("truncate", True),
    )
    return stretched, given.number("attention_factor", 0.1 * math.log(max(factor, 1.0)) + 1.0)


def _longrope(frequencies: Frequencies, config: ModelConfig, given: ModelConfig) -> Scaled:
    """Factors of its own for each frequency, one set for short texts and one for long.

    A row's cache holds keys that were turned already, so a row cannot change its set when it grows: what is served
    decides. Source: Ding et al., LongRoPE (2024), section 3.
    """
    trained = _trained(config, given)
    name = "short_factor" if trained_context(config) <= trained else "long_factor"
    factors = given.get(name)
    if not isinstance(factors, list) or len(factors) != len(frequencies):
        raise ModelCorruptError(f"config.json gives {name} as {factors!r}, not as {len(frequencies)} numbers")
    growth = given.number("factor", config.size("max_position_embeddings") / trained)
    gain = 1.0 if growth <= 1 else math.sqrt(1 + math.log(growth) / math.log(trained))
    return frequencies / np.asarray(factors, np.float64), given.number("attention_factor", gain)


_SCALINGS: dict[str, Callable[[Frequencies, ModelConfig, ModelConfig], Scaled]] = {
    "default": _default,
    "mrope": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}
