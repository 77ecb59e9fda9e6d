"""Maps of features made smaller."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.multimodal.prepared import Floats


def bilinear(features: Floats, rows: int, columns: int) -> Floats:
    """Features between the four neighbours of each new place; nothing is averaged over what lies further away.

    Args:
        features: float32 `(..., row, column, dim)`.
        rows: How many there are to be.
        columns: How many there are to be.

    Returns:
        float32 `(..., rows, columns, dim)`.

    Source: `interpolate` of torch with `mode="bilinear"`, whose corners are not aligned.
    """
    low, high, share = _between(features.shape[-3], rows)
    weight = share[:, None, None]
    features = features[..., low, :, :] * (1 - weight) + features[..., high, :, :] * weight
    low, high, share = _between(features.shape[-2], columns)
    weight = share[:, None]
    smaller: Floats = features[..., low, :] * (1 - weight) + features[..., high, :] * weight
    return smaller


def _between(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Both neighbours of each new place, and the share of the second."""
    places = np.maximum((np.arange(new) + 0.5) * (old / new) - 0.5, 0)
    low = np.minimum(places.astype(np.int64), old - 1)
    return low, np.minimum(low + 1, old - 1), (places - low).astype(np.float32)
