"""Reference models: small ones with random weights, made, run and saved by transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.utils import logging

# The cores are shared with the engine under test; advice about tokens that a small vocabulary lacks is of no use here.
torch.set_num_threads(1)
logging.set_verbosity_error()  # type: ignore[no-untyped-call]
logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def randomise(model: PreTrainedModel, *, seed: int = 0, offset: float = 0.0, table: float = 1.0) -> None:
    """Weights of such sizes that every part of a model matters, and that its likeliest token is clear.

    Args:
        model: Any model.
        seed: Of the random numbers.
        offset: What the model itself adds to the weights of its norms.
        table: Size of the embeddings; where they are the head too, large ones make every token follow itself.
    """
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3, generator=random)
            elif parameter.ndim == 1:
                parameter.uniform_(0.5 - offset, 1.5 - offset, generator=random)
            elif "position" in name:
                parameter.normal_(0, 1, generator=random)
            elif "embed" in name and parameter.ndim == 2:
                parameter.normal_(0, table, generator=random)
            else:
                size = 3 if "head" in name else 1.5
                parameter.normal_(0, size / parameter[0].numel() ** 0.5, generator=random)


def save(model: PreTrainedModel, folder: Path, shard: str = "5GB") -> Path:
    """Save a model as it is found on a hub, in files of at most a size."""
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def logits(model: PreTrainedModel, ids: list[int]) -> NDArray[np.float32]:
    """Logits of every token, float32 `(token, vocabulary)`, without any cache."""
    with torch.inference_mode():
        found = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    array: NDArray[np.float32] = found.numpy()
    return array


def greedy(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    """The likeliest continuation, each token from a pass over all before it."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(logits(model, ids)[-1].argmax()))
    return ids[len(prompt) :]
