"""`omnibus publish`: start a pipeline with an event, from the shell."""

from __future__ import annotations

import json
import sys

import click

from bus.contracts import Lane, Request, Result
from bus.errors import InvalidInputError
from functions.client import PipelineClient, new_request_id
from functions.flow.catalog import Pipelines
from functions.running import outputs_of
from infra.cli.connect import open_bus, run


@click.command()
@click.argument("pipeline")
@click.argument("inputs", default="-")
@click.option("--request", "request_id", help="Id of the request; publishing it twice runs it once.")
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), default=Lane.STANDARD.value)
@click.option("--wait/--no-wait", default=True, help="Wait for the result and print it.")
def publish(pipeline: str, inputs: str, request_id: str | None, lane: str, wait: bool) -> None:
    """Publish a request; INPUTS is JSON, `@file`, or `-` for standard input."""
    request = Request(
        request=request_id or new_request_id(), pipeline=pipeline, inputs=read_json(inputs), lane=Lane(lane)
    )
    run(_publish(request, wait))


def read_json(text: str) -> dict[str, object]:
    """A JSON object given as text, `@file` or `-`.

    Raises:
        InvalidInputError: It is none.
    """
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            with open(text[1:], encoding="utf-8") as file:
                text = file.read()
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the inputs are a JSON object, @file or -: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"the inputs are a JSON object, not a {type(value).__name__}")
    return value


async def _publish(request: Request, wait: bool) -> None:
    async with open_bus() as bus:
        client = PipelineClient(bus, Pipelines(()))
        if not wait:
            await client.publish_request(request)
            click.echo(request.request)
            return
        result = await _follow(client, request)
    click.echo(json.dumps(outputs_of(result), indent=2, ensure_ascii=False))


async def _follow(client: PipelineClient, request: Request) -> Result:
    async with client.follow(request) as running:
        async for chunk in running.chunks():
            click.echo(chunk.text, nl=False, err=True)
        return await running.result()
