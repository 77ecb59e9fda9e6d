"""Which row of a trained table of positions a row of patches has, by its share of the picture.

Source: Dehghani et al., Patch n' Pack (2023), section 3.1, as in Idefics2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def shares(count: int, trained: int) -> NDArray[np.int64]:
    """The trained row of each of some rows, int64 `(count,)`; the same for columns.

    All in float32, as the reference has it: shares that fall on a border go to the side that its rounding puts them on.

    Args:
        count: Rows of patches that a picture has.
        trained: Rows that the table was trained on.
    """
    borders = np.arange(1 / trained, 1.0, 1 / trained).astype(np.float32)
    steps = np.arange(count, dtype=np.float32) * (np.float32(1) / np.float32(count))
    places: NDArray[np.int64] = np.searchsorted(borders, np.minimum(steps, np.float32(1 - 1e-6)), side="right")
    return places
