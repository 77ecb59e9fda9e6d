"""A store on a real S3 server, and settings that name it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ByteSize

from bus.store.bucket import S3Bucket
from infra.model_store import model_store
from infra.settings import Settings
from tests.bus.store.s3_server import s3_server


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def settings(s3_endpoint: str, tmp_path: Path) -> Settings:
    return Settings(
        models=tmp_path / "here" / "models",
        models_from=f"s3://models-{secrets.token_hex(4)}/team?endpoint=http://{s3_endpoint}",
        store_access_key="access",
        store_secret_key="secret",
        download_part=ByteSize(100_000),
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[S3Bucket]:
    with model_store(settings) as opened:
        assert opened is not None
        opened.ensure()
        yield opened
