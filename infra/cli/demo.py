"""`omnibus demo`: the whole idea in one command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from bus.errors import StackConfigError
from infra.cli.ask import chat_body, fetch_trace, stream_answer
from infra.cli.connect import checked, log_to_stderr, open_gateway, run
from infra.cli.models import pull_set
from infra.cli.trace import print_trace
from infra.cli.workers import warn_of_failures
from infra.local.folder import find_stack
from infra.local.nats_server import free_port
from infra.local.stack import Stack, check_port
from infra.settings import Settings, load_settings
from runtime.repository import Repository

QUESTION = "What is in this picture?"


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("demo"), show_default=True,
              help="Folder for the question and the spoken answer.")  # fmt: skip
def demo(out: Path) -> None:
    """Ask a spoken question about a photo and get a streamed and a spoken answer, with the trace of every stage.

    Pulls and builds the models the first time, and starts the stack unless one is running.
    """
    started = time.monotonic()
    log_to_stderr("WARNING")
    settings = load_settings()
    pull_set("demo", settings)
    out.mkdir(parents=True, exist_ok=True)
    run(_demo(settings, out))
    click.secho(f"\ndone in {time.monotonic() - started:.1f} s", bold=True)
    click.echo(
        "next:  make up            serve until Ctrl-C, docs at http://127.0.0.1:8000/docs\n"
        '       omnibus ask "What is in this picture?" --image photo.jpg --speak answer.wav'
    )


async def _demo(settings: Settings, out: Path) -> None:
    async with _running(settings) as used:
        await asyncio.to_thread(_conversation, used, out)


@asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[Settings]:
    """The stack that runs already, or one for the time of the demo; on another port when ours is taken."""
    if find_stack(settings.data) is not None:
        yield settings
        return
    try:
        check_port(settings.host, settings.port)
    except StackConfigError:
        settings = settings.model_copy(update={"port": free_port()})
    _say(f"starting nats-server, {sum(settings.worker_counts.values())} workers and the gateway")
    started = time.monotonic()
    async with Stack(settings) as stack:
        leases = await stack.wait_until_ready()
        _say(f"{len(leases)} workers ready after {time.monotonic() - started:.1f} s at {stack.info.gateway_url}")
        warn_of_failures(leases)
        yield settings


def _conversation(settings: Settings, out: Path) -> None:
    repository = Repository(settings.models)
    photo = repository.file(repository.resolve("cat-photo"), "chelsea.png")
    question, answer = out / "question.wav", out / "answer.wav"
    with open_gateway(settings) as gateway:
        speech = {"model": "tts", "input": QUESTION, "voice": "af_heart", "response_format": "wav"}
        question.write_bytes(checked(gateway.post("/v1/audio/speech", json=speech)).content)
        _say(f"photo {photo.name}, spoken question {question} ({QUESTION!r}, said by our own text-to-speech)")
        body = chat_body("", [photo], [question], [], max_tokens=64)
        body |= {"modalities": ["text", "audio"], "audio": {"voice": "am_michael", "format": "wav"}}
        click.secho("answer: ", fg="green", bold=True, nl=False)
        request = stream_answer(gateway, body, answer)
        with open(answer, "rb") as media:
            form = {"model": "asr", "response_format": "text"}
            heard = checked(gateway.post("/v1/audio/transcriptions", data=form, files={"file": media})).text.strip()
        _say(f"what our own speech recognition hears in {answer}: {heard!r}")
        click.echo(f"\nrequest {request}, stage by stage:")
        print_trace(fetch_trace(gateway, request))


def _say(line: str) -> None:
    click.secho(f"· {line}", fg="cyan")
