"""What each execution provider is told: typed settings, and the text pairs that ONNX Runtime takes.

Source: ONNX Runtime documentation, "CUDA Execution Provider" and "NVIDIA TensorRT Execution Provider".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bus.errors import InvalidInputError, ModelCorruptError

ConvolutionSearch = Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"]

BUCKETS = "shape_buckets"
"""The manifest's parameter: by input, the smallest, the usual and the largest shape."""


@dataclass(frozen=True, slots=True)
class ShapeProfile:
    """The shapes of one input that TensorRT builds kernels for.

    Attributes:
        name: Of the input.
        smallest: Sizes.
        usual: Sizes that it is made fastest for.
        largest: Sizes; anything beyond makes it build again.
    """

    name: str
    smallest: tuple[int, ...]
    usual: tuple[int, ...]
    largest: tuple[int, ...]

    def __post_init__(self) -> None:
        ordered = zip(self.smallest, self.usual, self.largest, strict=False)
        if len({len(self.smallest), len(self.usual), len(self.largest)}) != 1 or not all(
            1 <= low <= middle <= high for low, middle, high in ordered
        ):
            raise InvalidInputError(
                f"shapes of {self.name!r}: {self.smallest}, {self.usual}, {self.largest} are not of one rank, "
                "growing from at least 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaConfig:
    """The CUDA provider.

    Attributes:
        device: Which GPU.
        memory_limit_nbytes: The most that a session's arena takes; None: all.
        convolution_search: How a convolution's algorithm is found; EXHAUSTIVE tries each, once for each shape.
        capture: Record the kernels of a run once and replay them; for models whose shapes are all fixed.
    """

    device: int = 0
    memory_limit_nbytes: int | None = None
    convolution_search: ConvolutionSearch = "HEURISTIC"
    capture: bool = False

    def options(self) -> dict[str, str]:
        """As ONNX Runtime takes them."""
        # The arena's other strategy rounds up to powers of two, which wastes nearly half for large weights.
        told = {
            "device_id": str(self.device),
            "arena_extend_strategy": "kSameAsRequested",
            "cudnn_conv_algo_search": self.convolution_search,
        }
        if self.memory_limit_nbytes is not None:
            told["gpu_mem_limit"] = str(self.memory_limit_nbytes)
        if self.capture:
            told["enable_cuda_graph"] = "1"
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtConfig:
    """The TensorRT provider.

    Attributes:
        device: Which GPU.
        half: Whether kernels may calculate in float16.
        workspace_nbytes: The most that building and running take beside the weights; None: TensorRT's own limit.
        cache: Folder of built engines and of kernel timings; None: they are built by every process anew.
        profiles: Shapes to build for; none: built anew whenever a shape is outside of what was seen.
        capture: As in `CudaConfig`.
    """

    device: int = 0
    half: bool = True
    workspace_nbytes: int | None = None
    cache: Path | None = None
    profiles: tuple[ShapeProfile, ...] = ()
    capture: bool = False

    def options(self) -> dict[str, str]:
        """As ONNX Runtime takes them."""
        told = {"device_id": str(self.device), "trt_fp16_enable": _flag(self.half)}
        if self.workspace_nbytes is not None:
            told["trt_max_workspace_size"] = str(self.workspace_nbytes)
        if self.cache is not None:
            told |= {
                "trt_engine_cache_enable": "1", "trt_engine_cache_path": str(self.cache),
                "trt_timing_cache_enable": "1", "trt_timing_cache_path": str(self.cache),
            }  # fmt: skip
        if self.profiles:
            told["trt_profile_min_shapes"] = _shapes((one.name, one.smallest) for one in self.profiles)
            told["trt_profile_opt_shapes"] = _shapes((one.name, one.usual) for one in self.profiles)
            told["trt_profile_max_shapes"] = _shapes((one.name, one.largest) for one in self.profiles)
        if self.capture:
            told["trt_cuda_graph_enable"] = "1"
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """What the providers of a session are told, whichever of them it gets.

    Attributes:
        cuda: The CUDA provider.
        tensorrt: The TensorRT provider.
    """

    cuda: CudaConfig = field(default_factory=CudaConfig)
    tensorrt: TensorRtConfig = field(default_factory=TensorRtConfig)

    def options(self, provider: str) -> dict[str, str]:
        """The options of `tensorrt`, `cuda` or `cpu`; the CPU takes none."""
        if provider == "tensorrt":
            return self.tensorrt.options()
        return self.cuda.options() if provider == "cuda" else {}

    @property
    def captures(self) -> bool:
        """Whether a recorded run is wanted of any provider."""
        return self.cuda.capture or self.tensorrt.capture


def profiles_of(ref: str, parameters: Mapping[str, Any]) -> tuple[ShapeProfile, ...]:
    """The shape buckets of a manifest's parameters; none where it has none.

    Raises:
        ModelCorruptError: Buckets that are not three growing shapes for each input.
    """
    buckets = parameters.get(BUCKETS, {})
    try:
        return tuple(
            ShapeProfile(name, *(tuple(map(int, shape)) for shape in shapes)) for name, shapes in buckets.items()
        )
    except (InvalidInputError, TypeError, ValueError, AttributeError) as error:
        raise ModelCorruptError(
            f"the manifest of {ref}: {BUCKETS} wants three growing shapes for each input: {error}", model=ref
        ) from error


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _shapes(pairs: Any) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in pairs)


Planned = Sequence[tuple[str, dict[str, str]]]
"""Providers in their order, each with its options."""
