"""Contracts to bytes and back: msgpack on the wire, JSON for clients that ask for it, never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import ormsgpack
from blake3 import blake3
from pydantic import ValidationError

from bus.contracts.base import Contract
from bus.errors import InvalidInputError, UnknownSchemaError

C = TypeVar("C", bound=Contract)

_SHOWN, _SHOWN_BITS = 40, 128
"""Characters of a refused text, and bits of a refused number, that its error shows."""

MSGPACK_TYPE = "application/msgpack"
JSON_TYPE = "application/json"

# TypeError: types, big integers and lone surrogates in msgpack; ValueError: pydantic and UTF-8; depth: either.
_NOT_WRITABLE = (TypeError, ValueError, RecursionError)


def encode(contract: Contract) -> bytes:
    """The contract as msgpack: a map of its fields plus `schema`, such as `omnibus.event/1`.

    Raises:
        InvalidInputError: A value inside that msgpack has no form for, such as an integer of more than 64 bits.
    """
    try:
        fields = contract.model_dump(exclude_defaults=True)
        fields["schema"] = _schema(contract)
        return ormsgpack.packb(fields)
    except _NOT_WRITABLE as error:
        raise _cannot_travel(contract, error) from error


def encode_json(contract: Contract) -> bytes:
    """The contract as JSON with every field, bytes as base64.

    Raises:
        InvalidInputError: A value inside that JSON has no form for.
    """
    try:
        fields = contract.model_dump(mode="json")
        fields["schema"] = _schema(contract)
        return json.dumps(fields, ensure_ascii=False).encode()
    except _NOT_WRITABLE as error:
        raise _cannot_travel(contract, error) from error


def decode(kind: type[C], data: bytes) -> C:
    """The contract in `data`, written as msgpack or as JSON.

    Raises:
        UnknownSchemaError: Another schema, or a version that this build does not read.
        InvalidInputError: Bytes that are neither, or fields outside the contract.
    """
    fields = _unpack(data)
    schema = fields.pop("schema", None)
    expected = f"{kind.schema_name}/{kind.schema_version}"
    if schema is not None and schema != expected:
        raise UnknownSchemaError(f"expected a message of schema {expected}, got {schema!r}", schema=str(schema))
    return validate(kind, fields)


def validate(kind: type[C], fields: dict[str, Any], names: Mapping[str, str] | None = None) -> C:
    """A contract from plain values.

    Args:
        kind: The contract.
        fields: Values by name.
        names: What the caller calls a field, where that is something else.

    Raises:
        InvalidInputError: Names every field that is outside the contract; its `param` is the first.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        paths = [_path(problem["loc"], names or {}) for problem in found]
        problems = [
            f"{path or kind.__name__}: {problem['msg']}{got(problem['input'])}"
            for path, problem in zip(paths, found, strict=True)
        ]
        told = f"{kind.__name__}: " + "; ".join(problems)
        raise InvalidInputError(told, problems=problems, param=paths[0] or None) from error


def _path(place: tuple[int | str, ...], names: Mapping[str, str]) -> str:
    return ".".join(names.get(str(part), str(part)) if not depth else str(part) for depth, part in enumerate(place))


def got(value: Any) -> str:
    """How a plain value that is outside its contract is told; nothing for lists and maps, which only look long."""
    if not isinstance(value, (str, int, float)):
        return ""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f", not a number of {value.bit_length()} bits"
    cut = isinstance(value, str) and len(value) > _SHOWN
    return f", not {value[:_SHOWN]!r}{'…' if cut else ''}" if isinstance(value, str) else f", not {value!r}"


def digest(data: bytes | bytearray | memoryview) -> str:
    """BLAKE3 of the bytes, hex."""
    return blake3(data).hexdigest()


def digest_of(value: Any) -> str:
    """A digest of plain values that does not depend on the order of keys, which are text."""
    return digest(ormsgpack.packb(value, option=ormsgpack.OPT_SORT_KEYS))


def _schema(contract: Contract) -> str:
    return f"{contract.schema_name}/{contract.schema_version}"


def _cannot_travel(contract: Contract, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"{_schema(contract)}: a value inside cannot travel: {error}; send text, booleans, numbers of 64 bits, bytes, "
        "and lists and maps of them that are not nested deeply"
    )


def _unpack(data: bytes) -> dict[str, Any]:
    try:
        # A msgpack map starts with 0x80-0x8f, 0xde or 0xdf; none of these begins a JSON text.
        fields = ormsgpack.unpackb(data) if data[:1] >= b"\x80" else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"a message of {len(data)} bytes is neither msgpack nor JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidInputError(f"a message is a map of fields, not a {type(fields).__name__}")
    return fields
