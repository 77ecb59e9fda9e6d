"""Rows of patches by their share of the picture, against Idefics2's and Idefics3's embeddings in transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionEmbeddings

from runtime.multimodal.shares import shares


@pytest.mark.parametrize("trained", [16, 24, 26, 27, 32, 70])
def test_every_number_of_rows_has_the_rows_of_the_reference(trained: int) -> None:
    config = Idefics3VisionConfig(hidden_size=1, num_attention_heads=1, image_size=trained, patch_size=1)
    embeddings = Idefics3VisionEmbeddings(config)
    with torch.no_grad():
        for parameter in embeddings.parameters():
            parameter.zero_()
        embeddings.position_embedding.weight.copy_(torch.arange(trained**2)[:, None])
    for count in range(1, trained + 12):
        picture = torch.zeros(1, 3, count, count)
        with torch.inference_mode():
            places = embeddings(picture, torch.ones(1, count, count, dtype=torch.bool))[0, :, 0].numpy()
        rows = shares(count, trained)
        np.testing.assert_array_equal(places.reshape(count, count), rows[:, None] * trained + rows)
