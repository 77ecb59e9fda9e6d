"""The tensor plane: control messages carry references, tensors go the shortest way there is.

Below 64 KiB a tensor rides inside the reference; on one host it goes through shared memory, without a
copy or a serialisation on the reader's side; everything durable is in the object store as well.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from bus.contracts import INLINE_MAX_NBYTES, TensorRef
from bus.contracts.codec import digest
from bus.contracts.tensor import DTYPES
from bus.errors import InvalidInputError, ObjectCorruptError, ObjectMissingError
from bus.ports import Array, ObjectStore
from bus.store.once import put_once
from bus.tensors.shared_memory import SharedMemory, shared_memory_root

DEFAULT_BUDGET_NBYTES = 1024 * 1024 * 1024


class Plane:
    """The `TensorPlane` of one process.

    A reference outlives its copy in shared memory: evicted, it is read from the object store again, checked
    against its digest and put back. Tensors from `put(durable=False)` are on this host alone and may be gone.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        directory: Path | str | None = None,
        host: str | None = None,
        budget_nbytes: int = DEFAULT_BUDGET_NBYTES,
    ) -> None:
        """A plane over the object store and this host's shared memory.

        Args:
            store: Where durable tensors are, opened by the caller.
            directory: Folder of the stack in shared memory; None: `omnibus` in `/dev/shm`.
            host: Name of this host in references; None: the host name.
            budget_nbytes: The most that all processes of the stack keep in shared memory.
        """
        self._store = store
        self._memory = SharedMemory(directory or shared_memory_root() / "omnibus", budget_nbytes)
        self._host = host or socket.gethostname()

    async def __aenter__(self) -> Self:
        """Make the folder in shared memory.

        Raises:
            StackConfigError: It belongs to another user or cannot be made.
        """
        await asyncio.to_thread(self._memory.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is removed: other processes may use what this one wrote."""

    async def put(
        self, array: np.ndarray[Any, Any], *, durable: bool = True, inline_nbytes: int = INLINE_MAX_NBYTES
    ) -> TensorRef:
        """Keep a tensor.

        Args:
            array: Any shape, of a dtype in `bus.contracts.tensor.DTYPES`; unchanged until this returns.
            durable: Whether it must outlive this host's memory; False keeps it in shared memory alone.
            inline_nbytes: Below this many bytes it rides inside the reference; less where many travel in one message.

        Raises:
            InvalidInputError: A dtype that does not travel.
            StoreUnavailableError: (retryable) the store does not answer.
        """
        dtype, data = _raw(array)
        if len(data) < inline_nbytes:
            return TensorRef(
                digest=digest(data), dtype=dtype, shape=array.shape, nbytes=len(data), inline=data.tobytes()
            )
        content = await asyncio.to_thread(digest, data)
        shared, key = await self._keep(content, data, durable=durable)
        host = self._host if shared else None
        return TensorRef(digest=content, dtype=dtype, shape=array.shape, nbytes=len(data), host=host, key=key)

    async def get(self, ref: TensorRef) -> Array:
        """The tensor, read-only, without a copy where it is on this host.

        Args:
            ref: Where it is; a client may have written it, so what is found is checked against its digest.

        Raises:
            ObjectMissingError: It is nowhere any more.
            ObjectCorruptError: The bytes found do not match the digest.
            StoreUnavailableError: (retryable) the store does not answer.
        """
        if ref.inline is not None:
            _check(ref, digest(ref.inline), "inline")
            return _view(ref, memoryview(ref.inline))
        mapped = self._memory.read(ref.digest, ref.nbytes)
        return _view(ref, mapped if mapped is not None else await self._fetch(ref))

    def sweep(self) -> None:
        """Remove the stack's shared memory; only when none of its processes runs."""
        self._memory.sweep()

    def used_nbytes(self) -> int:
        """Bytes that the stack's processes together keep in shared memory."""
        return self._memory.used_nbytes()

    async def _keep(self, content: str, data: memoryview, *, durable: bool) -> tuple[bool, str | None]:
        in_memory = asyncio.to_thread(self._memory.write, content, data)
        if not durable and await in_memory:
            return True, None
        key = f"tensors/{content}"
        if not durable:
            # No room in shared memory: the object store is the only place left.
            await put_once(self._store, key, data)
            return False, key
        shared, _ = await asyncio.gather(in_memory, put_once(self._store, key, data))
        return shared, key

    async def _fetch(self, ref: TensorRef) -> memoryview:
        key = f"tensors/{ref.digest}"
        if ref.key not in (None, key):
            # Nothing of it is read, not even its digest: a client may have named any object of the store.
            raise ObjectCorruptError(f"object {ref.key!r} is not tensor {ref.digest}", digest=ref.digest, where=ref.key)
        try:
            data = await self._store.get(key)
        except ObjectMissingError as error:
            raise ObjectMissingError(
                f"tensor {ref.digest} is neither on this host nor in the object store; run its stage again",
                digest=ref.digest,
                host=ref.host,
            ) from error
        try:
            _check(ref, await asyncio.to_thread(digest, data), key)
        except ObjectCorruptError:
            # Whoever makes the tensor again must not find "already stored".
            await self._store.delete(key)
            raise
        view = memoryview(data)
        if await asyncio.to_thread(self._memory.write, ref.digest, view):
            return self._memory.read(ref.digest, ref.nbytes) or view
        return view


def _raw(array: np.ndarray[Any, Any]) -> tuple[str, memoryview]:
    """Name of the dtype and the bytes, C-contiguous and native-endian; a copy only where they are not."""
    name = array.dtype.name
    if name not in DTYPES:
        raise InvalidInputError(
            f"a tensor of dtype {array.dtype} does not travel; convert it to one of {', '.join(DTYPES)}",
            dtype=str(array.dtype),
        )
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return name, native.reshape(-1).view(np.uint8).data


def _view(ref: TensorRef, data: memoryview) -> Array:
    array: Array = np.ndarray(ref.shape, _dtype(ref.dtype), buffer=data)
    array.flags.writeable = False
    return array


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError as error:
        # NumPy knows bfloat16 only where a model's runtime has imported `ml_dtypes`.
        raise InvalidInputError(f"dtype {name} is not known here; import ml_dtypes first", dtype=name) from error


def _check(ref: TensorRef, found: str, where: str) -> None:
    if found != ref.digest:
        raise ObjectCorruptError(
            f"tensor {ref.digest} at {where} has digest {found}; run the stage that made it again",
            digest=ref.digest,
            where=where,
        )
