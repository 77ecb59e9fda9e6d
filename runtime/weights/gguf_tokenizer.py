"""The tokenizer and the chat template that a GGUF file carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bus.errors import ModelCorruptError

_CONTROL = 3
_USER_DEFINED = 4

# How each pre-tokenizer that GGUF names by its model splits digits; words are split by GPT-2's pattern in all of them.
_DIGITS_ALONE = {"smollm": True, "gpt-2": False, "default": False}


def tokenizer_json(metadata: Mapping[str, Any]) -> str:
    """The tokenizer as the `tokenizers` library reads it.

    Raises:
        ModelCorruptError: No tokenizer, or a kind that is not read.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in _DIGITS_ALONE:
        raise ModelCorruptError(
            f"the GGUF file has a tokenizer of kind {kind!r} with pre-tokenizer {pre!r}; "
            f"byte-level BPE ('gpt2') with {', '.join(_DIGITS_ALONE)} is read"
        )
    try:
        tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        merges: list[str] = metadata["tokenizer.ggml.merges"]
    except KeyError as error:
        raise ModelCorruptError(f"the GGUF file's tokenizer lacks {error}") from error
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    return json.dumps(_document(tokens, kinds, merges, _DIGITS_ALONE[pre]), ensure_ascii=False)


def chat_template(metadata: Mapping[str, Any]) -> str:
    """The Jinja template of a chat.

    Raises:
        ModelCorruptError: There is none.
    """
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        raise ModelCorruptError("the GGUF file has no chat template; it is not a chat model")
    return template


def _document(tokens: list[str], kinds: list[int], merges: list[str], digits_alone: bool) -> dict[str, Any]:
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = [{"type": "Digits", "individual_digits": True}] if digits_alone else []
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(number, text, kind == _CONTROL)
            for number, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*digits, bytes_of]},
        "post_processor": None,
        "decoder": bytes_of,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def _added(number: int, text: str, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": text, **flags, "special": special}
