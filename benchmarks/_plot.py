"""Lines in a frame, as an SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 360, 60, 34, 150, 46
_COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#8d6a9f", "#edae49", "#555555")

Points = Sequence[tuple[float, float]]


def plot(path: Path, title: str, across: str, up: str, lines: Mapping[str, Points], top: float | None = None) -> None:
    """Write a chart.

    Args:
        path: Where to.
        title: Above it.
        across: What the axis from left to right says.
        up: What the axis from bottom to top says.
        lines: Points of each line, by its name.
        top: Upper end of the axis; None: the largest value.
    """
    every = [point for points in lines.values() for point in points]
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    top = max(y for _, y in every) if top is None else top

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - low) / ((high - low) or 1)
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + share * width, 1), round(_TOP + (1 - y / (top or 1)) * height, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{title}</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{across}</text>',
        f'<text x="14" y="{_HEIGHT - _BOTTOM}" transform="rotate(-90 14 {_HEIGHT - _BOTTOM})">{up}</text>',
    ]
    for index in range(5):
        x, y = low + (high - low) * index / 4, top * index / 4
        (column, bottom), (left, row) = place(x, 0), place(low, y)
        right = place(high, y)[0]
        parts.append(f'<line x1="{left}" y1="{row}" x2="{right}" y2="{row}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 6}" y="{row + 4}" text-anchor="end">{y:.3g}</text>')
        parts.append(f'<text x="{column}" y="{bottom + 16}" text-anchor="middle">{x:.3g}</text>')
    for index, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        drawn = " ".join(f"{x},{y}" for x, y in (place(*point) for point in points))
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in (place(*point) for point in points)]
        row = _TOP + 14 + 18 * index
        parts.append(f'<text x="{_WIDTH - _RIGHT + 10}" y="{row}" fill="{colour}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def bars(path: Path, title: str, values: Mapping[str, Mapping[str, float]], kinds: Sequence[str]) -> None:
    """Write a chart of horizontal bars on a logarithmic scale.

    Args:
        path: Where to.
        title: Above it.
        values: Bars by group and kind, above 0.
        kinds: In their order.
    """
    high = max(value for group in values.values() for value in group.values())
    low = min(value for group in values.values() for value in group.values())
    rows = sum(len(kinds) + 1 for _ in values)
    height, left, width = 60 + 16 * rows, 210, 360
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="14" y="22" font-size="14">{title} (logarithmic)</text>',
    ]
    row = 40
    for group, found in values.items():
        parts.append(f'<text x="14" y="{row + 10}" font-weight="bold">{group}</text>')
        for index, kind in enumerate(kinds):
            share = (math.log(found[kind]) - math.log(low / 2)) / (math.log(high) - math.log(low / 2))
            top = row + 16 * index
            parts.append(f'<text x="{left - 8}" y="{top + 10}" text-anchor="end">{kind}</text>')
            parts.append(
                f'<rect x="{left}" y="{top}" width="{share * width:.1f}" height="12" fill="{_COLOURS[index]}"/>'
                f'<text x="{left + share * width + 6:.1f}" y="{top + 10}">{found[kind]:.3g}</text>'
            )
        row += 16 * (len(kinds) + 1)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")
