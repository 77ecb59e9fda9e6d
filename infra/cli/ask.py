"""`omnibus ask`: one multimodal question over HTTP, answered as a stream."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import httpx

from bus.contracts import Span
from bus.errors import InvalidInputError
from infra.cli.connect import checked, open_gateway
from infra.cli.trace import print_trace

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("question", default="")
@click.option("--image", "images", multiple=True, type=_FILE, help="A picture; several are fine.")
@click.option("--audio", "audio", multiple=True, type=_FILE, help="A recording; several are fine.")
@click.option("--video", "videos", multiple=True, type=_FILE, help="A film; several are fine.")
@click.option("--model", default="chat", show_default=True, help="Any chat model that is installed.")
@click.option(
    "--detail", type=click.Choice(["low", "high", "auto"]), help="How closely pictures and films are looked at."
)
@click.option("--read", is_flag=True, help="Read the text on the pictures, too.")
@click.option("--speak", type=click.Path(dir_okay=False, path_type=Path), help="File for the spoken answer.")
@click.option("--voice", default="af_heart", show_default=True, help="Voice of the spoken answer.")
@click.option("--max-tokens", default=128, show_default=True, help="The most tokens of the answer.")
@click.option("--trace/--no-trace", "with_trace", default=True, help="Print what each stage took.")
def ask(
    question: str,
    images: Sequence[Path],
    audio: Sequence[Path],
    videos: Sequence[Path],
    model: str,
    detail: str | None,
    read: bool,
    speak: Path | None,
    voice: str,
    max_tokens: int,
    with_trace: bool,
) -> None:
    """Ask about text, pictures, recordings and films: QUESTION may be empty when a recording asks it."""
    body = chat_body(question, images, audio, videos, max_tokens, detail=detail, read=read) | {"model": model}
    if speak is not None:
        body |= {"modalities": ["text", "audio"], "audio": {"voice": voice, "format": audio_format(speak)}}
    with open_gateway() as gateway:
        request = stream_answer(gateway, body, speak)
        if with_trace:
            print_trace(fetch_trace(gateway, request))


def chat_body(
    question: str,
    images: Sequence[Path],
    audio: Sequence[Path],
    videos: Sequence[Path],
    max_tokens: int,
    *,
    detail: str | None = None,
    read: bool = False,
) -> dict[str, Any]:
    """A chat completion request with the files inside, as OpenAI's API takes them."""
    look: dict[str, Any] = {} if detail is None else {"detail": detail}
    ocr: dict[str, Any] = {"ocr": True} if read else {}
    parts: list[dict[str, Any]] = []
    parts += [{"type": "image_url", "image_url": {"url": _data_url(path), **look, **ocr}} for path in images]
    parts += [{"type": "video_url", "video_url": {"url": _data_url(path), **look}} for path in videos]
    parts += [
        {"type": "input_audio", "input_audio": {"data": _base64(path), "format": path.suffix.lstrip(".") or "wav"}}
        for path in audio
    ]
    if question:
        parts.append({"type": "text", "text": question})
    if not parts:
        raise InvalidInputError("there is nothing to ask: give a QUESTION, --image, --audio or --video")
    return {
        "model": "chat",
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": max_tokens,
        "stream": True,
    }


def stream_answer(gateway: httpx.Client, body: dict[str, Any], speak: Path | None) -> str:
    """Print the answer while it is made and save what is spoken; returns the request's id."""
    spoken = bytearray()
    with gateway.stream("POST", "/v1/chat/completions", json=body) as response:
        checked(response)
        for chunk in _events(response):
            for choice in chunk.get("choices", []):
                delta = choice.get("delta", {})
                click.echo(delta.get("content") or "", nl=False)
                spoken += base64.b64decode((delta.get("audio") or {}).get("data") or "")
        click.echo()
        request: str = response.headers["x-request-id"]
    if speak is not None:
        speak.write_bytes(spoken)
        click.echo(f"spoken answer: {speak} ({len(spoken)} bytes)")
    return request


def fetch_trace(gateway: httpx.Client, request: str) -> list[Span]:
    """The spans of a request."""
    spans = checked(gateway.get(f"/v1/requests/{request}/trace")).json()["spans"]
    return [Span.model_validate(span) for span in spans]


def audio_format(path: Path) -> str:
    """The format that a file name asks for.

    Raises:
        InvalidInputError: None that can be spoken.
    """
    formats = ("wav", "mp3", "opus", "flac", "pcm")
    wanted = path.suffix.lstrip(".").lower()
    if wanted not in formats:
        raise InvalidInputError(f"{path}: speech is written as {', '.join(formats)}, not as {wanted or 'nothing'!r}")
    return wanted


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line[len("data: ") :])
        if "error" in event:
            checked(httpx.Response(500, json=event, headers=response.headers))
        yield event


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _data_url(path: Path) -> str:
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{media_type};base64,{_base64(path)}"
