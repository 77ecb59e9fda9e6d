"""The reference's language model behind embeddings that were merged already."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

Floats = NDArray[np.float32]


def embedded(model: PreTrainedModel, language_model: torch.nn.Module, **given: Any) -> torch.Tensor:
    """What the reference gives to its language model for a prompt with media, float32 `(token, hidden)`.

    Args:
        model: A multimodal model.
        language_model: The part of it that takes `inputs_embeds`.
        given: Its inputs.
    """
    caught: list[torch.Tensor] = []

    def catch(module: torch.nn.Module, positional: Any, named: dict[str, Any]) -> None:
        caught.append(named["inputs_embeds"])

    hook = language_model.register_forward_pre_hook(catch, with_kwargs=True)
    try:
        with torch.inference_mode():
            model(**given, use_cache=False)
    finally:
        hook.remove()
    return caught[0][0]


def logits(model: PreTrainedModel, embedded: torch.Tensor, positions: torch.Tensor | None = None) -> Floats:
    """Logits of every token, float32 `(token, vocabulary)`.

    Args:
        model: A multimodal model that takes `inputs_embeds`.
        embedded: float32 `(token, hidden)`.
        positions: int64 `(3, token)`, for a model that takes positions of three axes.
    """
    placed = {} if positions is None else {"position_ids": positions[:, None]}
    with torch.inference_mode():
        found: Floats = model(inputs_embeds=embedded[None], use_cache=False, **placed).logits[0].numpy()
    return found


def greedy(
    model: PreTrainedModel, embedded: torch.Tensor, count: int, positions: torch.Tensor | None = None
) -> list[int]:
    """The likeliest continuation, each token from a pass over all before it."""
    table = model.get_input_embeddings()
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(int(logits(model, embedded, positions)[-1].argmax()))
        with torch.inference_mode():
            embedded = torch.cat([embedded, table(torch.tensor(tokens[-1:]))])
        if positions is not None:
            positions = torch.cat([positions, positions.max().expand(3, 1) + 1], dim=1)
    return tokens
