"""The chat model itself. Right values: transformers 5 in float32 on the same GGUF file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bus.contracts import ModelManifest
from runtime.engines.onnx import OnnxSession
from runtime.generation.decoder import LlamaDecoder
from runtime.generation.tokenizer import ChatTokenizer
from runtime.graphs.decoder.graph import decoder as decoder_graph
from runtime.graphs.decoder.weights import as_float
from runtime.graphs.families import llama
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.repository import Catalog, Repository
from runtime.weights.gguf import GgufFile

pytestmark = pytest.mark.models

NO_MEDIA = np.zeros((0, 576), np.float32)
# The reference is nowhere nearly undecided: the likeliest token leads by one at every step.
QUESTION = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198,
    1, 4093, 198, 1780, 314, 260, 3575, 282, 3085, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip
ANSWER = [504, 3575, 282, 3085, 314, 19081, 30, 2]

# The beginning of Jane Austen's Sense and Sensibility.
TEXT = """The family of Dashwood had long been settled in Sussex. Their estate was large, and their residence was at
Norland Park, in the centre of their property, where, for many generations, they had lived in so respectable a manner
as to engage the general good opinion of their surrounding acquaintance. The late owner of this estate was a single
man, who lived to a very advanced age, and who for many years of his life, had a constant companion and housekeeper in
his sister. But her death, which happened ten years before his own, produced a great alteration in his home; for to
supply her loss, he invited and received into his house the family of his nephew Mr. Henry Dashwood, the legal
inheritor of the Norland estate, and the person to whom he intended to bequeath it. In the society of his nephew and
niece, and their children, the old Gentleman's days were comfortably spent. His attachment to them all increased. The
constant attention of Mr. and Mrs. Henry Dashwood to his wishes, which proceeded not merely from interest, but from
goodness of heart, gave him every degree of solid comfort which his age could receive; and the cheerfulness of the
children added a relish to his existence. By a former marriage, Mr. Henry Dashwood had one son: by his present lady,
three daughters. The son, a steady respectable young man, was amply provided for by the fortune of his mother, which
had been large, and half of which devolved on him on his coming of age. By his own marriage, likewise, which happened
soon afterwards, he added to his wealth. To him therefore the succession to the Norland estate was not so really
important as to his sisters; for their fortune, independent of what might arise to them from their father's inheriting
that property, could be but small."""


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
def decoder(repository: Repository, manifest: ModelManifest) -> LlamaDecoder:
    return LlamaDecoder(repository.folder(manifest), manifest, slots=8)


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


def test_the_greedy_answer_is_the_reference_answer(decoder: LlamaDecoder) -> None:
    ids = np.array(QUESTION, np.int32)
    logits = decoder.prefill(0, decoder.embed(ids, NO_MEDIA), 0)
    answer = [int(logits.argmax())]
    while answer[-1] not in decoder.end_tokens and len(answer) < 12:
        length = len(QUESTION) + len(answer) - 1
        logits = decoder.decode(np.array(answer[-1:], np.int32), np.array([length]))[0]
        answer.append(int(logits.argmax()))
    assert answer == ANSWER


def test_the_served_model_is_as_sure_of_a_text_as_the_float_model(
    repository: Repository,
    manifest: ModelManifest,
    tokenizer: ChatTokenizer,
    decoder: LlamaDecoder,
    tmp_path: Path,
) -> None:
    rows = tokenizer.encode(TEXT)[: 8 * 42].reshape(8, 42)
    exact = perplexity(rows, float_logits(repository, manifest, rows, tmp_path))
    served = perplexity(rows, served_logits(decoder, rows))
    assert served == pytest.approx(exact, rel=0.005)
    assert served / exact - 1 <= manifest.parameters["perplexity_loss"]


def perplexity(rows: np.ndarray, logits: np.ndarray) -> float:
    """Of every token but the first of each row; logits float32 (row, token, vocabulary)."""
    scores = logits[:, :-1].astype(np.float64)
    scores -= scores.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(scores, rows[:, 1:, None].astype(np.int64), axis=-1)[..., 0]
    return float(np.exp((np.log(np.exp(scores).sum(axis=-1)) - chosen).mean()))


def served_logits(decoder: LlamaDecoder, rows: np.ndarray) -> np.ndarray:
    steps = [decoder.decode(rows[:, place], np.full(len(rows), place)).copy() for place in range(rows.shape[1])]
    return np.stack(steps, axis=1)


def float_logits(repository: Repository, manifest: ModelManifest, rows: np.ndarray, folder: Path) -> np.ndarray:
    """Of the dequantised weights in float32, all tokens of a row at once."""
    entry = repository.catalog.get(manifest.id)
    raw = Repository(
        folder / "raw",
        downloads=repository.downloads,
        catalog=Catalog((entry.model_copy(update={"build": None}),)),
    )
    (pulled,) = raw.pull(entry.id)
    file = GgufFile(raw.file(pulled, "model.gguf"))
    checkpoint = GgufCheckpoint(file)
    shape = llama.FAMILY.shape(checkpoint.config)
    decoder_graph(shape, DecoderWeights(checkpoint, llama.FAMILY, shape), as_float).save(folder / "float.onnx")
    session = OnnxSession(folder / "float.onnx")
    table = file.tensor("token_embd.weight")
    empty = np.zeros((1, shape.kv_heads, 0, shape.head_dim), np.float32)
    results = []
    for row in rows:
        inputs: dict[str, np.ndarray] = {name: empty for name in session.inputs if name.startswith("past")}
        inputs["inputs_embeds"] = table[row][None]
        inputs["lengths"] = np.array([len(row) - 1], np.int32)
        inputs["capacity_used"] = np.array(len(row), np.int32)
        inputs["logits_at"] = np.arange(len(row))
        results.append(session.run(inputs, ["logits"])[0][0])
    return np.stack(results)
