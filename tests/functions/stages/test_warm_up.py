"""A hot worker's models have run: what the first run of each would have had to do is done."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from functions.registry import load_functions
from functions.spec import FunctionSpec
from runtime.repository import Repository

WARMED = [spec for spec in load_functions() if spec.warm_up is not None]


def test_every_model_that_takes_long_to_run_for_the_first_time_can_be_warmed_up() -> None:
    assert {spec.name for spec in WARMED} >= {
        *("text.embed", "image.embed", "image.encode", "image.ocr", "audio.transcribe", "speak", "generate"),
    }


@pytest.mark.models
@pytest.mark.parametrize("spec", WARMED, ids=[spec.name for spec in WARMED])
async def test_the_model_runs_when_it_is_warmed_up(spec: FunctionSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.engines.onnx import OnnxSession

    assert spec.setup is not None
    assert spec.warm_up is not None
    model = spec.setup(Repository())
    runs = []
    translated = OnnxSession.translated

    def counted(session: OnnxSession) -> AbstractContextManager[None]:
        runs.append(session.name)
        return translated(session)

    monkeypatch.setattr(OnnxSession, "translated", counted)  # every run of a session goes through it
    try:
        await spec.warm_up(model)
    finally:
        if hasattr(model, "close"):
            model.close()
    assert runs
