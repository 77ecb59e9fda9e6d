"""How long a prompt and its answer may be."""

from __future__ import annotations

from bus.contracts import ModelManifest


def context_tokens(manifest: ModelManifest) -> int:
    """The most tokens of a prompt and its answer together: what is served here, else what the model was trained on."""
    return int(manifest.limits.get("context_tokens", manifest.dims["context"]))
