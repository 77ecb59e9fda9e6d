"""What the tests of residency share."""

from __future__ import annotations

import pytest

from tests.runtime.residency.hosts import Host


@pytest.fixture
def host() -> Host:
    return Host()
