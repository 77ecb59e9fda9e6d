"""Qwen2-Audio against transformers, step by step: mel frames, encoder, tokens, logits, answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bus.errors import MediaUnreadableError, ModelUnsupportedError
from runtime.generation.request import MEDIA_TOKEN
from runtime.multimodal.families.qwen_audio import QwenAudio
from runtime.multimodal.family import Detail
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.heard import sound
from tests.runtime.multimodal.qwen_audio_pair import AUDIO, BEGIN, CLIP, END, Pair, Right, make
from tests.runtime.multimodal.served import Prompt
from tests.runtime.multimodal.words import number

PLAIN = Detail()
PARAMETERS: dict[str, Any] = {
    "encoders": {"audio": "audio.onnx"}, "mels": 24, "window_frames": 3000, "audio_token": AUDIO, "begin": BEGIN,
    "end": END,
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make(tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("root"))


def check(found: Prompt, right: Right, pair: Pair) -> None:
    """Tokens, their places, and embeddings of the whole prompt."""
    audio = number(pair.words, AUDIO)
    assert [audio if token == MEDIA_TOKEN else token for token in found.tokens.ids.tolist()] == right.ids
    np.testing.assert_allclose(found.embedded, right.embedded.numpy(), atol=1e-4)


# The shortest clips, ends of mel frames on either side, a whole window but little, and one to the last sample.
SAMPLES: Sequence[int] = (400, 481, 1600, 16_000, 16_001, 31_999, 400_000, 479_700, 479_900, 480_000)


@pytest.mark.parametrize("samples", SAMPLES)
def test_a_clip_of_any_length_has_the_mel_frames_and_features_of_the_reference(samples: int, pair: Pair) -> None:
    clip = sound(samples)
    prepared = pair.served.family.audio(clip, PLAIN)
    right = pair.right(CLIP, clip)
    mel = prepared.inputs["mel"]
    np.testing.assert_allclose(mel, right.mels[0, :, : mel.shape[1]].numpy(), atol=1e-4)
    assert prepared.tokens == len(right.features[0])
    np.testing.assert_allclose(pair.served.encode(prepared)[0], right.features[0], atol=1e-4)


def test_clips_of_different_lengths_run_together_as_they_would_alone(pair: Pair) -> None:
    pieces = [pair.served.family.audio(sound(samples, seed), PLAIN) for seed, samples in enumerate((9000, 40_000, 700))]
    for piece, found in zip(pieces, pair.served.encode(*pieces), strict=True):
        np.testing.assert_array_equal(found, pair.served.encode(piece)[0])


async def test_clips_between_words_give_the_logits_and_the_answer_of_the_reference(pair: Pair) -> None:
    clips = [sound(20_000), sound(50_000, 1), sound(8000, 2)]
    turns = [
        f"<|im_start|>user\nAudio 1: {CLIP}\nAudio 2: {CLIP}\nWhich is higher?<|im_end|>\n",
        f"<|im_start|>assistant\nThe second.<|im_end|>\n<|im_start|>user\n{CLIP}And this?<|im_end|>\n",
    ]
    text = "".join(turns) + "<|im_start|>assistant\n"
    pieces = [pair.served.family.audio(clip, PLAIN) for clip in clips]
    right, found = pair.right(text, *clips), pair.prompt(text, *pieces)
    check(found, right, pair)
    logits = merged.logits(pair.model, right.embedded)[-1]
    np.testing.assert_allclose(pair.served.logits(found), logits, atol=1e-3)
    answer = merged.greedy(pair.model, right.embedded, 32)
    other = merged.greedy(pair.model, pair.right(f"a{CLIP}b", clips[0]).embedded, 32)
    assert len(set(answer)) > 8
    assert answer != other
    assert await pair.served.greedy(32, found, pair.prompt(f"a{CLIP}b", pieces[0])) == [answer, other]


def test_a_longer_clip_is_heard_in_windows_each_as_if_it_were_alone(pair: Pair) -> None:
    clip = sound(480_000 + 20_000)
    prepared = pair.served.family.audio(clip, PLAIN)
    right = pair.right(f"{CLIP}{CLIP}", clip[:480_000], clip[480_000:])
    check(pair.prompt(CLIP, prepared), right, pair)


def test_nothing_to_hear_is_refused() -> None:
    with pytest.raises(MediaUnreadableError, match="no samples"):
        QwenAudio(PARAMETERS).audio(np.zeros(0, np.float32), PLAIN)


def test_pictures_are_refused() -> None:
    with pytest.raises(ModelUnsupportedError, match="no video"):
        QwenAudio(PARAMETERS).frames(1.0, 25.0, PLAIN)
