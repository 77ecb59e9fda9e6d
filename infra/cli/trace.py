"""`omnibus trace`: what happened to a request, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bus.contracts import Span
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from infra.cli.connect import open_bus, run
from infra.cli.table import print_table


@click.command()
@click.argument("request")
def trace(request: str) -> None:
    """Show the stages of a request of the last 24 hours."""
    print_trace(run(_spans(request)))


def print_trace(spans: Sequence[Span]) -> None:
    """A table of stages in the order in which they started, with the time each waited and ran."""
    first_s = min((span.queued_s for span in spans), default=0.0)
    print_table(
        ("STAGE", "FUNCTION", "STATUS", "START ms", "QUEUE ms", "RUN ms", "WORKER", "TRY", "CACHE", "NOTES"),
        [
            (
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
            for span in sorted(spans, key=lambda span: span.started_s)
        ],
    )


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:80]


async def _spans(request: str) -> list[Span]:
    async with open_bus() as bus:
        return await PipelineClient(bus, Pipelines(())).trace(request)
