"""`omnibus simulate`: what policies of the warm pool come to, without a cluster."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import click

from infra.cli.table import print_table
from warmpool.simulate.comparison import BASELINE, CURVES, TABLE, TRACES, Entry, compare, make_trace
from warmpool.simulate.report import Report
from warmpool.simulate.trace import share_workers

_GB_HOUR = 1e9 * 3600.0


@click.command()
@click.option("--trace", "kind", type=click.Choice(TRACES), default="azure", show_default=True, help="What arrives.")
@click.option("--functions", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many functions.")
@click.option("--hours", type=click.FloatRange(0.1, 24 * 14), default=24.0, show_default=True, help="How long.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed, the same result.")
@click.option("--slots", type=click.IntRange(1), default=None, help="Requests that a worker runs at once.")
@click.option("--sharing", type=click.IntRange(1), default=1, show_default=True, help="Functions that share workers.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Draw curves; a PNG.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def simulate(
    kind: str,
    functions: int,
    hours: float,
    seed: int,
    slots: int | None,
    sharing: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare policies of the warm pool on simulated arrivals.

    `azure` has the shape of Azure Functions' production load, as it was published; `poisson`, `bursts` and `diurnal`
    are what their names say. COLD is the share of requests that met a cold start, by function for the function at that
    quartile; MEMORY is what workers held without work, and its share of what a fixed keep-alive of ten minutes holds.
    """
    if plot is not None and not plot.absolute().parent.is_dir():  # before minutes of work are lost
        raise click.BadParameter(
            f"folder {plot.parent} of {plot.name} is not there; make it first", param_hint="--plot"
        )
    trace = make_trace(kind, functions=functions, duration_s=hours * 3600.0, seed=seed, slots=slots)
    trace = trace if sharing == 1 else share_workers(trace, sharing)
    results = compare(trace, tuple(dict.fromkeys((*TABLE, *(CURVES if plot else ())))))
    if plot is not None:
        _draw(plot, kind, results)
    shown = {entry: results[entry] for entry in TABLE}
    if as_json:
        click.echo(
            json.dumps([_figures(entry, report, results[BASELINE]) for entry, report in shown.items()], indent=2)
        )
        return
    click.echo(f"{kind}: {len(trace.times_s)} requests for {functions} functions in {hours:g} h, seed {seed}")
    print_table(
        ("POLICY", "COLD", "QUARTILES OF FUNCTIONS", "WAIT p50 ms", "p95 ms", "p99 ms", "MEMORY", "STARTS"),
        [_row(_figures(entry, report, results[BASELINE])) for entry, report in shown.items()],
    )
    if plot is not None:
        click.echo(f"curves: {plot}")


class _Figures(TypedDict):
    policy: str
    requests: int
    cold_rate: float
    cold_to_baseline: float
    cold_rate_quartiles: list[float]
    wait_ms: list[float]
    wasted_gb_hours: float
    wasted_to_baseline: float
    starts: int


def _figures(entry: Entry, report: Report, baseline: Report) -> _Figures:
    return {
        "policy": entry.name,
        "requests": len(report.cold),
        "cold_rate": report.cold_rate,
        "cold_to_baseline": report.cold_rate / baseline.cold_rate if baseline.cold_rate else 1.0,
        "cold_rate_quartiles": [report.cold_rate_of(percentile) for percentile in (25, 50, 75)],
        "wait_ms": [report.wait_ms(percentile) for percentile in (50, 95, 99)],
        "wasted_gb_hours": report.wasted / _GB_HOUR,
        "wasted_to_baseline": report.wasted / baseline.wasted if baseline.wasted else 1.0,
        "starts": report.starts,
    }


def _row(figures: _Figures) -> tuple[str, ...]:
    return (
        figures["policy"],
        f"{figures['cold_rate']:.3%} (×{figures['cold_to_baseline']:.2f})",
        " / ".join(f"{one:.1%}" for one in figures["cold_rate_quartiles"]),
        *(f"{one:.0f}" for one in figures["wait_ms"]),
        f"{figures['wasted_gb_hours']:.1f} GB h (×{figures['wasted_to_baseline']:.3f})",
        str(figures["starts"]),
    )


def _draw(path: Path, kind: str, results: Mapping[Entry, Report]) -> None:
    from infra.chart import draw_chart  # the imaging library is not for those who want a table

    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for entry in CURVES:
        report = results[entry]
        lines[entry.policy].append((report.wasted / _GB_HOUR, 100 * report.cold_rate))
    draw_chart(path, f"Cold starts by memory: {kind}", "memory that waits, GB h", "cold starts, %", lines)
