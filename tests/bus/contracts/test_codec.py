from __future__ import annotations

import contextlib
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import Event, Lane, Modality, ReplyFormat, Request, Result, ResultStatus, TensorRef, TokenBlock
from bus.contracts.codec import decode, digest, digest_of, encode, encode_json, validate
from bus.errors import InvalidInputError, UnknownSchemaError

_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
_leaves = st.none() | st.booleans() | _numbers | _words | st.binary(max_size=40)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4), max_leaves=12
)
_named = st.dictionaries(_words, _values, max_size=4)
_seconds = st.floats(0, 4e9)
_requests = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)

_events = st.builds(
    Event,
    request=_requests,
    stage=_words,
    function=_words,
    pipeline=_words,
    plan=_words,
    sequence=st.integers(0, 2**31),
    tenant=_words,
    lane=st.sampled_from(Lane),
    created_s=_seconds,
    deadline_s=st.none() | _seconds,
    budget=st.dictionaries(_words, st.integers(0, 2**40), max_size=3),
    inputs=_named,
    carry=_named,
    labels=st.dictionaries(_words, _words, max_size=3),
    traceparent=st.none() | _words,
    reply_format=st.sampled_from(ReplyFormat),
)


@st.composite
def _tensors(draw: st.DrawFn) -> TensorRef:
    data = draw(st.binary(max_size=64))
    return TensorRef(digest=digest(data), dtype="uint8", shape=(len(data),), nbytes=len(data), inline=data)


@given(event=_events)
def test_any_event_comes_back_equal(event: Event) -> None:
    assert decode(Event, encode(event)) == event


@given(event=_events)
def test_any_event_is_msgpack_that_others_can_read(event: Event) -> None:
    fields = msgpack.unpackb(encode(event))
    assert fields["schema"] == "omnibus.event/1"
    assert fields["inputs" if event.inputs else "request"] == (event.inputs or event.request)


@given(outputs=_named, created_s=_seconds)
def test_any_result_comes_back_equal(outputs: dict[str, Any], created_s: float) -> None:
    result = Result(
        request="r",
        pipeline="p",
        status=ResultStatus.SUCCEEDED,
        outputs=outputs,
        created_s=created_s,
        finished_s=created_s,
    )
    assert decode(Result, encode(result)) == result


@given(tensor=_tensors(), text=_words)
def test_a_tensor_survives_json_too(tensor: TensorRef, text: str) -> None:
    block = TokenBlock(modality=Modality.TEXT, text=text, encoder="e@1", source=tensor.digest)
    assert decode(TokenBlock, encode_json(block)) == block
    assert validate(TensorRef, tensor.model_dump(mode="json")) == tensor


@given(data=st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail_in_another_way(data: bytes) -> None:
    with contextlib.suppress(InvalidInputError, UnknownSchemaError):
        decode(Request, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"\x93\x01\x02\x03",
        b"\xff",
        b"{}",
        b'{"request": "r"',
        b'{"request": "r", "pipeline": "p", "surprise": 1}',
        b'{"request": "a.b", "pipeline": "p"}',
        b'{"request": "", "pipeline": "p"}',
        b'{"request": "r", "pipeline": "p", "lane": "fast"}',
        b'{"request": "r", "pipeline": "p", "inputs": ' + b'{"x":' * 100_000,
        b'{"request": "r", "pipeline": "p", "inputs": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_a_message_outside_the_contract_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        decode(Request, data)


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", {1: 2}, object(), _nested(2000)])
def test_a_value_that_cannot_travel_is_refused_with_a_remedy(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"omnibus\.request/1: .*cannot travel"):
        encode(Request(request="r", pipeline="p", inputs={"x": value}))


@pytest.mark.parametrize("value", ["\ud800", object(), _nested(2000)])
def test_a_value_without_a_form_in_json_is_refused_with_a_remedy(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"omnibus\.request/1: .*cannot travel"):
        encode_json(Request(request="r", pipeline="p", inputs={"x": value}))


@pytest.mark.parametrize("request_id", ["", "a.b", ">", "a b", "a\r\nPUB x 0", "x" * 65])
def test_a_request_id_is_one_token_of_a_subject_wherever_it_travels(request_id: str) -> None:
    for kind in (Request, Event):
        fields = {"request": request_id, "pipeline": "p", "stage": "s", "function": "f", "created_s": 0.0}
        wanted = {name: value for name, value in fields.items() if name in kind.model_fields}
        with pytest.raises(InvalidInputError, match="request id"):
            decode(kind, msgpack.packb(wanted))


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"request: .*; .*lane: ") as caught:
        decode(Request, b'{"request": "a b", "pipeline": "p", "lane": "fast"}')
    assert len(caught.value.details["problems"]) == 2


@pytest.mark.parametrize("schema", ["omnibus.request/2", "omnibus.event/1", "", 7])
def test_another_schema_or_version_is_not_read(schema: Any) -> None:
    data = msgpack.packb({"request": "r", "pipeline": "p", "schema": schema})
    with pytest.raises(UnknownSchemaError, match=r"omnibus\.request/1"):
        decode(Request, data)


def test_a_message_without_a_schema_is_read_as_what_is_expected() -> None:
    assert decode(Request, b'{"request": "r", "pipeline": "p"}') == Request(request="r", pipeline="p")


# From the test vectors of the BLAKE3 specification: input of 0 and of 1 byte (0x00).
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (b"\x00", "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
    ],
)
def test_digests_are_blake3(data: bytes, expected: str) -> None:
    assert digest(data) == expected


@given(values=st.dictionaries(_words, _leaves, min_size=2))
def test_a_digest_of_values_does_not_depend_on_their_order(values: dict[str, Any]) -> None:
    assert digest_of(values) == digest_of(dict(reversed(values.items())))
