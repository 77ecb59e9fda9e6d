"""Connected regions of a mask, and the smallest rectangles around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


def regions(mask: NDArray[np.bool_]) -> Iterator[Points]:
    """The connected regions of a mask (8 neighbours), each as the ends of its rows.

    Args:
        mask: bool (height, width).

    Yields:
        float64 (point, 2): x and y of the first and last pixel of every row of a region.
    """
    rows, starts, ends = _runs(mask)
    labels = _joined(rows, starts, ends)
    order = np.argsort(labels, kind="stable")
    borders = np.flatnonzero(np.diff(labels[order])) + 1
    for members in np.split(order, borders) if len(order) else ():
        yield np.concatenate(
            [np.stack([starts[members], rows[members]], 1), np.stack([ends[members], rows[members]], 1)]
        ).astype(np.float64)


def _runs(mask: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Row, first and last column of every run of set pixels, row by row."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    return rows, starts, ends - 1


def _joined(rows: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """A label for each run; runs that touch, also at a corner, share one."""
    parents = list(range(len(rows)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    first = np.searchsorted(rows, np.arange(rows[-1] + 2)) if len(rows) else np.zeros(1, int)
    for row in range(1, len(first) - 1):
        above, below = first[row - 1], first[row]
        while above < first[row] and below < first[row + 1]:
            if starts[below] <= ends[above] + 1 and starts[above] <= ends[below] + 1:
                parents[root(int(below))] = root(int(above))
            if ends[above] < ends[below]:
                above += 1
            else:
                below += 1
    return np.array([root(index) for index in range(len(parents))], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle at any angle.

    Attributes:
        centre: x, y.
        width: Along `angle`.
        height: Across it.
        angle: In radians, from the x axis towards the y axis (clockwise on a screen), within ±45°.
    """

    centre: tuple[float, float]
    width: float
    height: float
    angle: float

    def grown(self, distance: float) -> Rectangle:
        """The same rectangle with its sides moved out by a distance."""
        return Rectangle(self.centre, self.width + 2 * distance, self.height + 2 * distance, self.angle)

    def corners(self) -> Points:
        """float64 (4, 2): top left, top right, bottom right, bottom left."""
        along = np.array([np.cos(self.angle), np.sin(self.angle)]) * self.width / 2
        across = np.array([-np.sin(self.angle), np.cos(self.angle)]) * self.height / 2
        centre = np.array(self.centre)
        return np.stack(
            [centre - along - across, centre + along - across, centre + along + across, centre - along + across]
        )


def smallest_rectangle(points: Points) -> Rectangle:
    """The rectangle of least area around points.

    Source:
        Freeman & Shapira 1975: one of its sides lies on an edge of the convex hull.
    """
    hull = _hull(points)
    edges = np.diff(np.vstack([hull, hull[:1]]), axis=0) if len(hull) > 1 else np.array([[1.0, 0.0]])
    angles = np.unique(np.mod(np.arctan2(edges[:, 1], edges[:, 0]) + np.pi / 4, np.pi / 2) - np.pi / 4)
    along = np.stack([np.cos(angles), np.sin(angles)])
    across = np.stack([-np.sin(angles), np.cos(angles)])
    u, v = hull @ along, hull @ across
    best = int(np.argmin((u.max(0) - u.min(0)) * (v.max(0) - v.min(0))))
    middle_u, middle_v = (u[:, best].max() + u[:, best].min()) / 2, (v[:, best].max() + v[:, best].min()) / 2
    centre = along[:, best] * middle_u + across[:, best] * middle_v
    return Rectangle(
        (float(centre[0]), float(centre[1])),
        float(np.ptp(u[:, best])),
        float(np.ptp(v[:, best])),
        float(angles[best]),
    )


def _hull(points: Points) -> Points:
    """Convex hull, in order (Andrew 1979)."""
    ordered = np.unique(points, axis=0)
    if len(ordered) < 3:
        return ordered
    halves = [_chain(ordered), _chain(ordered[::-1])]
    return np.array([*halves[0][:-1], *halves[1][:-1]])


def _chain(points: Points) -> list[Points]:
    chain: list[Points] = []
    for point in points:
        while len(chain) > 1:
            (ax, ay), (bx, by) = chain[-1] - chain[-2], point - chain[-2]
            if ax * by - ay * bx > 0:
                break
            chain.pop()
        chain.append(point)
    return chain
