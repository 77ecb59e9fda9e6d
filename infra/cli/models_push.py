"""`omnibus models push`: an installed model into an object store, for hosts that have none."""

from __future__ import annotations

import click

from infra.cli.model_progress import bars
from infra.settings import load_settings


@click.command()
@click.argument("name")
@click.argument("place", required=False)
def push(name: str, place: str | None) -> None:
    """Put the installed model NAME into the object store PLACE, such as s3://bucket/prefix.

    Without PLACE it is the one of OMNIBUS_MODELS_FROM. Its keys are OMNIBUS_STORE_ACCESS_KEY and
    OMNIBUS_STORE_SECRET_KEY, and options such as ?endpoint=http://host:9000 those of OMNIBUS_STORE_URL, if not given.
    """
    from infra.model_store import model_store, open_repository
    from runtime.repository.published import publish

    settings = load_settings()
    with bars() as on_step, model_store(settings, place) as store:
        if store is None:
            raise click.UsageError("give a PLACE, such as s3://bucket/prefix, or set OMNIBUS_MODELS_FROM")
        store.ensure()
        published = publish(open_repository(settings), name, store, on_step)
        click.echo(f"{published.ref} is in {store.config.bucket}")
