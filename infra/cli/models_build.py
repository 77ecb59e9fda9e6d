"""`omnibus models build`: a model of one's own, out of a Hugging Face folder or a GGUF file."""

from __future__ import annotations

import click

from infra.cli.model_progress import bars
from infra.settings import load_settings


@click.command()
@click.argument("place")
@click.option("--id", "name", help="What the model is to be called; as its folder is, if not given.")
@click.option("--quantize", default="q8", show_default=True, help="How matrices are kept: float32, q8 or q4.")
@click.option("--context", default=4096, show_default=True, type=click.IntRange(2), help="Most tokens of a row.")
@click.option("--license", "licence", help="SPDX id, where the folder does not say.")
@click.option("--exact-pixels", is_flag=True, help="Make pictures from whole photos; slower, and nearly the same.")
def build(place: str, name: str | None, quantize: str, context: int, licence: str | None, exact_pixels: bool) -> None:
    """Build PLACE, a Hugging Face folder, a .gguf file or hf://org/repo[@revision], and install it."""
    from infra.model_store import open_repository
    from runtime.export.hugging_face import BuildOptions, build_model

    options = BuildOptions(
        id=name, quantisation=quantize, context_tokens=context, license=licence, exact_pixels=exact_pixels
    )
    repository = open_repository(load_settings())
    with bars() as on_step:
        built = build_model(place, repository, options, on_step)
    click.echo(f"{built.ref} is ready in {repository.folder(built)}")
