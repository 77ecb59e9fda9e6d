"""The models of a machine as they were meant at one moment."""

from __future__ import annotations

from collections.abc import Mapping

from bus.contracts import ModelManifest
from runtime.repository.repository import Repository


class FixedNames(Repository):
    """A repository in which some names mean what they meant once, whatever the deployer calls so meanwhile.

    Args:
        repository: Where the models are.
        meant: Manifests by the names that stood for them.
    """

    def __init__(self, repository: Repository, meant: Mapping[str, ModelManifest]) -> None:
        super().__init__(repository.root, downloads=repository.downloads, catalog=repository.catalog)
        self._meant = dict(meant)

    def resolve(self, name: str) -> ModelManifest:
        """As for any repository, with the fixed names first."""
        return self._meant.get(name) or super().resolve(name)
