"""The pipelines of a deployment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bus.errors import PipelineInvalidError, UnknownPipelineError
from bus.memory import MemoryBus
from functions.flow.catalog import Pipelines, PlanCache
from tests.functions.words import DIAMOND, Log, word_functions


def test_a_later_folder_replaces_pipelines_of_an_earlier_one(tmp_path: Path) -> None:
    for name, description in (("first", "old"), ("second", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "diamond.yaml").write_text(yaml.safe_dump({**DIAMOND, "description": description}))
    loaded = Pipelines.load(word_functions(Log()), [tmp_path / "first", tmp_path / "second"])
    assert [(plan.pipeline, plan.description) for plan in loaded] == [("diamond", "new")]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalidError, match="nowhere of pipelines"):
        Pipelines.load(word_functions(Log()), [tmp_path / "nowhere"])


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    functions = word_functions(Log())
    for description in ("as it was", "and as it is now"):
        (tmp_path / "diamond.yaml").write_text(yaml.safe_dump({**DIAMOND, "description": description}))
        assert Pipelines.load(functions, [tmp_path]).get("diamond").description == description


async def test_a_plan_that_another_release_has_written_is_an_unknown_one(tmp_path: Path) -> None:
    (tmp_path / "diamond.yaml").write_text(yaml.safe_dump(DIAMOND))
    pipelines = Pipelines.load(word_functions(Log()), [tmp_path])
    async with MemoryBus() as bus:
        bucket = await bus.bucket("plans")
        await pipelines.announce(bucket)
        await bucket.put("f" * 64, b'{"schema": "omnibus.plan/99"}')
        plans, known = PlanCache(bucket), pipelines.get("diamond")
        assert await plans.get(known.digest) == known
        with pytest.raises(UnknownPipelineError, match="cannot be read here"):
            await plans.get("f" * 64)
