"""Which execution providers are really here, and which are used."""

from __future__ import annotations

from dataclasses import dataclass

from bus.errors import ProviderMissingError

ORDER = ("tensorrt", "cuda", "cpu")
"""Preferred first."""

_NAMES = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
_EXTRAS = {"tensorrt": "gpu", "cuda": "gpu", "cpu": "cpu"}


@dataclass(frozen=True, slots=True)
class ProviderState:
    """One provider as this machine has it.

    Attributes:
        name: `tensorrt`, `cuda` or `cpu`.
        usable: Whether sessions can use it.
        remedy: What to do about it when it is not; empty when it is.
    """

    name: str
    usable: bool
    remedy: str


def available() -> tuple[ProviderState, ...]:
    """Every provider that we know, in the order of preference.

    Raises:
        ProviderMissingError: ONNX Runtime itself is not installed.
    """
    here = _installed()
    return tuple(
        ProviderState(name, _NAMES[name] in here, "" if _NAMES[name] in here else _remedy(name)) for name in ORDER
    )


def choose(device: str = "auto") -> list[str]:
    """ONNX Runtime's names of the providers to use for a device.

    Args:
        device: `auto` takes what is there in the order TensorRT, CUDA, CPU; a provider's name takes that one
            and, behind it, the CPU for operators that it lacks.

    Raises:
        ProviderMissingError: What was asked for is not installed; names the extra to install.
    """
    here = _installed()
    if device == "auto":
        return [_NAMES[name] for name in ORDER if _NAMES[name] in here]
    if device not in _NAMES:
        raise ProviderMissingError(
            f"no execution provider {device!r}; known: auto, {', '.join(ORDER)}", provider=device
        )
    if _NAMES[device] not in here:
        raise ProviderMissingError(f"execution provider {device!r} is missing; {_remedy(device)}", provider=device)
    return [_NAMES[device]] if device == "cpu" else [_NAMES[device], _NAMES["cpu"]]


def _installed() -> list[str]:
    try:
        import onnxruntime
    except ImportError as error:
        raise ProviderMissingError(
            "ONNX Runtime is not installed; pip install 'omnibus-inference[cpu]' or, with a GPU, "
            "'omnibus-inference[gpu]'",
            provider="cpu",
        ) from error
    return list(onnxruntime.get_available_providers())


def _remedy(name: str) -> str:
    return f"pip install 'omnibus-inference[{_EXTRAS[name]}]'"
