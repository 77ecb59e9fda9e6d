"""`omnibus transcribe | speak | embed | ocr`: one pipeline each, over HTTP."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click

from infra.cli.ask import audio_format
from infra.cli.connect import checked, open_gateway

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--format", "shape", type=click.Choice(["text", "json", "verbose_json", "srt", "vtt"]), default="text")
@click.option("--language", help="Language spoken, such as en.  [default: found out]")
def transcribe(file: Path, shape: str, language: str | None) -> None:
    """Print what is said in FILE."""
    form = {"model": "asr", "response_format": shape} | ({"language": language} if language else {})
    with open_gateway() as gateway, open(file, "rb") as media:
        response = checked(gateway.post("/v1/audio/transcriptions", data=form, files={"file": (file.name, media)}))
    click.echo(response.text.rstrip("\n"))


@click.command()
@click.argument("text")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default="speech.wav", show_default=True)
@click.option("--voice", default="af_heart", show_default=True)
@click.option("--speed", default=1.0, show_default=True)
def speak(text: str, out: Path, voice: str, speed: float) -> None:
    """Speak TEXT into a file; its ending says the format."""
    body = {"model": "tts", "input": text, "voice": voice, "speed": speed, "response_format": audio_format(out)}
    with open_gateway() as gateway:
        out.write_bytes(checked(gateway.post("/v1/audio/speech", json=body)).content)
    click.echo(f"{out} ({out.stat().st_size} bytes)")


@click.command()
@click.argument("texts", nargs=-1, required=True)
def embed(texts: tuple[str, ...]) -> None:
    """Print one vector for each of TEXTS, a JSON list a line."""
    with open_gateway() as gateway:
        body = {"model": "embed", "input": list(texts), "encoding_format": "float"}
        data = checked(gateway.post("/v1/embeddings", json=body)).json()["data"]
    for item in data:
        click.echo(json.dumps(item["embedding"]))


@click.command()
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print lines with confidence and boxes.")
def ocr(file: Path, as_json: bool) -> None:
    """Print the text on the picture FILE."""
    body = {"media": [{"data": base64.b64encode(file.read_bytes()).decode(), "name": file.name}]}
    with open_gateway() as gateway:
        outputs: dict[str, Any] = checked(gateway.post("/v1/pipelines/ocr", json=body)).json()["outputs"]
    for page in outputs["pages"]:
        click.echo(json.dumps(page, ensure_ascii=False, indent=2) if as_json else page["text"])
