from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageColor

from infra.chart import draw_chart


def test_a_point_is_where_its_values_are(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    draw_chart(path, "title", "across", "up", {"line": [(0.0, 0.0), (10.0, 0.0)], "other": [(5.0, 4.0)]})
    with Image.open(path) as picture:
        blue = [
            (x, y)
            for x in range(picture.width)
            for y in range(picture.height // 3, picture.height)
            if picture.getpixel((x, y)) == ImageColor.getrgb("#1b6ca8")
        ]
    lowest, left, right = max(y for _, y in blue), min(x for x, _ in blue), max(x for x, _ in blue)
    assert all(abs(y - lowest) < 20 for _, y in blue)  # a level line at the bottom
    assert right - left > picture.width / 2
