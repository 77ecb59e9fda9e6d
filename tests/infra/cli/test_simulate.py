"""`omnibus simulate`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from PIL import Image

from infra.cli.simulate import simulate

SMALL = ["--trace", "bursts", "--functions", "3", "--hours", "2"]


def test_the_table_has_every_policy_and_says_what_was_replayed() -> None:
    told = CliRunner().invoke(simulate, SMALL, catch_exceptions=False).output
    assert told.startswith("bursts: ")
    assert [line.split("  ")[0] for line in told.splitlines()[2:]] == [
        "fixed 10 min", "histogram 60 min", "histogram 240 min", "ours 10 min",
    ]  # fmt: skip


def test_figures_are_for_other_programs_too_and_the_same_for_a_seed() -> None:
    first, second = (
        json.loads(CliRunner().invoke(simulate, [*SMALL, "--json"], catch_exceptions=False).output) for _ in "ab"
    )
    assert first == second
    assert first[0]["policy"] == "fixed 10 min"
    assert first[0]["cold_to_baseline"] == first[0]["wasted_to_baseline"] == 1.0
    assert len({figures["requests"] for figures in first}) == 1


def test_curves_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    CliRunner().invoke(simulate, [*SMALL, "--plot", str(path)], catch_exceptions=False)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert len(picture.convert("RGB").getcolors(1 << 16) or ()) > 3


def test_a_trace_in_which_nothing_comes_has_no_cold_starts_and_no_waits() -> None:
    rare = ["--trace", "diurnal", "--functions", "1", "--hours", "0.1", "--seed", "2", "--json"]
    figures = json.loads(CliRunner().invoke(simulate, rare, catch_exceptions=False).output)
    assert {one["requests"] for one in figures} == {0}
    assert all(one["wait_ms"] == one["cold_rate_quartiles"] == [0.0] * 3 for one in figures)


def test_a_folder_that_is_not_there_is_told_before_anything_is_replayed(tmp_path: Path) -> None:
    told = CliRunner().invoke(simulate, [*SMALL, "--plot", str(tmp_path / "none" / "curves.png")])
    assert told.exit_code == 2
    assert "is not there; make it first" in " ".join(told.output.split())
    assert "POLICY" not in told.output
