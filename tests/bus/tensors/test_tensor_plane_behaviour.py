"""What the tensor plane does, over a folder and over a real S3 server."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bus.contracts import INLINE_MAX_NBYTES, TensorRef
from bus.errors import InvalidInputError, ObjectCorruptError, ObjectMissingError
from bus.ports import ObjectStore
from bus.store.location import open_store
from bus.tensors.plane import Plane
from bus.tensors.shared_memory import shared_memory_root

MIB = 1024 * 1024


@pytest.fixture(params=["directory", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    if request.param == "directory":
        url = f"file://{tmp_path}/objects"
    else:
        url = f"s3://test-{secrets.token_hex(6)}?endpoint=http://{request.getfixturevalue('s3_endpoint')}"
    async with open_store(url, access_key="access", secret_key="secret") as opened:
        yield opened


@pytest.fixture
async def plane(store: ObjectStore) -> AsyncIterator[Plane]:
    folder = shared_memory_root() / f"omnibus-test-{secrets.token_hex(6)}"
    async with Plane(store, directory=folder, host="here", budget_nbytes=64 * MIB) as opened:
        yield opened
    opened.sweep()
    assert not folder.exists()


def _noise(nbytes: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(nbytes // 4, dtype=np.float32)


async def test_a_small_tensor_rides_inline(plane: Plane) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    ref = await plane.put(array)
    assert ref.inline == array.tobytes()
    assert (ref.host, ref.key) == (None, None)
    np.testing.assert_array_equal(await plane.get(ref), array)


async def test_the_reference_names_the_content(plane: Plane) -> None:
    array = _noise(MIB)
    ref = await plane.put(array.reshape(512, 512))
    digest = blake3(array.tobytes()).hexdigest()
    assert ref == TensorRef(
        digest=digest, dtype="float32", shape=(512, 512), nbytes=MIB, host="here", key=f"tensors/{digest}"
    )


@pytest.mark.parametrize("nbytes", [INLINE_MAX_NBYTES - 4, INLINE_MAX_NBYTES])
async def test_64_kib_is_where_inline_ends(plane: Plane, nbytes: int) -> None:
    array = _noise(nbytes)
    ref = await plane.put(array)
    assert (ref.inline is None) == (nbytes == INLINE_MAX_NBYTES)
    np.testing.assert_array_equal(await plane.get(ref), array)


async def test_a_tensor_is_in_the_object_store_before_put_returns(plane: Plane, store: ObjectStore) -> None:
    array = _noise(MIB)
    ref = await plane.put(array)
    assert ref.key is not None
    assert await store.get(ref.key) == array.tobytes()


async def test_nobody_can_write_into_a_tensor_that_others_read(plane: Plane) -> None:
    for array in (_noise(64), _noise(MIB)):
        ref = await plane.put(array)
        read = await plane.get(ref)
        assert not read.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            read[0] = 1
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            read.flags.writeable = True


async def test_an_evicted_tensor_is_found_in_the_object_store_and_shared_again(plane: Plane) -> None:
    array = _noise(MIB)
    ref = await plane.put(array)
    plane.sweep()
    np.testing.assert_array_equal(await plane.get(ref), array)
    assert plane.used_nbytes() == MIB


async def test_a_tensor_of_this_host_alone_is_not_in_the_object_store(plane: Plane, store: ObjectStore) -> None:
    array = _noise(MIB)
    ref = await plane.put(array, durable=False)
    assert (ref.host, ref.key) == ("here", None)
    assert [key async for key in store.keys("")] == []
    np.testing.assert_array_equal(await plane.get(ref), array)
    plane.sweep()
    with pytest.raises(ObjectMissingError, match=ref.digest):
        await plane.get(ref)


async def test_a_tensor_over_the_whole_budget_goes_through_the_store(store: ObjectStore) -> None:
    plane = Plane(store, directory=shared_memory_root() / f"omnibus-test-{secrets.token_hex(6)}", budget_nbytes=MIB)
    array = _noise(2 * MIB)
    for durable in (True, False):
        ref = await plane.put(array, durable=durable)
        assert ref.host is None
        assert ref.key is not None
        np.testing.assert_array_equal(await plane.get(ref), array)
    assert plane.used_nbytes() == 0


async def test_a_damaged_object_is_found_and_can_be_made_again(plane: Plane, store: ObjectStore) -> None:
    array = _noise(MIB)
    ref = await plane.put(array)
    assert ref.key is not None
    await store.put(ref.key, b"\0" + array.tobytes()[1:])
    plane.sweep()
    with pytest.raises(ObjectCorruptError, match=ref.digest):
        await plane.get(ref)
    assert await plane.put(array) == ref
    plane.sweep()
    np.testing.assert_array_equal(await plane.get(ref), array)


async def test_a_reference_that_lies_is_refused_and_harms_nobody(plane: Plane, store: ObjectStore) -> None:
    await store.put("plans/important", _noise(MIB, seed=1).tobytes())
    forged = TensorRef(digest="0" * 64, dtype="float32", shape=(MIB // 4,), nbytes=MIB, key="plans/important")
    with pytest.raises(ObjectCorruptError) as caught:
        await plane.get(forged)
    known = blake3(_noise(MIB, seed=1).tobytes()).hexdigest()
    assert known not in str(caught.value)
    with pytest.raises(ObjectCorruptError, match="plans/important"):
        await plane.get(forged.model_copy(update={"digest": known}))
    assert await store.nbytes("plans/important") == MIB
    with pytest.raises(ObjectCorruptError, match="inline"):
        await plane.get(TensorRef(digest="0" * 64, dtype="int8", shape=(1,), nbytes=1, inline=b"x"))
    with pytest.raises(InvalidInputError, match="64 hexadecimal digits"):
        await plane.get(TensorRef(digest="../../etc/passwd", dtype="int8", shape=(1,), nbytes=1, host="here"))


async def test_many_writers_of_one_tensor_keep_it_once(plane: Plane) -> None:
    array = _noise(MIB)
    first = await plane.put(array)
    refs = await asyncio.gather(*(plane.put(array) for _ in range(20)))
    assert set(refs) == {first}
    assert plane.used_nbytes() == MIB


@pytest.mark.parametrize("dtype", ["complex64", "float64", "object", "U4", "datetime64[s]"])
async def test_a_dtype_that_does_not_travel_is_named(plane: Plane, dtype: str) -> None:
    with pytest.raises(InvalidInputError, match="does not travel"):
        await plane.put(np.zeros(3, dtype=dtype))


async def test_bfloat16_travels(plane: Plane) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for tokens in (4, 1000):
        array = np.linspace(-3, 3, tokens * 64).astype(ml_dtypes.bfloat16).reshape(tokens, 64)
        ref = await plane.put(array)
        assert ref.dtype == "bfloat16"
        read = await plane.get(ref)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read.view(np.uint16), array.view(np.uint16))


async def test_views_and_foreign_byte_orders_arrive_as_their_values(plane: Plane) -> None:
    grid = np.arange(400 * 300, dtype=np.float32).reshape(400, 300)
    for array in (grid.T, grid[::3, ::-2], grid.astype(">f4"), np.asfortranarray(grid), grid[5, 5]):
        np.testing.assert_array_equal(await plane.get(await plane.put(np.asarray(array))), array)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    array=arrays.arrays(
        dtype=st.sampled_from(["float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]),
        shape=arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6),
    )
)
def test_any_tensor_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, array: Any) -> None:
    async def there_and_back() -> Any:
        async with open_store(f"file://{tmp_path_factory.getbasetemp()}/objects") as store:
            plane = Plane(store)
            return await plane.get(await plane.put(array))

    read = asyncio.run(there_and_back())
    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


async def test_reading_a_tensor_many_times_leaks_no_descriptor(plane: Plane) -> None:
    ref = await plane.put(_noise(MIB))
    await plane.get(ref)
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for _ in range(200):
        await plane.get(ref)
    after = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    assert after <= before + 1
