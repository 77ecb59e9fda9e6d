"""The tokenizer and the chat template that a GGUF file carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bus.errors import ModelCorruptError

_CONTROL = 3
_USER_DEFINED = 4

# Source: the published tokenizers of Llama 3 and Qwen 2; they differ in how many digits stay together.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS = {"type": "Digits", "individual_digits": True}


def _bytes(*, splits: bool) -> dict[str, Any]:
    """The step to bytes, which splits by GPT-2's pattern where nothing has split before."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": splits}


def _split(digits: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": _WORDS % digits}, "behavior": "Isolated", "invert": False}


# How text is cut before it becomes tokens, by the names that GGUF has for it.
_STEPS: Mapping[str, list[dict[str, Any]]] = {
    "default": [_bytes(splits=True)],
    "gpt-2": [_bytes(splits=True)],
    "smollm": [_DIGITS, _bytes(splits=True)],
    "qwen2": [_split(""), _bytes(splits=False)],
    "llama-bpe": [_split("{1,3}"), _bytes(splits=False)],
}


def tokenizer_json(metadata: Mapping[str, Any]) -> str:
    """The tokenizer as the `tokenizers` library reads it.

    Raises:
        ModelCorruptError: No tokenizer, or a kind that is not read.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in _STEPS:
        raise ModelCorruptError(
            f"the GGUF file has a tokenizer of kind {kind!r} with pre-tokenizer {pre!r}; "
            f"byte-level BPE ('gpt2') with {', '.join(_STEPS)} is read"
        )
    try:
        tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        merges: list[str] = metadata["tokenizer.ggml.merges"]
        kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
        return json.dumps(_document(tokens, kinds, merges, pre), ensure_ascii=False)
    except KeyError as error:
        raise ModelCorruptError(f"the GGUF file's tokenizer lacks {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelCorruptError(f"the GGUF file's tokenizer is damaged: {error}") from error


def special_tokens(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of the tokens that the file gives a part to, by `bos`, `eos`, `padding` and the like.

    Raises:
        ModelCorruptError: A number that is no token's.
    """
    count = len(metadata.get("tokenizer.ggml.tokens", []))
    found = {}
    for name in ("bos", "eos", "eot", "padding"):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if number is None:
            continue
        if type(number) is not int or not 0 <= number < count:
            raise ModelCorruptError(f"the GGUF file gives {number!r} as its {name} token; it has {count} tokens")
        found[name] = number
    return found


def chat_template(metadata: Mapping[str, Any]) -> str:
    """The Jinja template of a chat.

    Raises:
        ModelCorruptError: There is none.
    """
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        raise ModelCorruptError("the GGUF file has no chat template; it is not a chat model")
    return template


def _document(tokens: list[str], kinds: list[int], merges: list[str], pre: str) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(number, text, kind == _CONTROL)
            for number, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _STEPS[pre]},
        "post_processor": None,
        "decoder": _bytes(splits=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": {text: number for number, text in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def _added(number: int, text: str, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": text, **flags, "special": special}
