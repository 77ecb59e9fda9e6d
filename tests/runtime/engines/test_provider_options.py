"""What providers are told, pair by pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.errors import InvalidInputError, ModelCorruptError
from runtime.engines.provider_options import CudaConfig, ProviderConfig, ShapeProfile, TensorRtConfig, profiles_of

IDS = ShapeProfile("input_ids", (1, 8), (8, 64), (32, 256))
MASK = ShapeProfile("mask", (1, 8), (8, 64), (32, 256))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            CudaConfig(),
            {"device_id": "0", "arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": "HEURISTIC"},
        ),
        (
            CudaConfig(device=1, memory_limit_nbytes=1 << 30, convolution_search="EXHAUSTIVE", capture=True),
            {
                "device_id": "1", "arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": "EXHAUSTIVE",
                "gpu_mem_limit": "1073741824", "enable_cuda_graph": "1",
            },
        ),
        (TensorRtConfig(), {"device_id": "0", "trt_fp16_enable": "1"}),
        (
            TensorRtConfig(
                half=False, workspace_nbytes=4096, cache=Path("/engines"), profiles=(IDS, MASK), capture=True
            ),
            {
                "device_id": "0", "trt_fp16_enable": "0", "trt_max_workspace_size": "4096",
                "trt_engine_cache_enable": "1", "trt_engine_cache_path": "/engines",
                "trt_timing_cache_enable": "1", "trt_timing_cache_path": "/engines",
                "trt_profile_min_shapes": "input_ids:1x8,mask:1x8",
                "trt_profile_opt_shapes": "input_ids:8x64,mask:8x64",
                "trt_profile_max_shapes": "input_ids:32x256,mask:32x256",
                "trt_cuda_graph_enable": "1",
            },
        ),
    ],
)  # fmt: skip
def test_settings_become_the_pairs_of_the_documentation(
    config: CudaConfig | TensorRtConfig, expected: dict[str, str]
) -> None:
    assert config.options() == expected


def test_each_provider_gets_its_own_pairs() -> None:
    config = ProviderConfig(cuda=CudaConfig(device=2), tensorrt=TensorRtConfig(device=3))
    assert config.options("cuda")["device_id"] == "2"
    assert config.options("tensorrt")["device_id"] == "3"
    assert config.options("cpu") == {}
    assert not config.captures
    assert ProviderConfig(cuda=CudaConfig(capture=True)).captures


def test_the_shapes_come_from_the_manifest() -> None:
    buckets = {"input_ids": [[1, 8], [8, 64], [32, 256]], "mask": [[1, 8], [8, 64], [32, 256]]}
    assert profiles_of("m@1", {"shape_buckets": buckets}) == (IDS, MASK)
    assert profiles_of("m@1", {}) == ()


@pytest.mark.parametrize(
    "buckets",
    [
        {"x": [[1, 8], [8, 64]]}, {"x": [[1, 8], [8], [32, 256]]}, {"x": [[4, 8], [2, 64], [32, 256]]},
        {"x": [[0, 8], [2, 64], [32, 256]]}, {"x": 5}, {"x": [["a"], ["b"], ["c"]]}, [1, 2],
    ],
)  # fmt: skip
def test_buckets_that_are_none_are_refused(buckets: Any) -> None:
    with pytest.raises(ModelCorruptError, match="m@1: shape_buckets"):
        profiles_of("m@1", {"shape_buckets": buckets})


def test_shapes_that_do_not_grow_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="growing"):
        ShapeProfile("x", (2,), (1,), (3,))
