"""A pool and a worker understand each other, and nothing else."""

from __future__ import annotations

import socket

import pytest

from bus.contracts import Tier
from bus.errors import PoolError
from warmpool.protocol import Channel, Failed, Message, Promote, Reached, from_line, to_line

LINES: list[tuple[Message, bytes]] = [
    (Promote(Tier.LOADED), b'{"promote": "loaded"}\n'),
    (Reached(Tier.HOT, {"bus": 0.25}), b'{"reached": "hot", "timings_s": {"bus": 0.25}}\n'),
    (Failed("model_not_found", "no model 'x'"), b'{"failed": "model_not_found", "message": "no model \'x\'"}\n'),
]


@pytest.mark.parametrize(("message", "line"), LINES)
def test_every_message_has_one_form_on_the_wire(message: Message, line: bytes) -> None:
    assert to_line(message) == line
    assert from_line(line) == message


@pytest.mark.parametrize("line", [b"", b"\xff\n", b"[]\n", b'{"promote": "warmer"}\n', b'{"fork": 1}\n', b"{}\n"])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(PoolError):
        from_line(line)


async def test_both_ends_hear_what_the_other_one_says_and_that_it_is_gone() -> None:
    left, right = (Channel(connection) for connection in socket.socketpair())
    await left.open()
    await right.open()
    for message, _ in LINES:
        left.say(message)
    assert [await right.hear() for _ in LINES] == [message for message, _ in LINES]
    right.say(LINES[0][0])
    await right.close()
    await right.close()
    assert await left.hear() == LINES[0][0]
    assert await left.hear() is None
    left.say(LINES[0][0])
    await left.close()
