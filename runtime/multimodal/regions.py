"""What each token of a picture sees, as shares of the picture."""

from __future__ import annotations

import numpy as np

from runtime.multimodal.prepared import Floats

WHOLE = (0.0, 0.0, 1.0, 1.0)
"""All of a picture: left, top, right, bottom."""


def grid_regions(rows: int, columns: int, box: tuple[float, float, float, float] = WHOLE) -> Floats:
    """Regions of tokens that share a part of a picture evenly, row by row.

    Args:
        rows: Rows of tokens.
        columns: Columns of tokens.
        box: The part: left, top, right, bottom.

    Returns:
        float32 `(rows · columns, 4)`, within 0 and 1: a part may reach beyond the picture.
    """
    left, top, right, bottom = box
    across = np.linspace(left, right, columns + 1)
    down = np.linspace(top, bottom, rows + 1)
    lefts, tops = np.meshgrid(across[:-1], down[:-1])
    rights, bottoms = np.meshgrid(across[1:], down[1:])
    regions = np.stack([lefts, tops, rights, bottoms], axis=-1).reshape(-1, 4)
    return regions.clip(0, 1).astype(np.float32)
