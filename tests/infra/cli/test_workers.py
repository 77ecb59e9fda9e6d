"""`omnibus workers`: a table that is aligned and fits 120 columns, of whatever workers there are."""

from __future__ import annotations

from typing import Any

from bus.contracts import ErrorRecord, FunctionStatus, Lease, Tier, WorkerState
from infra.cli.workers import report

NOW_S = 1_700_000_000.0


def lease(worker: str, *functions: str, state: WorkerState = WorkerState.READY, **fields: Any) -> Lease:
    return Lease(
        worker=worker, group=worker.partition("-")[0], host="h", pid=1, state=state, functions=functions,
        started_s=NOW_S - 3_725, renewed_s=NOW_S, **fields,
    )  # fmt: skip


def test_every_worker_has_a_row_and_what_it_serves_below_it() -> None:
    error = ErrorRecord(code="model_not_found", message="no model 'kokoro-82m' is installed in the models folder; " * 3)
    encode = lease(
        "encode-0a1b2c", "image.embed", "image.encode", "image.ocr", "text.embed", "tokens.encode", "tokens.more",
        tier=Tier.HOT, slots=44, busy=3, served=12_345, unique_nbytes=181_400_000, models=("label-space",),
        encoder_cache={"hits": 7, "misses": 3},
        resident={
            "all-minilm-l6-v2@1": 23_000_000, "label-space@2024-05-01+efficientnet-lite0@1": 42_000_000,
            "a-name-that-would-be-parted-at-its-end@1": 1_000_000,
        },
    )  # fmt: skip
    speech = lease(
        "speech-9f8e7d", "audio.transcribe", slots=4, tier=Tier.LOADED,
        status={"audio.transcribe": FunctionStatus(slots=4), "speak": FunctionStatus(slots=4, error=error)},
    )  # fmt: skip
    leaving = lease("media-112233", "media.fetch", state=WorkerState.DRAINING, slots=16, busy=1)
    lines = list(report([encode, speech, leaving], NOW_S))
    assert max(len(line) for line in lines) <= 120
    assert not any(line.endswith("-") for line in lines)  # a name is not parted
    rows = {line.split()[0]: line.split() for line in lines if not line.startswith(" ")}
    assert rows["encode-0a1b2c"][1:] == ["READY", "hot", "3725", "3/44", "12345", "7/10", "181"]
    assert rows["speech-9f8e7d"][1:4] == ["DEGRADED", "loaded", "3725"]
    assert rows["media-112233"][1:] == ["DRAINING", "3725", "1/16", "0"]
    title = lines[0]
    for name, cell in (("STATE", "READY"), ("TIER", "hot"), ("BUSY", "3/44"), ("SERVED", "12345")):
        assert lines[1].index(cell) == title.index(name)
    assert lines[1].index("181") + 3 == title.index("UNIQUE MB") + len("UNIQUE MB")
    text = " ".join(" ".join(lines).split())
    assert "models label-space@2024-05-01+efficientnet-lite0@1 42 MB, all-minilm-l6-v2@1 23 MB, a-name" in text
    assert "functions image.embed, image.encode, image.ocr, text.embed, tokens.encode, tokens.more" in text
    assert "! speak cannot run [model_not_found]: no model 'kokoro-82m' is installed" in text


def test_a_worker_that_was_not_heard_of_is_unhealthy() -> None:
    silent = lease("encode-0a1b2c", "image.embed").model_copy(update={"renewed_s": NOW_S - 9})
    assert "UNHEALTHY" in list(report([silent], NOW_S))[1]
