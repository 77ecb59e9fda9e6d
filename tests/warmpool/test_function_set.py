"""Functions are set up side by side; one that cannot run keeps no other one, says why, and is tried again."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.errors import ModelNotFoundError, WorkerStartError
from functions.context import Context
from runtime.engines.onnx import OnnxSession
from runtime.repository import Repository
from tests.runtime.engines.small_model import install
from tests.warmpool.function_sets import ANSWER, HERE, LATE, Number, mending, spec, working


async def test_a_function_whose_model_is_missing_says_so_and_the_others_serve(tmp_path: Path) -> None:
    install(tmp_path, seed=1)
    async with working(tmp_path, LATE, HERE) as worker:
        await worker.functions.load()
        assert worker.functions.ready == ("test.here",)
        assert set(worker.timings_s) == {"test.here"}
        found, refused = await asyncio.gather(worker.ask("test.here"), worker.ask("test.late"))
        assert found.outputs["value"] == pytest.approx(ANSWER, rel=1e-3)
        assert refused.error is not None
        assert (refused.error.code, refused.error.retryable) == ("model_not_found", False)
        told = worker.error("test.late")
        assert told is not None
        assert (told.code, told.message) == ("model_not_found", refused.error.message)


async def test_a_model_that_is_installed_later_is_served_without_a_restart(tmp_path: Path) -> None:
    install(tmp_path, seed=1)
    async with working(tmp_path, HERE, LATE) as worker:
        await worker.functions.load()
        async with mending(worker):
            worker.repository.alias("late", "tiny@1")
            while len(worker.functions.ready) < 2:
                await asyncio.sleep(0.01)
        assert worker.changes[-1] == ("test.here", "test.late")
        assert worker.error("test.late") is None
        assert (await worker.ask("test.late")).outputs["value"] == pytest.approx(ANSWER, rel=1e-3)


async def test_a_damaged_model_is_told_as_damaged_and_served_when_it_is_whole(tmp_path: Path) -> None:
    file = install(tmp_path, seed=1)
    file.with_name("model.data").write_bytes(b"")
    async with working(
        tmp_path, spec("test.damaged", "tiny"), spec("test.plain", setup=lambda repository: None)
    ) as worker:
        await worker.functions.load()
        refused = await worker.ask("test.damaged")
        assert refused.error is not None
        assert refused.error.code == "model_corrupt"
        async with mending(worker):
            install(tmp_path / "staging", version="2", seed=1)
            shutil.move(tmp_path / "staging" / "tiny" / "2", tmp_path / "tiny" / "2")
            while len(worker.functions.ready) < 2:
                await asyncio.sleep(0.01)
        assert (await worker.ask("test.damaged")).outputs["value"] == pytest.approx(ANSWER, rel=1e-3)


async def test_what_another_worker_can_do_is_left_to_it_and_taken_when_that_is_gone(tmp_path: Path) -> None:
    install(tmp_path, seed=1)
    async with working(tmp_path, HERE, LATE) as worker:
        worker.elsewhere = {"test.late"}
        await worker.functions.load()
        asked = asyncio.create_task(worker.ask("test.late"))
        assert len(worker.functions.consumers) == 1
        assert (await worker.ask("test.here")).error is None
        assert not asked.done()
        async with mending(worker):
            worker.elsewhere = set()
            refused = await asked
            assert refused.error is not None
            assert refused.error.code == "model_not_found"
            worker.elsewhere = {"test.late"}
            while len(worker.functions.consumers) > 1:
                await asyncio.sleep(0.01)


async def test_a_worker_that_leaves_takes_no_function_that_could_run_by_now(tmp_path: Path) -> None:
    install(tmp_path, seed=1)
    async with working(tmp_path, HERE, LATE) as worker:
        worker.elsewhere = {"test.late"}
        await worker.functions.load()
        async with mending(worker):
            worker.repository.alias("late", "tiny@1")
            worker.functions.leave()
            worker.elsewhere = set()
            while not worker.models.changes:  # it has looked, and would have begun to mend
                await asyncio.sleep(0.01)
            async with asyncio.timeout(30):
                await worker.ended.wait()
        assert worker.functions.ready == ("test.here",)
        assert len(worker.functions.consumers) == 1


async def test_a_setup_that_breaks_is_a_function_that_cannot_run(tmp_path: Path) -> None:
    def breaks(repository: Repository) -> None:
        raise KeyError("hidden")

    install(tmp_path, seed=1)
    async with working(tmp_path, HERE, spec("test.breaks", "tiny", setup=breaks)) as worker:
        await worker.functions.load()
        refused = await worker.ask("test.breaks")
        assert refused.error is not None
        assert (refused.error.code, refused.error.message) == ("worker_start_failed", "KeyError: 'hidden'")


async def test_where_no_function_can_run_the_worker_does_not_start(tmp_path: Path) -> None:
    async with working(tmp_path, HERE, LATE) as worker:
        with pytest.raises(
            WorkerStartError, match=r"'test.here' did not start: .*'tiny'.*; function 'test.late'"
        ) as told:
            await worker.functions.load()
        assert isinstance(told.value.__cause__, ModelNotFoundError)
        assert worker.functions.consumers == []


async def test_where_workers_are_started_on_demand_one_without_any_model_stays_and_says_why(tmp_path: Path) -> None:
    async with working(tmp_path, HERE, LATE, on_demand=True) as worker:
        asked = asyncio.create_task(worker.ask("test.here"))
        await worker.functions.load()
        refused = await asked
        assert refused.error is not None
        assert refused.error.code == "model_not_found"
        assert not worker.functions.ready
        async with mending(worker):
            install(tmp_path, seed=1)
            while worker.functions.ready != ("test.here",):
                await asyncio.sleep(0.01)
        assert (await worker.ask("test.here")).outputs["value"] == pytest.approx(ANSWER, rel=1e-3)


async def test_those_are_set_up_first_that_somebody_waits_for_and_serve_before_the_others_are_ready(
    tmp_path: Path,
) -> None:
    order: list[str] = []
    held = threading.Event()

    def waits(repository: Repository) -> OnnxSession:
        order.append("test.slow")
        held.wait(30)
        return load(repository)

    def load(repository: Repository) -> OnnxSession:
        return OnnxSession(repository.file(repository.resolve("tiny"), "model.onnx"), threads=1)

    def asked(repository: Repository) -> OnnxSession:
        order.append("test.asked")
        return load(repository)

    install(tmp_path, seed=1)
    slow, wanted = spec("test.slow", "tiny", setup=waits), spec("test.asked", "tiny", setup=asked)
    async with working(tmp_path, slow, wanted) as worker:
        waiting = asyncio.create_task(worker.ask("test.asked"))
        bus = worker.client.bus
        while not any(pending for pending, _ in (await bus.backlog("test.asked")).values()):
            await asyncio.sleep(0.01)
        loading = asyncio.create_task(worker.functions.load())
        assert (await waiting).outputs["value"] == pytest.approx(ANSWER, rel=1e-3)
        assert not loading.done()
        held.set()
        await loading
        assert order == ["test.asked", "test.slow"]
        assert worker.functions.ready == ("test.slow", "test.asked")


async def test_the_others_are_set_up_when_all_that_was_asked_for_has_run(tmp_path: Path) -> None:
    order: list[str] = []
    install(tmp_path, seed=1)

    async def run(context: Context[Any], inputs: Number) -> Number:
        await asyncio.sleep(0.1)
        order.append("ran")
        return inputs

    def noted(name: str) -> Callable[[Repository], None]:
        return lambda repository: order.append(name)

    wanted = replace(spec("test.asked", setup=noted("asked")), handler=run)
    async with working(tmp_path, spec("test.other", setup=noted("other")), wanted) as worker:
        waiting = [asyncio.create_task(worker.ask("test.asked")) for _ in range(6)]  # more than there are slots
        bus = worker.client.bus
        while sum(pending for pending, _ in (await bus.backlog("test.asked")).values()) < 6:
            await asyncio.sleep(0.01)
        await worker.functions.load()
        await asyncio.gather(*waiting)
        assert order == ["asked", *["ran"] * 6, "other"]
