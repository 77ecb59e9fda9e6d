"""Tokenizers of GGUF files against the published ones: the same text becomes the same tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter

from bus.errors import ModelCorruptError
from runtime.weights.gguf_tokenizer import chat_template, special_tokens, tokenizer_json

TEXTS = [
    "The year 2024, 12345 and 7!",
    "naïve cafe\u0301 — it's WE'LL\n\n  indented\t",
    "日本語 and 😀😀 a_b+c==d",
    "   spaces   at both ends   ",
    "",
]


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    """A header with a small byte-level vocabulary."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    words.train_from_iterator([*TEXTS, "123 1234 the then caf\u00e9 12 99 the café"], trainer)
    model = json.loads(words.to_str())["model"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": sorted(model["vocab"], key=model["vocab"].__getitem__),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
    }


def ours(metadata: dict[str, Any], pre: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json({**metadata, "tokenizer.ggml.pre": pre}))


@pytest.mark.parametrize("text", TEXTS)
def test_qwen_2_cuts_words_as_its_own_tokenizer_does(text: str, metadata: dict[str, Any]) -> None:
    vocabulary = {token: number for number, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges: Any = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    right = Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    assert ours(metadata, "qwen2").encode(text).ids == right.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS)
def test_llama_3_cuts_words_as_its_own_tokenizer_does(text: str, metadata: dict[str, Any]) -> None:
    right = ours(metadata, "default")
    pattern = Regex(TikTokenConverter().pattern)  # type: ignore[no-untyped-call]
    right.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    right.decoder = decoders.ByteLevel()
    found = ours(metadata, "llama-bpe")
    assert found.encode(text).ids == right.encode(text).ids
    assert found.decode(found.encode(text).ids) == text


def test_ways_of_cutting_words_differ(metadata: dict[str, Any]) -> None:
    lengths = {pre: len(ours(metadata, pre).encode("12345 99").ids) for pre in ("qwen2", "llama-bpe", "gpt-2")}
    assert len(set(lengths.values())) == 3


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokenizer.ggml.pre": "mystery"}, "'mystery'"),
        ({"tokenizer.ggml.model": "llama"}, "'llama'"),
        ({"tokenizer.ggml.tokens": 7}, "damaged"),
        ({"tokenizer.ggml.token_type": [1]}, "damaged"),
        ({"tokenizer.ggml.merges": [1, 2]}, "damaged"),
    ],
)
def test_a_tokenizer_that_is_not_read_is_refused(changes: dict[str, Any], named: str, metadata: dict[str, Any]) -> None:
    with pytest.raises(ModelCorruptError, match=named):
        tokenizer_json({**metadata, **changes})


def test_what_is_missing_is_named(metadata: dict[str, Any]) -> None:
    without = {name: value for name, value in metadata.items() if not name.endswith("merges")}
    with pytest.raises(ModelCorruptError, match="merges"):
        tokenizer_json(without)
    with pytest.raises(ModelCorruptError, match="no chat template"):
        chat_template(metadata)


@pytest.mark.parametrize("number", [-1, 10_000, "2", 1.5])
def test_a_special_token_that_is_no_token_is_refused(number: object, metadata: dict[str, Any]) -> None:
    assert special_tokens({**metadata, "tokenizer.ggml.eos_token_id": 2}) == {"eos": 2}
    with pytest.raises(ModelCorruptError, match="eos"):
        special_tokens({**metadata, "tokenizer.ggml.eos_token_id": number})
