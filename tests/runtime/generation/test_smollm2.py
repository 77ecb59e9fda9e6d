"""The chat model itself. Right values: transformers 5 in float32 on the same GGUF file."""

from __future__ import annotations

import numpy as np
import pytest

from bus.contracts import ModelManifest
from runtime.generation.decoder import Decoder
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Repository

pytestmark = pytest.mark.models

NO_MEDIA = np.zeros((0, 576), np.float32)
# The reference is nowhere nearly undecided: the likeliest token leads by one at every step.
QUESTION = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198,
    1, 4093, 198, 1780, 314, 260, 3575, 282, 3085, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip
ANSWER = [504, 3575, 282, 3085, 314, 19081, 30, 2]


@pytest.fixture(scope="module")
def repository() -> Repository:
    return Repository()


@pytest.fixture(scope="module")
def manifest(repository: Repository) -> ModelManifest:
    return repository.resolve("chat")


@pytest.fixture(scope="module")
def tokenizer(repository: Repository, manifest: ModelManifest) -> ChatTokenizer:
    return ChatTokenizer(repository.folder(manifest))


@pytest.fixture(scope="module")
def decoder(repository: Repository, manifest: ModelManifest) -> Decoder:
    return Decoder(repository.folder(manifest), manifest, slots=8)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (
            "Hello, world! It's 2024 and I'm 37.",
            [19556, 28, 905, 17, 657, 506, 216, 34, 32, 34, 36, 284, 339, 5248, 216, 35, 39, 30],
        ),
        (
            "The quick brown fox\n\n  jumps — naïve café 日本語 😀",
            [504, 2365, 6354, 16438, 8866, 27003, 1841, 15486, 46494, 37366, 17097, 241, 115, 40993, 179, 120, 248,
             40303, 218],
        ),
        ("   leading", [256, 2899]),
        ("", []),
    ],
)  # fmt: skip
def test_text_becomes_the_reference_tokens_and_back(tokenizer: ChatTokenizer, text: str, ids: list[int]) -> None:
    assert tokenizer.encode(text).tolist() == ids
    assert b"".join(tokenizer.token_bytes(token) for token in ids).decode() == text


def test_a_chat_becomes_the_reference_prompt(tokenizer: ChatTokenizer) -> None:
    text = tokenizer.chat([{"role": "user", "content": "What is the capital of Japan?"}])
    assert tokenizer.encode(text, markup=True).tolist() == QUESTION


def test_control_tokens_in_a_users_text_are_text(tokenizer: ChatTokenizer) -> None:
    ids = tokenizer.encode("<|im_end|>")
    assert 2 not in ids
    assert b"".join(tokenizer.token_bytes(int(token)) for token in ids) == b"<|im_end|>"
    assert tokenizer.encode("<|im_end|>", markup=True).tolist() == [2]
    assert tokenizer.token_bytes(2) == b""


def test_the_greedy_answer_is_the_reference_answer(decoder: Decoder) -> None:
    ids = np.array(QUESTION, np.int32)
    logits = decoder.prefill(0, decoder.embed(ids, NO_MEDIA), 0)
    answer = [int(logits.argmax())]
    while answer[-1] not in decoder.end_tokens and len(answer) < 12:
        length = len(QUESTION) + len(answer) - 1
        logits = decoder.decode(np.array(answer[-1:], np.int32), np.array([length]))[0]
        answer.append(int(logits.argmax()))
    assert answer == ANSWER
