"""A host that starts with an empty models folder serves what was published to an object store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bus.store.location import open_bucket
from runtime.repository import Catalog, Repository
from runtime.repository.published import publish
from tests.bus.store.s3_server import s3_server
from tests.delivery import switching
from tests.delivery.switching_worker import switching_worker
from tests.delivery.test_switching import expected
from tests.runtime.engines.small_model import install

HERE = Path(switching.__file__).parent


async def test_a_worker_without_models_fetches_them_from_the_store_and_answers(tmp_path: Path) -> None:
    install(tmp_path / "built", version="1", seed=1)
    with s3_server() as endpoint:
        place = f"s3://models/team?endpoint=http://{endpoint}"
        store = open_bucket(place, access_key="access", secret_key="secret")
        store.ensure()
        publish(Repository(tmp_path / "built", catalog=Catalog(())), "tiny", store)
        store.close()
        shutil.rmtree(tmp_path / "built")
        async with (
            switching_worker(
                tmp_path, OMNIBUS_MODELS_FROM=place,
                OMNIBUS_STORE_ACCESS_KEY="access", OMNIBUS_STORE_SECRET_KEY="secret",
            ) as client,
            client.submit("switching", {"value": 0.5}, timeout_s=60) as running,
        ):  # fmt: skip
            outputs = await running.outputs()
    assert outputs["version"] == "tiny@1"
    assert outputs["value"] == pytest.approx(expected(0.5, "1"), rel=1e-3)
