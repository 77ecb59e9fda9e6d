"""How many tokens a piece of media may have: what the request asks for, and what there is to see in it."""

from __future__ import annotations

import math

from runtime.multimodal.family import Detail

_LEAST_SHARE = {"low": 0.25}
"""Of its tokens, what a piece keeps in which there is nothing to see, where its level lets tokens be merged at all."""


def tokens_to_keep(tokens: int, complexity: float, detail: Detail) -> int:
    """How many tokens a piece keeps.

    `high` and `auto` keep what the model's reference would, as long as that is within the budget; `low` keeps a quarter
    of a blank piece, all of one that is full of detail, and in between what the complexity says.

    Args:
        tokens: What its encoder gives.
        complexity: From 0 to 1, see `runtime.multimodal.complexity`.
        detail: What the request asks for.
    """
    least = _LEAST_SHARE.get(detail.level, 1.0)
    share = least + (1.0 - least) * min(max(complexity, 0.0), 1.0)
    wanted = math.ceil(tokens * share)
    return max(1, wanted if detail.max_tokens is None else min(wanted, detail.max_tokens))
