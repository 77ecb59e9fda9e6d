"""`omnibus trace`: what happened to a request, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from bus.contracts import Span
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from infra.cli.connect import open_bus, run


@click.command()
@click.argument("request")
def trace(request: str) -> None:
    """Show the stages of a request of the last 24 hours."""
    print_trace(run(_spans(request)))


def print_trace(spans: Sequence[Span]) -> None:
    """A table of stages in the order in which they ended, with the time each waited and ran."""
    table = Table(box=None, pad_edge=False)
    for title in ("STAGE", "FUNCTION", "STATUS", "START ms", "QUEUE ms", "RUN ms", "WORKER", "TRY", "CACHE", "NOTES"):
        table.add_column(title, justify="right" if title.endswith("ms") else "left", no_wrap=title != "NOTES")
    first_s = min((span.queued_s for span in spans), default=0.0)
    for span in spans:
        table.add_row(
            span.stage,
            span.function,
            span.status,
            f"{(span.started_s - first_s) * 1e3:.1f}",
            f"{max(0.0, span.started_s - span.queued_s) * 1e3:.1f}",
            f"{(span.finished_s - span.started_s) * 1e3:.1f}",
            span.worker,
            str(span.attempt),
            span.cache.value,
            ", ".join(f"{name}={_short(value)}" for name, value in span.details.items()),
        )
    Console().print(table)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:80]


async def _spans(request: str) -> list[Span]:
    async with open_bus() as bus:
        return await PipelineClient(bus, Pipelines(())).trace(request)
