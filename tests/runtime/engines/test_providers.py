"""Which providers are used, and what is said when they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.errors import ProviderMissingError
from runtime.engines import providers
from runtime.engines.onnx import OnnxSession
from runtime.engines.providers import choose, use_device
from tests.runtime.engines.small_model import install

ALL = ("tensorrt", "cuda", "cpu")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    use_device("auto")


@pytest.mark.parametrize(
    ("device", "fallback", "here", "expected"),
    [
        ("auto", False, ALL, ALL),
        ("auto", False, ("cuda", "cpu"), ("cuda", "cpu")),
        ("auto", False, ("cpu",), ("cpu",)),
        ("tensorrt", False, ALL, ALL),
        ("cuda", False, ALL, ("cuda", "cpu")),
        ("cpu", False, ALL, ("cpu",)),
        ("tensorrt", True, ("cuda", "cpu"), ("cuda", "cpu")),
        ("cuda", True, ("cpu",), ("cpu",)),
        ("tensorrt", False, ("cuda", "cpu"), None),
        ("cuda", False, ("cpu",), None),
        ("abacus", False, ALL, None),
        ("abacus", True, ALL, None),
    ],
)
def test_providers_are_taken_in_their_order(
    device: str, fallback: bool, here: tuple[str, ...], expected: tuple[str, ...] | None
) -> None:
    if expected is None:
        with pytest.raises(ProviderMissingError):
            choose(device, fallback=fallback, here=here)
    else:
        assert choose(device, fallback=fallback, here=here).providers == expected


def test_a_stand_in_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert not choose("cuda", fallback=True, here=("cpu",)).strict
    assert "'cuda' is missing; using cpu instead" in caplog.text


def test_auto_means_what_the_deployer_chose() -> None:
    use_device("cpu")
    assert choose(here=ALL).providers == ("cpu",)
    use_device("cuda", fallback=True)
    assert choose(here=("cpu",)).providers == ("cpu",)
    use_device("cuda")
    with pytest.raises(ProviderMissingError, match=r"omnibus-inference\[gpu\]"):
        choose(here=("cpu",))
    assert choose("cpu", here=ALL).providers == ("cpu",)  # what a model asks for comes before it
    with pytest.raises(ProviderMissingError, match="known: auto"):
        use_device("abacus")


def test_the_cpu_is_always_there_and_comes_last() -> None:
    states = {state.name: state for state in providers.available()}
    assert tuple(states) == ALL
    assert states["cpu"].usable
    assert choose().providers[-1] == "cpu"


def test_a_provider_that_is_missing_is_answered_with_the_extra_to_install(tmp_path: Path) -> None:
    path = install(tmp_path)
    missing = [state for state in providers.available() if not state.usable]
    for state in missing:
        assert "omnibus-inference[gpu]" in state.remedy
        with pytest.raises(ProviderMissingError, match=r"omnibus-inference\[gpu\]"):
            OnnxSession(path, device=state.name)
        stood_in = OnnxSession(path, device=state.name, fallback=True)
        assert stood_in.providers[-1] == "CPUExecutionProvider"
    with pytest.raises(ProviderMissingError, match="known: auto"):
        OnnxSession(path, device="abacus")
