"""The size that a picture of any shape gets: whole tokens, within a budget of pixels, its shape kept as well as can be.

Source: `smart_resize` of Qwen's qwen-vl-utils.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bus.errors import LimitExceededError

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class PixelBudget:
    """How many pixels a picture may have.

    Attributes:
        fewest: A smaller picture is made larger.
        most: A larger one is made smaller.
    """

    fewest: int
    most: int

    def within(self, pixels: int) -> PixelBudget:
        """The same with no more than some pixels."""
        if pixels >= self.most:
            return self
        return replace(self, fewest=min(self.fewest, pixels), most=pixels)


def smart_size(width: int, height: int, token: int, budget: PixelBudget) -> tuple[int, int]:
    """Width and height in pixels, multiples of a token's.

    Args:
        width: Of the picture, in pixels.
        height: Of the picture, in pixels.
        token: Rows and columns of pixels in a token.
        budget: How many pixels it may have.

    Raises:
        LimitExceededError: A picture that is far longer than it is wide.
    """
    longer, shorter = max(width, height), min(width, height)
    if longer > _LONGEST * shorter:
        raise LimitExceededError(
            f"the picture is {width} × {height} pixels; the model takes pictures at most {_LONGEST} times as long as "
            "they are wide: cut it",
            width=width,
            height=height,
            max_ratio=_LONGEST,
        )
    area, most = height * width, budget.most // token**2
    rows, columns = round(height / token), round(width / token)
    if rows * columns < budget.fewest / token**2:
        grow = math.sqrt(budget.fewest / area)
        rows, columns = (math.ceil(side * grow / token) for side in (height, width))
    if rows * columns > budget.most / token**2:
        shrink = math.sqrt(area / budget.most)
        rows, columns = (max(1, math.floor(side / shrink / token)) for side in (height, width))
        # Where the shorter side cannot shrink any further.
        rows, columns = min(rows, max(1, most // columns)), min(columns, max(1, most // rows))
    return columns * token, rows * token
