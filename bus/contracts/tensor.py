"""A tensor by reference: control messages never carry large tensors."""

from __future__ import annotations

from math import prod

from pydantic import Field, model_validator

from bus.contracts.base import Contract

INLINE_MAX_NBYTES = 64 * 1024
"""Below this many bytes a tensor rides inside the message."""

DTYPES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Element types that may travel, with their size in bytes."""


class TensorRef(Contract):
    """Where a C-contiguous tensor is and what it holds.

    Content-addressed: two references with the same digest, dtype and shape are the same tensor.
    """

    digest: str = Field(description="BLAKE3 of the raw bytes, hex.")
    dtype: str
    shape: tuple[int, ...]
    nbytes: int = Field(ge=0)
    inline: bytes | None = Field(default=None, description="The raw bytes, when they ride along.")
    host: str | None = Field(default=None, description="Host whose shared memory holds it, if any.")
    key: str | None = Field(default=None, description="Key in the object store, if it is there.")

    @model_validator(mode="after")
    def _consistent(self) -> TensorRef:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} does not travel; one of {', '.join(DTYPES)} does")
        if any(size < 0 for size in self.shape) or prod(self.shape) * DTYPES[self.dtype] != self.nbytes:
            raise ValueError(f"{self.nbytes} bytes cannot be a {self.dtype} tensor of shape {self.shape}")
        if self.inline is not None and len(self.inline) != self.nbytes:
            raise ValueError(f"inline data has {len(self.inline)} bytes, the tensor has {self.nbytes}")
        if self.inline is None and self.host is None and self.key is None:
            raise ValueError("a tensor reference says where: inline, host or key")
        return self
