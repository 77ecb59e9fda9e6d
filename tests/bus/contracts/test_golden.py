from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from bus.contracts import Contract
from bus.contracts.codec import decode, encode, encode_json
from tests.bus.contracts.examples import EXAMPLES

_GOLDEN = Path(__file__).parent / "golden"

each_example = pytest.mark.parametrize(
    ("contract", "fields"), EXAMPLES, ids=[fields["schema"] for _, fields in EXAMPLES]
)


def _golden(fields: dict[str, Any]) -> bytes:
    return bytes.fromhex((_GOLDEN / f"{fields['schema'].replace('/', '-')}.hex").read_text())


def _travelling(kind: type[Contract]) -> Iterator[type[Contract]]:
    for below in kind.__subclasses__():
        yield from _travelling(below)
        if below.schema_name and below.__module__.startswith("bus."):
            yield below


@each_example
def test_the_golden_bytes_say_what_the_example_says(contract: Contract, fields: dict[str, Any]) -> None:
    assert msgpack.unpackb(_golden(fields)) == fields


@each_example
def test_a_contract_is_written_as_the_golden_bytes(contract: Contract, fields: dict[str, Any]) -> None:
    assert encode(contract).hex() == _golden(fields).hex()


@each_example
def test_the_golden_bytes_are_read_as_the_contract(contract: Contract, fields: dict[str, Any]) -> None:
    assert decode(type(contract), _golden(fields)) == contract


@each_example
def test_json_is_read_as_the_contract(contract: Contract, fields: dict[str, Any]) -> None:
    written = json.loads(encode_json(contract))
    assert written["schema"] == fields["schema"]
    assert set(fields) <= set(written)


def test_every_contract_that_travels_has_golden_bytes() -> None:
    travelling = {f"{kind.schema_name}/{kind.schema_version}" for kind in _travelling(Contract)}
    assert travelling == {fields["schema"] for _, fields in EXAMPLES}


def write_missing() -> None:
    """Make the golden bytes of new examples: `python -m tests.bus.contracts.test_golden`; old ones stay."""
    for _, fields in EXAMPLES:
        path = _GOLDEN / f"{fields['schema'].replace('/', '-')}.hex"
        if not path.exists():
            path.write_text("\n".join(textwrap.wrap(msgpack.packb(fields).hex(), 100)) + "\n")


if __name__ == "__main__":
    write_missing()
