"""Which execution providers are really here, and which are used."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from bus.errors import ProviderMissingError

log = logging.getLogger("omnibus.engine")

ORDER = ("tensorrt", "cuda", "cpu")
"""Preferred first."""

NAMES = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
"""ONNX Runtime's names."""

_EXTRAS = {"tensorrt": "gpu", "cuda": "gpu", "cpu": "cpu"}

_device, _fallback = "auto", False


def use_device(device: str, *, fallback: bool = False) -> None:
    """What sessions that are opened from now on take for `auto`.

    Args:
        device: `auto` or a provider's name.
        fallback: Whether the next provider is taken where this one is missing.

    Raises:
        ProviderMissingError: Not a provider's name.
    """
    global _device, _fallback  # one process, one choice of its deployer
    if device != "auto":
        _known(device)
    _device, _fallback = device, fallback


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
    here = installed()
    return tuple(ProviderState(name, name in here, "" if name in here else _remedy(name)) for name in ORDER)


def installed() -> tuple[str, ...]:
    """The providers that this build of ONNX Runtime has, in the order of preference.

    Raises:
        ProviderMissingError: ONNX Runtime itself is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ProviderMissingError(
            "ONNX Runtime is not installed; pip install 'omnibus-inference[cpu]' or, with a GPU, "
            "'omnibus-inference[gpu]'",
            provider="cpu",
        ) from error
    here = onnxruntime.get_available_providers()
    return tuple(name for name in ORDER if NAMES[name] in here)


@dataclass(frozen=True, slots=True)
class Choice:
    """The providers to open a session with.

    Attributes:
        wanted: What was asked for, or the best that is here for `auto`.
        providers: Preferred first; each takes the operators that those before it lack.
        strict: Whether a session that does not get `wanted` is an error.
    """

    wanted: str
    providers: tuple[str, ...]
    strict: bool


def choose(device: str = "auto", *, fallback: bool = False, here: Collection[str] | None = None) -> Choice:
    """The providers to use for a device.

    Args:
        device: `auto` takes what the deployer chose, else what is here in the order TensorRT, CUDA, CPU; a provider's
            name takes that one and, behind it, those that follow in the order.
        fallback: Whether those that follow will do where it is missing; told in the log.
        here: What is installed; None: found out.

    Raises:
        ProviderMissingError: What was asked for is not installed and nothing may stand in; names the extra.
    """
    here = installed() if here is None else here
    if device == "auto" and _device != "auto":
        device, fallback = _device, fallback or _fallback
    if device == "auto":
        found = tuple(name for name in ORDER if name in here)
        return Choice(found[0], found, strict=False)
    following = tuple(name for name in ORDER[ORDER.index(_known(device)) :] if name in here)
    if device not in following and not (fallback and following):
        raise missing(device, "is missing")
    if device not in following:
        log.warning("execution provider %r is missing; using %s instead", device, ", ".join(following))
    return Choice(device, following, strict=not fallback)


def missing(device: str, what: str) -> ProviderMissingError:
    """The error of a provider that was asked for and cannot be used."""
    return ProviderMissingError(
        f"execution provider {device!r} {what}; {_remedy(device)}, or let another one stand in (fallback)",
        provider=device,
    )


def _known(device: str) -> str:
    if device not in NAMES:
        raise ProviderMissingError(
            f"no execution provider {device!r}; known: auto, {', '.join(ORDER)}", provider=device
        )
    return device


def _remedy(name: str) -> str:
    return f"pip install 'omnibus-inference[{_EXTRAS[name]}]'"
