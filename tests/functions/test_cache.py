"""A run is avoided when, and only when, it would give the same again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from bus.contracts import Contract, MediaRef, TensorRef
from bus.contracts.codec import digest
from bus.memory import MemoryBus
from functions.cache import StageCache
from functions.context import Context
from functions.spec import FunctionSpec


class Page(Contract):
    """A page somebody wrote: its own fields happen to be called like those of a reference."""

    digest: str
    name: str
    host: str = ""


class Inputs(Contract):
    """References beside plain values."""

    media: MediaRef | None = None
    tensors: tuple[TensorRef, ...] = ()
    page: Page | None = None
    anything: Any = None


class More(Contract):
    """Another contract."""

    text: str = ""


async def handle(context: Context[Any], inputs: Inputs) -> Inputs:
    return inputs


def spec(**fields: Any) -> FunctionSpec:
    given = {"name": "test.cached", "inputs": Inputs, "outputs": Inputs, "handler": handle, "cacheable": True}
    return FunctionSpec(**{**given, **fields})


@pytest.fixture
async def cache() -> StageCache:
    return StageCache(await MemoryBus().bucket("cache"))


def media(**fields: Any) -> MediaRef:
    return MediaRef(**{"digest": "a" * 64, "nbytes": 3, "media_type": "image/png", "key": "media/a", **fields})


def tensor(data: bytes, **fields: Any) -> TensorRef:
    given = {"digest": digest(data), "dtype": "uint8", "shape": (len(data),), "nbytes": len(data), "inline": data}
    return TensorRef(**{**given, **fields})


SAME = [
    (Inputs(media=media()), Inputs(media=media(name="cat.png"))),
    (Inputs(tensors=(tensor(b"abc"),)), Inputs(tensors=(tensor(b"abc", inline=None, host="elsewhere"),))),
    (Inputs(tensors=(tensor(b"abc"),)), Inputs(tensors=(tensor(b"abc", inline=None, key="tensors/x"),))),
]
OTHER = [
    (Inputs(media=media()), Inputs(media=media(digest="b" * 64))),
    (Inputs(media=media()), Inputs(media=media(media_type="image/webp"))),
    (Inputs(tensors=(tensor(b"abcd"),)), Inputs(tensors=(tensor(b"abcd", shape=(2, 2)),))),
    (Inputs(page=Page(digest="d", name="one")), Inputs(page=Page(digest="d", name="two"))),
    (Inputs(page=Page(digest="d", name="n", host="x")), Inputs(page=Page(digest="d", name="n", host="y"))),
    (Inputs(anything={"digest": "d", "key": 1}), Inputs(anything={"digest": "d", "key": 2})),
]


@pytest.mark.parametrize(("one", "two"), SAME)
async def test_where_content_is_and_what_it_is_called_does_not_matter(
    cache: StageCache, one: Inputs, two: Inputs
) -> None:
    assert cache.key(spec(), one) == cache.key(spec(), two)


@pytest.mark.parametrize(("one", "two"), OTHER)
async def test_other_values_are_another_run(cache: StageCache, one: Inputs, two: Inputs) -> None:
    assert cache.key(spec(), one) != cache.key(spec(), two)


async def test_another_version_of_function_model_or_contract_is_another_run(cache: StageCache) -> None:
    inputs = Inputs(anything=1)
    keys = [
        cache.key(spec(), inputs, ["whisper@1"]),
        cache.key(spec(), inputs, ["whisper@2"]),
        cache.key(spec(version=2), inputs, ["whisper@1"]),
        cache.key(spec(name="test.other"), inputs, ["whisper@1"]),
        cache.key(spec(outputs=More), inputs, ["whisper@1"]),
    ]
    assert len(set(keys)) == len(keys)


class Bounded(Contract):
    """A limit that is larger than integers of msgpack are."""

    seed: int = Field(default=0, ge=-(2**80), le=2**80)


async def test_limits_of_any_size_have_a_key_and_another_one_is_another(cache: StageCache) -> None:
    class Other(Contract):
        """The same with another limit."""

        seed: int = Field(default=0, ge=-(2**80), le=2**80 + 1)

    keys = {cache.key(spec(inputs=contract), contract(seed=1), ()) for contract in (Bounded, Other)}
    assert len(keys) == 2
