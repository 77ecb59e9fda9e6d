"""The tokenizer of an installed chat model, read once for all functions of a process."""

from __future__ import annotations

from bus.contracts import ModelManifest
from runtime.engines.identity import content_digest
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Repository
from runtime.residency.shared import SharedModels

_shared: SharedModels[ChatTokenizer] = SharedModels()


def installed_tokenizer(repository: Repository, manifest: ModelManifest) -> ChatTokenizer:
    """A model's tokenizer, which whoever reads its prompts and whoever writes its answers have in common.

    Raises:
        ModelCorruptError: Damaged.
    """
    folder = repository.folder(manifest)
    return _shared.get((folder, content_digest(manifest)), lambda: ChatTokenizer(folder))
