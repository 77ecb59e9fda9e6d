"""The bytes of tokens, for both kinds of vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers

from runtime.generation.tokenizer import ChatTokenizer


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
