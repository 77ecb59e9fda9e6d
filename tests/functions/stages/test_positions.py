"""What holds for the positions of any prompt of words, pictures, films and sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from bus.contracts import FramePiece, Modality
from functions.stages.layout import Laid as Prompt
from functions.stages.layout import Layout
from functions.stages.pieces import Markup, Piece, SoftTokens, Words
from runtime.generation.tokenizer import ChatTokenizer
from runtime.multimodal.families.qwen_omni import QwenOmni
from runtime.multimodal.families.qwen_vl import QwenVl
from runtime.multimodal.family import Detail, Film, Laid
from runtime.multimodal.prepared import Prepared
from tests.runtime.multimodal.words import tokenizer

MARKS = ("<|vision_bos|>", "<|audio_bos|>", "<|audio_eos|>", "<|vision_eos|>")
SHARED: dict[str, Any] = {
    "image_token": "<|IMAGE|>", "video_token": "<|VIDEO|>", "audio_token": "<|AUDIO|>", "patch": 14, "frames": 2,
    "merge": 2, "window": 4, "resample": 0, "most_tokens": 4000,
    "image": {"min_pixels": 28 * 28, "max_pixels": 28 * 28 * 30},
    "video": {"min_pixels": 28 * 28, "max_pixels": 28 * 28 * 6, "frames_per_second": 2.0, "min_frames": 4,
              "max_frames": 64, "tokens": 4000},
    "vision_begin": MARKS[0], "begin": MARKS[1], "end": MARKS[2], "vision_end": MARKS[3], "mels": 8,
    "window_frames": 200, "padded_frames": 30_000, "ticks_per_block": 50,
}  # fmt: skip
SEEING = {"encoders": {"image": "vision.onnx", "video": "vision.onnx"}}
FAMILIES: dict[str, Any] = {
    "qwen2_vl": QwenVl({**SHARED, **SEEING, "ticks_per_second": None}),
    "qwen2_5_vl": QwenVl({**SHARED, **SEEING, "ticks_per_second": 4}),
    "qwen2_5_omni": QwenOmni({
        **SHARED, "encoders": {**SEEING["encoders"], "audio": "audio.onnx"}, "ticks_per_second": 25}),
}  # fmt: skip
PLAIN = Detail()


@dataclass(frozen=True)
class Shown:
    """A piece of media in a prompt.

    Attributes:
        modality: What it is.
        positions: int32 `(3, token)`, from 0.
        frame: How it stands in the prompt.
        times_s: Of each token of a film, when its time step begins, from the film's start; None for others.
        ticks: Positions of a second; None: it has no clock.
        step_s: Seconds of a time step.
        joined: Whether pictures and sound are in it together.
    """

    modality: Modality
    positions: NDArray[np.int32]
    frame: tuple[FramePiece, ...]
    times_s: NDArray[np.float64] | None = None
    ticks: float | None = None
    step_s: float = 0.0
    joined: bool = False


def laid(prepared: Prepared) -> Laid:
    return Laid(np.zeros((prepared.tokens, 1), np.float32), prepared.positions, prepared.frame)


def film_of(family: QwenVl | QwenOmni, ticks: float | None, seconds: float, sound_s: float | None) -> Shown:
    moments = family.frames(seconds, 25.0, PLAIN)
    prepared = family.video(Film((Image.new("RGB", (70, 60)) for _ in moments), moments, seconds), PLAIN)
    _, rows, columns = prepared.grid
    times = np.repeat(np.array(moments[::2]) - moments[0], rows * columns)
    assert prepared.seconds_per_step is not None
    if sound_s is None:
        return Shown(Modality.VIDEO, prepared.positions, prepared.frame, times, ticks, prepared.seconds_per_step)
    sound = family.audio(np.zeros(int(sound_s * 16_000), np.float32), PLAIN)
    joined = family.join(laid(prepared), laid(sound))
    assert joined is not None
    return Shown(Modality.VIDEO, joined.positions, joined.frame, joined=True)


@st.composite
def prompts(draw: st.DrawFn) -> list[str | Shown]:
    """Words and media of one family, in any order."""
    name = draw(st.sampled_from(sorted(FAMILIES)))
    family, ticks = FAMILIES[name], {"qwen2_vl": None, "qwen2_5_vl": 4.0, "qwen2_5_omni": 25.0}[name]
    kinds = ["text", "picture", "film", *(["clip", "film with sound"] if name == "qwen2_5_omni" else [])]
    found: list[str | Shown] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6)):
        if kind == "text":
            found.append(draw(st.text("ab c\n", min_size=1, max_size=12)))
        elif kind == "picture":
            size = draw(st.tuples(st.integers(1, 150), st.integers(1, 150)))
            prepared = family.image(Image.new("RGB", size), PLAIN)
            found.append(Shown(Modality.IMAGE, prepared.positions, prepared.frame))
        elif kind == "clip":
            samples = draw(st.integers(1, 60_000))
            prepared = family.audio(np.zeros(samples, np.float32), PLAIN)
            found.append(Shown(Modality.AUDIO, prepared.positions, prepared.frame))
        else:
            seconds = draw(st.floats(0.2, 15.0))
            sound_s = draw(st.floats(0.1, 15.0)) if kind == "film with sound" else None
            found.append(film_of(family, ticks, seconds, sound_s))
    return found


@cache
def words() -> ChatTokenizer:
    with TemporaryDirectory() as folder:
        tokenizer(*MARKS, template="{{ messages }}").save_pretrained(folder)
        Path(folder, "chat.jinja").write_text("{{ messages }}", encoding="utf-8")
        return ChatTokenizer(Path(folder))


def prompt_of(pieces: Sequence[str | Shown]) -> Prompt:
    layout = Layout(words(), 1)
    for part, piece in enumerate(pieces):
        added: Piece
        if isinstance(piece, str):
            added = Words(Modality.TEXT, piece)
        else:
            rows = np.zeros((piece.positions.shape[1], 1), np.float32)
            added = SoftTokens(piece.modality, rows, piece.positions, part, piece.frame)
        layout.add(added)
    layout.add(Markup("end"))
    return layout.finish()


@settings(max_examples=60, deadline=None)
@given(prompts())
def test_there_are_as_many_places_as_embeddings(pieces: list[str | Shown]) -> None:
    prompt = prompt_of(pieces)
    media = [piece for piece in pieces if isinstance(piece, Shown)]
    assert (prompt.ids == -1).sum() == len(prompt.embeddings) == sum(piece.positions.shape[1] for piece in media)
    assert prompt.positions.shape == (3, len(prompt.ids))


@settings(max_examples=60, deadline=None)
@given(prompts())
def test_words_count_on_by_one_from_behind_all_that_was_before(pieces: list[str | Shown]) -> None:
    prompt = prompt_of(pieces)
    highest = -1
    marks = {words().encode_mark(mark)[0] for mark in MARKS}
    for token, (time, row, column) in zip(prompt.ids.tolist(), prompt.positions.T.tolist(), strict=True):
        if token != -1:
            assert time == row == column
            # Two marks may share a place: that of a film's picture and that of its sound.
            assert time == highest + 1 or (token in marks and time == highest)
        highest = max(highest, time, row, column)


@settings(max_examples=60, deadline=None)
@given(prompts())
def test_positions_never_collide(pieces: list[str | Shown]) -> None:
    prompt = prompt_of(pieces)
    for ((start, stop),) in prompt.spans.values():
        inside = prompt.positions[:, start:stop]
        assert inside.min() > prompt.positions[:, :start].max(initial=-1)
        assert inside.max() < prompt.positions[:, stop:].min()
    for part, piece in enumerate(pieces):
        # A film of which several steps fall on one tick is told apart by nothing; the reference has it so, too. And so
        # are a picture's corner and the sound of the same moment.
        if isinstance(piece, Shown) and not piece.joined and (piece.ticks is None or piece.ticks * piece.step_s >= 1):
            ((start, stop),) = prompt.spans[part]
            found = prompt.positions[:, start:stop]
            assert len(np.unique(found, axis=1).T) == stop - start


@settings(max_examples=60, deadline=None)
@given(prompts())
def test_time_in_positions_is_that_of_the_clock_within_a_step(pieces: list[str | Shown]) -> None:
    prompt = prompt_of(pieces)
    for part, piece in enumerate(pieces):
        if isinstance(piece, Shown) and piece.times_s is not None and piece.ticks is not None:
            ((start, stop),) = prompt.spans[part]
            ticks = prompt.positions[0, start:stop] - prompt.positions[0, start]
            assert np.abs(ticks - piece.times_s * piece.ticks).max() <= piece.step_s * piece.ticks + 1


@pytest.mark.parametrize(("seconds", "sound_s"), [(4.0, 4.0), (7.3, 7.1), (0.7, 3.0)])
def test_sound_and_picture_of_a_moment_have_the_same_time(seconds: float, sound_s: float) -> None:
    shown = film_of(FAMILIES["qwen2_5_omni"], 25.0, seconds, sound_s)
    time, row, column = shown.positions
    blocks = time // 50
    assert (np.diff(blocks) >= 0).all()
    heard = (time == row) & (row == column)
    assert heard.sum() >= int(sound_s * 25)
    for block in np.unique(blocks):
        inside = blocks == block
        # Within two seconds all that is seen stands before all that is heard; the corner of the first picture has the
        # time of a sound.
        assert (np.diff(heard[inside & (time > 0)].astype(int)) >= 0).all()
