from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bus.errors import ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.graphs.efficientnet import _Net, encoder
from runtime.graphs.ops import Graph


def convolve_like_tensorflow(image: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """A depthwise convolution with SAME padding, pixel by pixel; `(channel, height, width)`."""
    channels, height, width = image.shape
    size = kernel.shape[-1]
    out = (-(-height // stride), -(-width // stride))
    pad = [max((count - 1) * stride + size - side, 0) for count, side in zip(out, (height, width), strict=True)]
    padded = np.pad(image, ((0, 0), *((total // 2, total - total // 2) for total in pad)))
    result = np.zeros((channels, *out))
    for row in range(out[0]):
        for column in range(out[1]):
            top, left = row * stride, column * stride
            window = padded[:, top : top + size, left : left + size]
            result[:, row, column] = (window * kernel[:, 0]).sum(axis=(1, 2))
    return result


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_pads_like_tensorflow_and_folds_its_norm(side: int, stride: int, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    image = random.standard_normal((4, side, side)).astype(np.float32)
    made = {
        "c.weight": random.standard_normal((4, 1, 3, 3)),
        "n.weight": random.uniform(0.5, 2, 4),
        "n.bias": random.standard_normal(4),
        "n.running_mean": random.standard_normal(4),
        "n.running_var": random.uniform(0.5, 2, 4),
    }
    graph = Graph("one")
    net = _Net(graph, made)
    value = net.conv(graph.input("x", np.float32, (1, 4, side, side)), "c", "n", stride=stride, depthwise=True)
    graph.output(value, "y", np.float32, (1, 4, None, None))  # type: ignore[arg-type]
    graph.save(tmp_path / "one.onnx")
    (found,) = OnnxSession(tmp_path / "one.onnx", threads=1).run({"x": image[None]})
    raw = convolve_like_tensorflow(image, made["c.weight"], stride)
    mean, spread, gain, bias = (
        made[f"n.{name}"][:, None, None] for name in ("running_mean", "running_var", "weight", "bias")
    )
    right = np.clip((raw - mean) / np.sqrt(spread + 1e-3) * gain + bias, 0, 6)
    np.testing.assert_allclose(found[0], right, atol=1e-4)


def test_a_checkpoint_of_another_model_is_refused() -> None:
    with pytest.raises(ModelCorruptError, match="_conv_stem"):
        encoder({})
