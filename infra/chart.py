"""Lines in a frame, as a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_SCALE = 2
_WIDTH, _HEIGHT = 720 * _SCALE, 420 * _SCALE
_LEFT, _TOP, _RIGHT, _BOTTOM = 70 * _SCALE, 40 * _SCALE, 130 * _SCALE, 56 * _SCALE
_COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#8d6a9f", "#edae49", "#555555")
_GRID, _INK = "#dddddd", "#222222"

Points = Sequence[tuple[float, float]]


def draw_chart(path: Path, title: str, across: str, up: str, lines: Mapping[str, Points]) -> None:
    """Write a chart whose axes begin at 0.

    Args:
        path: Where to; a PNG.
        title: Above it.
        across: What the axis from left to right says.
        up: What the axis from bottom to top says.
        lines: Points of each line, by its name; at least one.
    """
    picture = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    pen = ImageDraw.Draw(picture)
    font, large = ImageFont.load_default(12 * _SCALE), ImageFont.load_default(15 * _SCALE)
    right, top = (max(point[axis] for points in lines.values() for point in points) or 1.0 for axis in (0, 1))

    def place(x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + x / right * width, _TOP + (1 - y / top) * height

    pen.text((_LEFT, 8 * _SCALE), title, _INK, large)
    pen.text((_LEFT, _HEIGHT - 22 * _SCALE), across, _INK, font)
    pen.text((_LEFT, _TOP - 16 * _SCALE), up, _INK, font)
    for index in range(5):
        x, y = right * index / 4, top * index / 4
        pen.line((*place(0, y), *place(right, y)), _GRID, _SCALE)
        pen.text((_LEFT - 8 * _SCALE, place(0, y)[1]), f"{y:.3g}", _INK, font, anchor="rm")
        pen.text((place(x, 0)[0], _HEIGHT - _BOTTOM + 6 * _SCALE), f"{x:.3g}", _INK, font, anchor="ma")
    for index, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        places = [place(*point) for point in points]
        pen.line(places, colour, 2 * _SCALE, joint="curve")
        for x, y in places:
            pen.ellipse((x - 4 * _SCALE, y - 4 * _SCALE, x + 4 * _SCALE, y + 4 * _SCALE), colour)
        pen.text((_WIDTH - _RIGHT + 14 * _SCALE, _TOP + 20 * _SCALE * index), name, colour, font)
    picture.save(path, "PNG")
