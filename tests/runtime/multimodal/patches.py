"""Patches of pictures and films as Qwen's processors in transformers make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from runtime.graphs.encoders.pixels import Normalisation
from runtime.multimodal.prepared import Prepared

_CLIP = Normalisation(1 / 255, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


def patches_of(
    processor: Any, frames: Sequence[Image.Image], size: dict[str, int] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Patches and grid by the processor for pictures.

    That for films needs a package which is not here: of each pair of frames each one's own half is taken, of a picture
    both halves, and of a film's last frame, where it has no other beside it.

    Args:
        processor: `Qwen2VLImageProcessorPil`.
        frames: Of a film, or one picture.
        size: The fewest and the most pixels, where they are not the processor's own.
    """
    chosen = {} if size is None else {"size": size}
    found = [processor([frame], return_tensors="pt", **chosen) for frame in frames]
    halves = [one["pixel_values"].reshape(-1, 3, 2, 14, 14) for one in found]
    pairs = [
        torch.stack([one[:, :, 0], other[:, :, 1]], dim=2)
        for one, other in zip(halves[::2], [*halves[1::2], halves[-1]], strict=False)
    ]
    grid = found[0]["image_grid_thw"][0] * torch.tensor([len(pairs), 1, 1])
    return torch.cat(pairs).flatten(1), grid


def normalised(prepared: Prepared) -> NDArray[np.float32]:
    """Our patches with what the graph does to their bytes, and with the channel outermost."""
    seen = prepared.inputs["patches"].reshape(prepared.tokens * 4, -1, 14, 14, 3)
    # A picture is on its way once, and is seen in both frames of a patch.
    pixels = _CLIP.apply(np.repeat(seen, 2 // seen.shape[1], axis=1))
    return pixels.transpose(0, 4, 1, 2, 3).reshape(len(pixels), -1)
