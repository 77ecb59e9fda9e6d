"""Families of models that see, through the stages: the answer of transformers for the same media and prompt."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from bus.contracts import MediaLimits
from bus.errors import InvalidInputError, error_from_code
from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from functions.flow.catalog import Pipelines
from functions.registry import registry
from runtime.media.video import open_video
from runtime.multimodal.family import Detail, Film
from tests.made.films import drifting, film
from tests.runtime.multimodal import idefics2_pair, idefics3_pair, llava_pair, merged
from tests.runtime.multimodal.drawn import scene

registry.load("functions.stages")

COUNT = 20
Turns = list[dict[str, Any]]


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Any]:
    """Ask the native pipeline in this process: messages and media in, the answer out."""
    async with FunctionEnvironment(models=root) as environment:
        (plan,) = [plan for plan in Pipelines.load(registry) if plan.pipeline == "native"]
        client = await environment.serve(plan)

        async def ask(turns: Turns, media: Sequence[bytes], kind: str = "image/png", **more: Any) -> dict[str, Any]:
            kept = [{"ref": (await save_media(environment.store, one, kind)).model_dump()} for one in media]
            given = {"messages": turns, "model": "small", "media": kept, "sampling": {"max_tokens": COUNT}, **more}
            async with client.submit("native", given) as running:
                result = await running.result()
            if result.error is not None:
                raise error_from_code(result.error.code, result.error.message, **result.error.details)
            answer: dict[str, Any] = result.outputs["answer"]
            return answer

        yield ask
        for name, model in environment._models.items():
            if name.startswith(("generate", "tokens.encode")):
                model.close()


def png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def written(words: PreTrainedTokenizerFast, turns: Turns, kind: str = "image") -> str:
    """The reference's prompt, with a placeholder for each piece of media."""
    chat = [
        {
            **turn,
            "content": [{"type": "text", **part} if "text" in part else {"type": kind} for part in turn["content"]],
        }
        for turn in turns
    ]
    return str(words.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))


def answer(model: PreTrainedModel, words: PreTrainedTokenizerFast, embedded: torch.Tensor) -> str:
    """What the reference goes on with, greedily."""
    tokens = merged.greedy(model, embedded, COUNT)
    ends = [place for place, token in enumerate(tokens) if token == words.eos_token_id]
    return str(words.decode(tokens[: ends[0]] if ends else tokens, skip_special_tokens=True)).replace("\ufffd", "")


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


async def test_llava_onevision_looks_closely_at_a_picture_that_is_alone(tmp_path: Path) -> None:
    pair = llava_pair.make(tmp_path / "saved", tmp_path / "root")
    pictures = [scene(300, 170), scene(120, 200, 2)]
    one = [user({"part": 0}, {"text": "What is this?"})]
    two = [*one, {"role": "assistant", "content": [{"text": "A wave."}]}, user({"part": 1}, {"text": "And this?"})]
    async with serving(tmp_path / "root") as ask:
        for turns, shown in ((one, pictures[:1]), (two, pictures)):
            given = pair.given(written(pair.words, turns), shown)
            found = await ask(turns, [png(picture) for picture in shown])
            assert found["text"] == answer(pair.model, pair.words, pair.embedded(given))
            assert found["usage"]["prompt_tokens"] == given["input_ids"].shape[1]


async def test_a_picture_is_never_more_tokens_than_it_may_become(tmp_path: Path) -> None:
    llava_pair.make(tmp_path / "saved", tmp_path / "root")
    turns, picture = [user({"part": 0}, {"text": "What is this?"})], png(scene(300, 170))
    async with serving(tmp_path / "root") as ask:
        found = await ask(turns, [picture], options=[{"part": 0, "max_tokens": 2}])
        assert found["sources"][0]["tokens"] == 2
        with pytest.raises(InvalidInputError, match=r"media 0 for small@1: .* still be 2 tokens.*ask for 2 or more"):
            await ask(turns, [picture], options=[{"part": 0, "max_tokens": 1}])


async def test_idefics2_has_one_mark_between_two_pictures_and_a_space_before_letters(tmp_path: Path) -> None:
    pair = idefics2_pair.make(tmp_path / "saved", tmp_path / "root", splitting=True)
    pictures = [scene(300, 170), scene(120, 200, 2), scene(40, 50, 3)]
    turns = [user({"part": 0}, {"part": 1}, {"text": "Which of them?"}), user({"text": "Or"}, {"part": 2})]
    given = pair.given(written(pair.words, turns), pictures)
    async with serving(tmp_path / "root") as ask:
        found = await ask(turns, [png(picture) for picture in pictures])
    assert found["text"] == answer(pair.model, pair.words, pair.embedded(given))
    assert found["usage"]["prompt_tokens"] == given["input_ids"].shape[1]


async def test_smolvlm_sees_a_films_frames_with_their_times(tmp_path: Path) -> None:
    pair = idefics3_pair.make(tmp_path / "saved", tmp_path / "root", "smolvlm")
    data = film(list(range(0, 4000, 100)), width=96, height=64, drawn=drifting(96, 64))
    family = pair.served.family
    with open_video(data, MediaLimits()) as video:
        moments = family.frames(video.seconds, video.frames_per_second, Detail())
        frames = [frame.image for frame in video.frames.at(moments)]
        length = video.seconds
    assert len(frames) > 4
    prepared = family.video(Film(frames, moments, length), Detail())
    turns = [user({"part": 0}, {"text": "What moves?"})]
    # The chat template of the folder has no place for films; the one that is built has.
    before, behind = written(pair.words, turns, "image").split("<image>")
    pixels = torch.from_numpy(idefics3_pair.HALF.apply(prepared.inputs["pixels"]).transpose(0, 3, 1, 2).copy())[None]
    shown = "".join(piece.text or "<image>" * piece.slots for piece in prepared.frame)
    ids = pair.words(before + shown + behind, add_special_tokens=False, return_tensors="pt")["input_ids"]
    model: Any = pair.model.model
    embedded = merged.embedded(pair.model, model.text_model, input_ids=ids, pixel_values=pixels)
    async with serving(tmp_path / "root") as ask:
        found = await ask(turns, [data], "video/x-matroska")
    assert found["text"] == answer(pair.model, pair.words, embedded)
    assert found["usage"]["prompt_tokens"] == ids.shape[1]
