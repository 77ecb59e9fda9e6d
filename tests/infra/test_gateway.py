"""An open door is told of."""

from __future__ import annotations

import pytest

from infra.local.gateway import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.7", False),
        ("gpu-7.example.org", False),
    ],
)
def test_only_loopback_addresses_are_out_of_reach_of_others(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
