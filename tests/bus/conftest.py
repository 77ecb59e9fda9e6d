from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bus.store.s3_server import s3_server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint
