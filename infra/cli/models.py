"""`omnibus models`: what can be pulled, what is here, whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import click

from bus.contracts import ModelManifest
from bus.errors import ModelNotFoundError
from infra.cli.aliases import alias
from infra.cli.model_progress import bars
from infra.cli.models_build import build
from infra.cli.models_push import push
from infra.cli.table import print_table
from infra.settings import Settings, load_settings
from runtime.repository import Repository


@click.group()
def models() -> None:
    """Pull, build, publish, list, check and remove models."""


models.add_command(alias)
models.add_command(build)
models.add_command(push)


@models.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Make them again though they are there.")
@click.option("--from", "place", help="Object store to look in first, such as s3://bucket/prefix; see `push`.")
def pull(names: tuple[str, ...], force: bool, place: str | None) -> None:
    """Fetch and build models or sets, such as `demo`."""
    from infra.model_store import model_store, open_repository, pull_models

    settings = load_settings()
    repository = open_repository(settings)
    with bars() as on_step, model_store(settings, place) as store:
        pulled = {one.ref: one for name in names for one in pull_models(repository, name, store, on_step, force=force)}
    click.echo(f"{len(pulled)} ready in {repository.root}: {', '.join(sorted(pulled))}")


@models.command()
def ls() -> None:
    """List what is installed, every version of it, and what the catalog offers."""
    titles = ("MODEL", "VERSION", "NAMES", "SETS", "LICENCE", "SIZE MB", "MEMORY MB", "SUMMARY")
    print_table(titles, _rows(Repository()))


def _rows(repository: Repository) -> Iterator[tuple[str, ...]]:
    installed = repository.list()
    names = _names(repository)
    for entry in repository.catalog:
        versions = [one for one in installed if one.id == entry.id]
        sets = ", ".join(entry.sets)
        if not versions:
            names_here = ", ".join(entry.aliases)
            yield entry.id, entry.version, names_here, sets, entry.license, "not pulled", "", entry.summary
        for one in versions:
            known = ", ".join(names.get(one.ref, ()))
            yield one.id, one.version, known, sets, one.license, _size(one), _memory(one), entry.summary
    known_ids = {entry.id for entry in repository.catalog}
    for one in installed:
        if one.id not in known_ids:
            known = ", ".join(names.get(one.ref, ()))
            yield one.id, one.version, known, "", one.license, _size(one), _memory(one), "not in the catalog"


def _names(repository: Repository) -> dict[str, list[str]]:
    """What each installed version is called besides its id: the catalog's and its own aliases, and the deployer's."""
    wanted = {alias for entry in repository.catalog for alias in entry.aliases}
    wanted |= {alias for one in repository.list() for alias in one.aliases} | set(repository.aliases.read())
    names: dict[str, list[str]] = {}
    for name in sorted(wanted):
        with suppress(ModelNotFoundError):
            names.setdefault(repository.resolve(name).ref, []).append(name)
    return names


@models.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the manifest of an installed model."""
    click.echo(Repository().resolve(name).model_dump_json(indent=2, exclude_defaults=True))


@models.command()
@click.argument("names", nargs=-1, required=True)
def rm(names: tuple[str, ...]) -> None:
    """Remove installed models; their downloads stay."""
    repository = Repository()
    for name in names:
        click.echo(f"removed {repository.remove(name).ref}")


@models.command()
@click.argument("names", nargs=-1)
@click.option("--repair", is_flag=True, help="Make damaged models again.")
def verify(names: tuple[str, ...], repair: bool) -> None:
    """Check every file against its digest; all installed models if none is named."""
    repository = Repository()
    damaged = 0
    for name in names or tuple(one.ref for one in repository.list()):
        problems = repository.verify(name)
        click.echo(f"{name}: {'; '.join(problems) or 'ok'}")
        if problems and repair:
            with bars() as on_step:
                click.echo(f"{repository.repair(name, on_step).ref}: repaired")
        elif problems:
            damaged += 1
    if damaged:
        raise click.ClickException(f"{damaged} damaged; run again with --repair")


def pull_set(name: str, settings: Settings) -> None:
    """Pull a model or a set with progress bars; what is here already costs nothing."""
    from infra.model_store import model_store, open_repository, pull_models

    with bars() as on_step, model_store(settings) as store:
        pull_models(open_repository(settings), name, store, on_step)


def _memory(manifest: ModelManifest) -> str:
    return "" if manifest.memory_nbytes is None else f"{manifest.memory_nbytes / 1e6:.0f}"


def _size(manifest: ModelManifest) -> str:
    return f"{sum(file.nbytes for file in manifest.files) / 1e6:.1f}"
