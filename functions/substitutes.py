"""Whether a model can do what another one does, so that a name may stand for it."""

from __future__ import annotations

from collections.abc import Iterable

from bus.contracts import ModelManifest
from bus.errors import ModelNotFoundError, ModelUnsupportedError
from functions.spec import FunctionSpec
from runtime.repository import Repository


def check_substitute(specs: Iterable[FunctionSpec], repository: Repository, name: str, target: ModelManifest) -> None:
    """Refuse a name for a model that the functions which know the name cannot serve.

    A name that means nothing by itself may stand for any model.

    Args:
        specs: The functions.
        repository: Where models are.
        name: What the deployer wants to call the model.
        target: The model.

    Raises:
        ModelUnsupportedError: It is of another kind; names the function that needs the one that the name means.
    """
    own = repository.canonical(name).partition("@")[0]
    try:
        meant = repository.own(name)
    except ModelNotFoundError:
        meant = None
    family = meant.family if meant is not None else _family(repository, own)
    for spec in specs:
        choice, models = spec.choice, {repository.canonical(one) for one in spec.models}
        if choice is None:
            serves = own not in models or target.family == family
        else:
            known = own in models or (meant is not None and choice.serves(meant))
            serves = not known or choice.serves(target)
        if not serves:
            came, goes = (", ".join(kinds) or "nothing" for kinds in (target.modalities_in, target.modalities_out))
            raise ModelUnsupportedError(
                f"{name!r} cannot stand for {target.ref}, a {target.family} model from {came} to {goes}: {spec.name} "
                f"needs one that does what {own} does; choose another model, or a name of your own",
                model=target.ref,
                function=spec.name,
            )


def _family(repository: Repository, model: str) -> str | None:
    """What the catalog says of a model that is not installed; None: it does not know it."""
    return next((entry.family for entry in repository.catalog if entry.id == model), None)
