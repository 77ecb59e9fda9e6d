"""One copy for all who hold it, and none when nobody does."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from weakref import ref

import pytest

from bus.errors import OmnibusError
from runtime.repository import Repository
from runtime.residency.shared import SharedModels
from runtime.vision.classifier import ImageClassifier


class Weights:
    """Something that can be held."""


def test_all_who_ask_get_the_same_one() -> None:
    shared: SharedModels[Weights] = SharedModels()
    together, loads = Barrier(8), []

    def load() -> Weights:
        loads.append(1)
        return Weights()

    def ask() -> Weights:
        together.wait()
        return shared.get("a", load)

    with ThreadPoolExecutor(8) as threads:
        found = [one.result() for one in [threads.submit(ask) for _ in range(8)]]
    assert len({id(one) for one in found}) == 1
    assert len(loads) == 1
    assert shared.get("b", load) is not found[0]


def test_what_nobody_holds_is_gone_and_loaded_again() -> None:
    shared: SharedModels[Weights] = SharedModels()
    first = shared.get("a", Weights)
    seen = ref(first)
    del first
    gc.collect()
    assert seen() is None
    assert isinstance(shared.get("a", Weights), Weights)


def test_a_load_that_fails_is_tried_again_by_the_next_one() -> None:
    shared: SharedModels[Weights] = SharedModels()

    def fail() -> Weights:
        raise OmnibusError("damaged")

    with pytest.raises(OmnibusError, match="damaged"):
        shared.get("a", fail)
    assert isinstance(shared.get("a", Weights), Weights)


@pytest.mark.models
def test_two_functions_that_look_at_pictures_share_the_encoder() -> None:
    first, second = (ImageClassifier.load(Repository(), "efficientnet-lite0") for _ in range(2))
    assert first is second
    assert ImageClassifier.load(Repository(), "efficientnet-lite0", threads=1) is not first
