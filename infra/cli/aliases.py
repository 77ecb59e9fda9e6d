"""`omnibus models alias`: which version a name means, changed while it is served."""

from __future__ import annotations

import click

from infra.cli.table import print_table
from infra.settings import load_settings
from runtime.repository import Repository


@click.command()
@click.argument("name", required=False)
@click.argument("target", required=False)
@click.option("--remove", is_flag=True, help="Let the name mean what it meant before.")
def alias(name: str | None, target: str | None, remove: bool) -> None:
    """Let NAME stand for TARGET, an id or id@version; workers switch without a failed request.

    Without arguments, list the aliases. NAME may be the id of a model, to hold one of its versions or to put another
    model that does the same in its place.
    """
    from functions.registry import load_functions
    from functions.substitutes import check_substitute

    settings = load_settings()
    repository = Repository(settings.models)
    if name is None:
        print_table(("ALIAS", "STANDS FOR"), sorted(repository.aliases.read().items()))
        return
    if (target is None) != remove:
        raise click.UsageError("give a TARGET or --remove")
    if target is not None:
        check_substitute(load_functions(settings.modules), repository, name, repository.own(target))
    found = repository.alias(name, target)
    click.echo(f"{name} stands for nothing of its own any more" if found is None else f"{name}: {found.ref}")
