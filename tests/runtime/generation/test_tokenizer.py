"""Texts to tokens as the reference has them, and the bytes of tokens, for both kinds of vocabularies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from runtime.generation.tokenizer import ChatTokenizer, PromptText

SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>"]
TEMPLATES = {
    "mistral": "<s>{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
    "phi": "{% for m in messages %}<|user|>\n{{ m.content }}</s>\n{% endfor %}",
    "plain": "{% for m in messages %}user: {{ m.content }}\n\n{% endfor %}answer:",
}
CHATS = [["the cat sat"], ["What is the capital", "12 34  the"], ["Grüße 日本 😀", "   "]]


def words(kind: str) -> Tokenizer:
    """A small vocabulary, cut into words in one of the ways that published models have."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=kind != "bytes"))
    alphabet: list[str] = []
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    elif kind == "prepended":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
    fallback = [] if kind == "bytes" else [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[*SPECIAL, *fallback], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(
        [text for chat in CHATS for text in chat] * 4 + ["user: the [INST] cat [/INST]"], trainer
    )
    return tokenizer


def prompt_of(chat: list[str], tokenizer: ChatTokenizer) -> np.ndarray:
    """A chat with its messages put where the template leaves room for them."""
    pieces = tokenizer.chat([{"role": "user", "content": f"\ue000{place}\ue001"} for place in range(len(chat))])
    parts = []
    for piece in pieces.replace("\ue001", "\ue000").split("\ue000"):
        known = piece.isdigit() and int(piece) < len(chat)
        parts.append(PromptText(chat[int(piece)]) if known else PromptText(piece, markup=True))
    return tokenizer.encode_parts(parts)[0]


@pytest.mark.parametrize("chat", CHATS, ids=lambda chat: chat[0][:8])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", ["bytes", "prepended", "first", "always"])
def test_a_prompt_of_parts_is_tokenised_as_the_one_text_that_it_is(
    kind: str, template: str, chat: list[str], tmp_path: Path
) -> None:
    tokenizer = words(kind)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat.jinja").write_text(TEMPLATES[template])
    right = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATES[template]
    )
    messages = [{"role": "user", "content": text} for text in chat]
    expected = right.apply_chat_template(messages, return_dict=False)
    assert prompt_of(chat, ChatTokenizer(tmp_path)).tolist() == expected


@pytest.fixture(scope="module")
def bytelevel(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    folder = tmp_path_factory.mktemp("bytes")
    words("bytes").save(str(folder / "tokenizer.json"))
    (folder / "chat.jinja").write_text("")
    return ChatTokenizer(folder)


@pytest.mark.parametrize(
    "parts",
    [
        [PromptText("<s>the ", markup=True), PromptText("</s> cat"), PromptText("</s>", markup=True)],
        [PromptText("<s>", markup=True), PromptText("<"), PromptText("/s>", markup=True)],
        [PromptText("</", markup=True), PromptText("s>")],
        [PromptText("</", markup=True), PromptText(""), PromptText("s"), PromptText(">", markup=True)],
    ],
)
def test_no_part_of_what_a_user_writes_becomes_a_control_token(
    parts: list[PromptText], bytelevel: ChatTokenizer
) -> None:
    ids, owners = bytelevel.encode_parts(parts)
    for place, part in enumerate(parts):
        mine = [int(token) for token in ids[owners == place]]
        if not part.markup:
            assert b"".join(bytelevel.token_bytes(token) for token in mine).decode() == part.text
            assert not set(mine) & {0, 1, 2, 3}
    assert owners.tolist() == sorted(owners)


TEXTS = st.text(st.sampled_from("<>/s|user the\n é日😀"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.builds(PromptText, TEXTS, st.booleans()), min_size=1, max_size=5))
def test_parts_keep_their_text_and_their_order(parts: list[PromptText], bytelevel: ChatTokenizer) -> None:
    ids, owners = bytelevel.encode_parts(parts)
    assert len(ids) == len(owners)
    assert owners.tolist() == sorted(owners)
    said = b"".join(bytelevel.token_bytes(int(token)) for token in ids).decode()
    whole = "".join(part.text for part in parts)
    if not any(token in whole for token in SPECIAL):
        assert said == whole
    for place, part in enumerate(parts):
        assert part.markup or not set(ids[owners == place].tolist()) & {0, 1, 2, 3}


@pytest.fixture
def sentencepiece(tmp_path: Path) -> Path:
    """A vocabulary as SentencePiece makes it: a mark for spaces, and a token for each byte."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"thecat", "th", "▁th", "▁the"]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    merges = [("t", "h"), ("▁", "th"), ("▁th", "e")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}")
    return tmp_path


@pytest.mark.parametrize("text", [" the cat", "the 日本 cat", "a\nb 😀", "<0x41>", "Ã©"])
def test_the_bytes_of_a_text_with_a_token_for_each_byte_are_the_texts(text: str, sentencepiece: Path) -> None:
    tokenizer = ChatTokenizer(sentencepiece)
    ids = tokenizer.encode(text)
    joined = b"".join(tokenizer.token_bytes(int(token)) for token in ids)
    reference = Tokenizer.from_file(str(sentencepiece / "tokenizer.json"))
    assert joined.decode() == reference.decode(ids.tolist()) == text


def test_control_tokens_have_no_bytes(sentencepiece: Path) -> None:
    tokenizer = ChatTokenizer(sentencepiece)
    assert tokenizer.encode("</s>", markup=True).tolist() == [2]
    assert tokenizer.token_bytes(2) == b""
    assert tokenizer.token_bytes(100_000) == b""


def test_markup_that_is_kept_is_the_markup_that_is_written(bytelevel: ChatTokenizer) -> None:
    for text in ("<|user|>\n12:", *(f"<s>{number}" for number in range(5000)), "<|user|>\n12:"):
        found = bytelevel.encode_mark(text)
        assert found.tolist() == bytelevel.encode(text, markup=True).tolist()
        assert found is bytelevel.encode_mark(text)
        with pytest.raises(ValueError, match="read-only"):
            found[:] = 0
