"""`omnibus pipelines`: the graphs of functions."""

from __future__ import annotations

from pathlib import Path

import click

from functions.flow.catalog import BUILT_IN, Pipelines
from functions.flow.plan import END, REQUEST, Plan
from functions.registry import load_functions
from infra.cli.table import print_table
from infra.settings import load_settings


@click.group()
def pipelines() -> None:
    """List, show and draw pipelines."""


@pipelines.command()
def ls() -> None:
    """List the pipelines."""
    print_table(
        ("PIPELINE", "INPUTS", "PLAN", "STAGES", "DESCRIPTION"),
        [
            (
                plan.pipeline,
                ", ".join(name if required else f"{name}?" for name, required in plan.inputs.items()),
                plan.digest[:12],
                str(len(plan.stages) - 1),
                plan.description,
            )
            for plan in _load()
        ],
    )


@pipelines.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the file of a pipeline."""
    plan = _load().get(name)
    for folder in _folders():
        for path in folder.glob("*.yaml"):
            text = path.read_text(encoding="utf-8")
            if f"pipeline: {name}" in text:
                click.echo(f"# {path.name}, plan {plan.digest[:12]}\n{text}", nl=False)


@pipelines.command()
@click.argument("name")
def graph(name: str) -> None:
    """Print a pipeline as a mermaid graph."""
    click.echo(mermaid(_load().get(name)))


def mermaid(plan: Plan) -> str:
    """The plan as a mermaid flowchart."""
    lines = ["flowchart LR", f"  {REQUEST}([{REQUEST}])"]
    for stage in plan.stages:
        box = "([result])" if stage.name == END else f'["{stage.name}<br>{stage.function}"]'
        lines.append(f"  {stage.name}{box}")
        for upstream in stage.upstream or (REQUEST,):
            optional = all(
                source.optional
                for source in stage.inputs.values()
                if source.ref is not None and source.ref.split(".")[0] == upstream
            )
            lines.append(f"  {upstream} {'-.->' if optional else '-->'} {stage.name}")
    return "\n".join(lines)


def _folders() -> tuple[Path, ...]:
    return (BUILT_IN, *load_settings().pipeline_folders)


def _load() -> Pipelines:
    return Pipelines.load(load_functions(load_settings().modules), _folders())
