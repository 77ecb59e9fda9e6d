"""`audio.live`: a stream heard event by event, each of which any worker may take."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import functions.stages.audio.live
import functions.stages.audio.preprocess  # noqa: F401 - registers a function
from bus.contracts import MediaLimits
from bus.errors import ContractError, InvalidInputError
from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from runtime.media.audio import decode
from tests.made.sounds import wav
from tests.made.voice import RATE_HZ, said

pytestmark = pytest.mark.models

RATE = 16_000
TEXT = "Nobody knows the answer to that question. We will ask again in the morning."


async def hear(environment: FunctionEnvironment, samples: NDArray[np.float32], **inputs: Any) -> dict[str, Any]:
    ref = await save_media(environment.store, wav(samples, RATE), "audio/wav")
    clips = await environment.run("audio.preprocess", {"clips": [{"part": 0, "ref": ref.model_dump()}]})
    return await environment.run("audio.live", {"clips": clips["clips"], **inputs})


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


async def test_progress_carries_a_stream_from_event_to_event(environment: FunctionEnvironment) -> None:
    talk = decode(wav(said(TEXT), RATE_HZ), MediaLimits())
    settled, progress = list[str](), None
    for end in range(2 * RATE, len(talk) + 2 * RATE, 2 * RATE):
        begun = 0 if progress is None else round(progress["begun_s"] * RATE)
        heard = await hear(environment, talk[begun:end], progress=progress, last=end >= len(talk))
        settled += words(heard["settled"])
        assert settled == words(TEXT)[: len(settled)]
        progress = heard["progress"]
    assert settled == words(TEXT)
    assert heard["tail"] == ""
    assert progress is not None
    assert progress["language"] == "en"


async def test_silence_leaves_nothing_to_send_again(environment: FunctionEnvironment) -> None:
    heard = await hear(environment, np.zeros(5 * RATE, np.float32))
    assert (heard["settled"], heard["tail"]) == ("", "")
    assert heard["progress"]["begun_s"] > 4.0


async def test_what_is_no_progress_is_refused(environment: FunctionEnvironment) -> None:
    talk = decode(wav(said(TEXT), RATE_HZ), MediaLimits())[: 2 * RATE]
    with pytest.raises(InvalidInputError, match="before is 3"):
        await hear(environment, talk, progress={"before": 3})
    with pytest.raises(InvalidInputError, match="'klingon'"):
        await hear(environment, talk, progress={"language": "klingon"})
    with pytest.raises((InvalidInputError, ContractError), match="begun_s"):
        await hear(environment, talk, progress={"begun_s": -1.0})
    with pytest.raises((InvalidInputError, ContractError), match="settled_s"):
        await hear(environment, talk, progress={"settled_s": float("inf")})  # JSON has no word for the answer
    with pytest.raises((InvalidInputError, ContractError), match="guess"):
        await hear(environment, talk, progress={"guess": [{"start_s": 0.0, "end_s": 0.1, "text": "a"}] * 449})
