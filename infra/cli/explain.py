"""`omnibus explain`: which part of which media an answer needed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click

from infra.cli.connect import checked, open_gateway
from infra.cli.table import print_table

_SHOWN = 5


@click.command()
@click.argument("request")
@click.option(
    "--parts",
    default=4,
    show_default=True,
    type=click.IntRange(1, 16),
    help="Cells a side of a picture; stretches of a sound or a film.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for heat maps, one a piece.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")  # fmt: skip
def explain(request: str, parts: int, out: Path | None, as_json: bool) -> None:
    """Tell what the answer to REQUEST needed: a chat with media of which the result is still kept.

    The chat is asked again without each part of its media; how much less likely its answer is then, in nats, is what
    that part did for it.
    """
    with open_gateway() as gateway:
        body = {"parts": parts, "heat_maps": out is not None}
        explanation = checked(gateway.post(f"/v1/requests/{request}/explanation", json=body, timeout=None)).json()
    if out is not None:
        _save_heat_maps(explanation, out)
    if as_json:
        click.echo(json.dumps(explanation, indent=2, ensure_ascii=False))
        return
    click.echo(f"answer: {explanation['answer']}\nlog-probability: {explanation['nats']:.2f} nats")
    for modality, nats in sorted(explanation["modalities"].items(), key=lambda pair: -pair[1]):
        click.echo(f"  all {modality}: {nats:+.2f} nats")
    rows = [row for part in explanation["parts"] for row in _rows(part)]
    print_table(("MEDIA", "WHAT", "PLACE", "NATS"), rows)


def _save_heat_maps(explanation: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in explanation["parts"]:
        path = folder / f"{explanation['request']}-{part['part']}.png"
        path.write_bytes(base64.b64decode(part.pop("heat_map").partition(",")[2]))
        click.echo(f"heat map: {path}", err=True)


def _rows(part: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    strongest = sorted(part["places"], key=lambda place: -abs(place["nats"]))[:_SHOWN]
    whole = (str(part["part"]), part["modality"], "all of it", f"{part['nats']:+.2f}")
    return [whole, *(("", "", _place(place), f"{place['nats']:+.2f}") for place in strongest)]


def _place(place: dict[str, Any]) -> str:
    if place["span_s"] is not None:
        return f"{place['span_s'][0]:.1f}–{place['span_s'][1]:.1f} s"
    left, top, right, bottom = (round(100 * edge) for edge in place["box"])
    return f"{left}–{right} % across, {top}–{bottom} % down"
