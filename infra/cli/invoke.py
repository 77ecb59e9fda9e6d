"""`omnibus invoke`: one function, alone, in this process."""

from __future__ import annotations

import json
import mimetypes
from pathlib import Path
from typing import Any

import click

from bus.errors import InvalidInputError
from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from functions.registry import load_functions, registry
from infra.cli.connect import run
from infra.cli.publish import read_json
from infra.cli.table import print_table
from infra.settings import load_settings


@click.command()
@click.argument("function")
@click.argument("inputs", default="{}")
@click.option("--media", "media", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A file for the function's list of media; several are fine.")  # fmt: skip
@click.option("--schema", is_flag=True, help="Print the contracts instead of running it.")
def invoke(function: str, inputs: str, media: tuple[Path, ...], schema: bool) -> None:
    """Run FUNCTION once, without a bus; INPUTS is JSON, `@file` or `-`."""
    settings = load_settings()
    spec = load_functions(settings.modules).get(function)
    if schema:
        contracts = {"inputs": spec.inputs.model_json_schema(), "outputs": spec.outputs.model_json_schema()}
        click.echo(json.dumps(contracts, indent=2))
        return
    outputs = run(_invoke(function, read_json(inputs), media, settings.models))
    click.echo(json.dumps(outputs, indent=2, ensure_ascii=False, default=_plain))


@click.command()
def functions() -> None:
    """List the functions."""
    known = load_functions(load_settings().modules)
    print_table(
        ("FUNCTION", "GROUP", "SLOTS", "TIMEOUT", "CACHED", "STREAMS", "MODELS"),
        [
            (
                spec.name,
                spec.group,
                str(spec.slots),
                f"{spec.timeout_s:g} s",
                "yes" if spec.cacheable else "",
                "yes" if spec.streams else "",
                ", ".join(spec.models),
            )
            for spec in known
        ],
    )


async def _invoke(name: str, inputs: dict[str, Any], media: tuple[Path, ...], models: Path | None) -> dict[str, Any]:
    async with FunctionEnvironment(models) as environment:
        if media:
            inputs = {**inputs, **await _with_media(environment, name, media)}
        outputs = await environment.run(name, inputs)
    for chunk in environment.chunks:
        click.echo(chunk.text, nl=False, err=True)
    return outputs


async def _with_media(environment: FunctionEnvironment, name: str, paths: tuple[Path, ...]) -> dict[str, Any]:
    fields = registry.get(name).inputs.model_fields
    field = next((field for field in ("media", "images", "clips", "videos") if field in fields), None)
    if field is None:
        raise InvalidInputError(f"{name} takes no media; its inputs are {', '.join(fields)}")
    items: list[dict[str, Any]] = []
    for part, path in enumerate(paths):
        media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        ref = (await save_media(environment.store, path.read_bytes(), media_type, path.name)).model_dump()
        items.append({"ref": ref} if field == "media" else {"part": part, "ref": ref})
    return {field: items}


def _plain(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)
