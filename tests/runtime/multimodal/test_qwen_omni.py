"""Qwen2.5-Omni's thinker against transformers: sound in windows, films with their sound on one time axis."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
    WhisperFeatureExtractor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from runtime.generation.request import MEDIA_TOKEN
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import film, scene
from tests.runtime.multimodal.heard import RATE, sound
from tests.runtime.multimodal.omni import (
    CLIP,
    FILM,
    FILM_PIXELS,
    HEAR,
    HEARD,
    LOOK,
    LOOKED,
    PICTURE,
    PLAIN,
    TOKENS,
    Pair,
    Piece,
    Right,
    Seen,
)
from tests.runtime.multimodal.served import Prompt, Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}" + PICTURE + ""
    "{% elif part.type == 'video' %}" + FILM + "{% else %}" + CLIP + "{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
)
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]},
}  # fmt: skip
SEEING = {
    "depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 64,
    "fullatt_block_indexes": [1],
}  # fmt: skip
HEARING = {
    "d_model": 48, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 80, "num_mel_bins": 24,
    "output_dim": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    words = tokenizer(LOOK, LOOKED, HEAR, HEARD, *TOKENS.values(), "<|im_start|>", "<|im_end|>", template=TEMPLATE)
    numbers: dict[str, Any] = {f"{kind}_token_index": number(words, token) for kind, token in TOKENS.items()}
    numbers["audio_start_token_id"] = number(words, HEAR)
    config = Qwen2_5OmniThinkerConfig(
        text_config=TEXT,
        vision_config=SEEING,
        audio_config=HEARING,
        **numbers,
    )
    config.vision_start_token_id = number(words, LOOK)
    model, folder = Qwen2_5OmniThinkerForConditionalGeneration(config), tmp_path_factory.mktemp("saved")
    reference.randomise(model)
    with torch.no_grad():
        model.get_parameter("model.visual.patch_embed.proj.weight").mul_(0.03)
    model.train(False)
    pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": 40 * 28 * 28})
    sounds = WhisperFeatureExtractor(feature_size=24)  # type: ignore[no-untyped-call]
    both = json.loads(pictures.to_json_string()) | json.loads(sounds.to_json_string())
    (folder / "preprocessor_config.json").write_text(json.dumps(both))
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": FILM_PIXELS}))
    words.save_pretrained(folder)
    reference.save(model, folder)
    return Pair(model, words, pictures, sounds, Served(folder, tmp_path_factory.mktemp("root"), context=2048), folder)


def check(found: Prompt, right: Right, pair: Pair) -> None:
    """Tokens, their places and positions, and embeddings of the whole prompt."""
    ids, media = found.tokens.ids.tolist(), [number(pair.words, token) for token in TOKENS.values()]
    assert [place for place, token in enumerate(right.ids) if token in media] == found.slots.tolist()
    assert [token for token in ids if token != MEDIA_TOKEN] == [token for token in right.ids if token not in media]
    np.testing.assert_array_equal(found.tokens.positions, right.positions.numpy())
    np.testing.assert_allclose(found.embedded, right.embedded.numpy(), atol=1e-4)


# One token, ends of frames, rows and windows of two seconds on either side, many windows.
@pytest.mark.parametrize("samples", [400, 16_000, 31_999, 32_000, 32_001, 32_161, 33_000, 100_001, 470_000])
def test_a_clip_of_any_length_has_the_features_of_the_reference(samples: int, pair: Pair) -> None:
    clip = sound(samples)
    prepared = pair.served.family.audio(clip, PLAIN)
    heard = pair.sounds([clip], sampling_rate=RATE, return_attention_mask=True, return_tensors="pt")
    mel, mask = heard["input_features"], heard["attention_mask"]
    np.testing.assert_allclose(prepared.inputs["mel"], mel[0, :, mask[0].bool()].numpy(), atol=1e-4)
    inner: Any = pair.model.model
    with torch.inference_mode():
        right = inner.get_audio_features(mel, mask).last_hidden_state.numpy()
    np.testing.assert_allclose(pair.served.encode(prepared)[0], right, atol=1e-4)


def test_clips_of_different_lengths_run_together_as_they_would_alone(pair: Pair) -> None:
    pieces = [pair.served.family.audio(sound(count, seed), PLAIN) for seed, count in enumerate((9000, 70_000, 50_000))]
    for piece, found in zip(pieces, pair.served.encode(*pieces), strict=True):
        np.testing.assert_array_equal(found, pair.served.encode(piece)[0])


# A film that its sound outlasts, or that outlasts its sound; steps that no tick falls on.
LENGTHS = [(8, 4.0, 4.0), (12, 6.0, 5.2), (4, 2.0, 5.0), (10, 5.3, 5.25)]


@pytest.mark.parametrize(("frames", "seconds", "heard_s"), LENGTHS)
def test_a_film_and_its_sound_are_on_one_time_axis_in_blocks_of_two_seconds(
    frames: int, seconds: float, heard_s: float, pair: Pair
) -> None:
    seen = Seen(film(frames, seconds), sound(int(heard_s * RATE)))
    text = f"Before {FILM} after {CLIP}."
    pieces: list[Piece] = [("video", seen), ("audio", sound(8000, 1))]
    check(pair.prompt(text, *pieces), pair.right(text, *pieces), pair)


def test_words_come_after_all_of_a_film_whose_sound_ends_early(pair: Pair) -> None:
    found = pair.prompt(f"a{FILM}b", ("video", Seen(film(12, 6.0), sound(2 * RATE))))
    positions = found.tokens.positions
    assert positions is not None
    last = int(positions[:, found.slots].max())
    # Both marks at the end share a position. Transformers puts them behind the sound, among the film's last frames.
    assert positions[0, found.slots[-1] + 1 :].tolist() == [last + 1, last + 1, last + 2]


def test_a_whole_checkpoint_with_a_voice_is_built_from_its_thinker(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    shutil.copytree(pair.folder, folder)
    tensors = {f"thinker.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file({**tensors, "talker.codec_head.weight": torch.zeros(3, 3)}, folder / "model.safetensors")
    thinker = json.loads((folder / "config.json").read_text())
    config = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "talker_config": {"vocab_size": 3}}
    (folder / "config.json").write_text(json.dumps(config))
    served = Served(folder, tmp_path / "root", context=2048)
    ids = np.arange(5, 30, dtype=np.int32)
    np.testing.assert_array_equal(served.decoder.verify(0, ids, 0), pair.served.decoder.verify(0, ids, 0))
    for prepared in (served.family.image(scene(90, 120), PLAIN), served.family.audio(sound(9000), PLAIN)):
        np.testing.assert_array_equal(served.encode(prepared)[0], pair.served.encode(prepared)[0])


def test_a_silent_film_is_placed_as_by_the_reference(pair: Pair) -> None:
    text = f"a{FILM}b{PICTURE}"
    pieces: list[Piece] = [("video", Seen(film(6, 3.0))), ("image", scene(90, 60))]
    check(pair.prompt(text, *pieces), pair.right(text, *pieces), pair)


async def test_everything_mixed_gives_the_logits_and_the_answer_of_the_reference(pair: Pair) -> None:
    turns = [
        f"<|im_start|>user\nA picture {PICTURE}, a film {FILM} and {CLIP}{CLIP}.<|im_end|>\n",
        f"<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\n{FILM}{PICTURE}and?<|im_end|>\n",
    ]
    text = "".join(turns) + "<|im_start|>assistant\n"
    pieces: list[Piece] = [
        ("image", scene(300, 170)),
        ("video", Seen(film(8, 4.0), sound(4 * RATE))),
        ("audio", sound(20_000, 1)),
        ("audio", sound(33_333, 2)),
        ("video", Seen(film(4, 2.0, 60, 90), sound(2 * RATE, 3))),
        ("image", scene(50, 170, 1)),
    ]
    right, found = pair.right(text, *pieces), pair.prompt(text, *pieces)
    check(found, right, pair)
    logits = merged.logits(pair.model, right.embedded, right.positions)[-1]
    np.testing.assert_allclose(pair.served.logits(found), logits, atol=1e-3)
    answer = merged.greedy(pair.model, right.embedded, 32, right.positions)
    other = f"What is {CLIP}?"
    alone = pair.right(other, pieces[2])
    beside = merged.greedy(pair.model, alone.embedded, 32, alone.positions)
    assert len(set(answer)) > 8
    assert answer != beside
    assert await pair.served.greedy(32, found, pair.prompt(other, pieces[2])) == [answer, beside]
