"""A model's tokenizer: text to tokens, tokens to bytes, and chats by the model's own template."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from numpy.typing import NDArray
from tokenizers import Encoding

from bus.errors import InvalidInputError, ModelCorruptError
from runtime.generation.template_tags import GenerationTag
from runtime.text.vocabulary import read_tokenizer

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_MOST_MARKS = 4096


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text of a prompt.

    Attributes:
        text: Any text.
        markup: Whether control tokens in it are control tokens; what a user writes is none.
    """

    text: str
    markup: bool = False


class ChatTokenizer:
    """Encodes text and chats; safe from several threads.

    Args:
        folder: A model's folder with `tokenizer.json` and `chat.jinja`.

    Raises:
        ModelCorruptError: A file of the two is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = read_tokenizer(folder / "tokenizer.json")
        try:
            self._template = _environment().from_string((folder / "chat.jinja").read_text(encoding="utf-8"))
        except (OSError, ValueError, TemplateError) as error:
            raise ModelCorruptError(f"the chat template in {folder} cannot be read: {error}") from error
        # One for both readings of a text: a second one would take as much memory again.
        self._reading = threading.Lock()
        self._marks: dict[str, NDArray[np.int32]] = {}
        # A vocabulary with a token for each byte is SentencePiece's, whose other tokens are plain text.
        self._bytes_of = _plain_bytes if self._tokenizer.token_to_id("<0x0A>") is not None else _level_bytes
        self._special = frozenset(
            number for number, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        )

    def encode(self, text: str, *, markup: bool = False) -> NDArray[np.int32]:
        """Token ids, int32 `(token,)`.

        Args:
            text: Any text.
            markup: Read control tokens such as `<|im_end|>` in it as control tokens.
        """
        return np.array(self._encoding(text, markup).ids, np.int32)

    def encode_mark(self, text: str) -> NDArray[np.int32]:
        """Token ids of a model's own markup, int32 `(token,)`, read-only: kept, since prompts repeat few of them."""
        found = self._marks.get(text)
        if found is None:
            found = self.encode(text, markup=True)
            found.flags.writeable = False
            if len(self._marks) >= _MOST_MARKS:
                self._marks.clear()
            self._marks[text] = found
        return found

    def encode_parts(self, parts: Sequence[PromptText]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Tokens of texts that stand one behind the other, as the one text that they are: tokens end where words do.

        Args:
            parts: The texts.

        Returns:
            Token ids, int32 `(token,)`, and the part that each belongs to, int64 `(token,)`.
        """
        whole = self._encoding("".join(part.text for part in parts), markup=True)
        if not any(
            token in self._special and not self._is_markup(parts, *span)
            for token, span in zip(whole.ids, whole.offsets, strict=True)
        ):
            return np.array(whole.ids, np.int32), _owners(whole, parts)
        # Somebody wrote what looks like a control token; without markup around it, a text is read as text.
        ids, owners, before = [], [], 0
        for markup, group in groupby(parts, lambda part: part.markup):
            texts = list(group)
            found = self._encoding("".join(part.text for part in texts), markup)
            ids.append(np.array(found.ids, np.int32))
            owners.append(_owners(found, texts) + before)
            before += len(texts)
        return np.concatenate(ids), np.concatenate(owners)

    def _encoding(self, text: str, markup: bool) -> Encoding:
        with self._reading:
            # What a user writes is text even where it looks like a control token.
            self._tokenizer.encode_special_tokens = not markup
            return self._tokenizer.encode(text, add_special_tokens=False)

    def _is_markup(self, parts: Sequence[PromptText], start: int, stop: int) -> bool:
        """Whether some characters of the parts' text are markup, all of them."""
        begin = 0
        for part in parts:
            end = begin + len(part.text)
            if not part.markup and start < end and begin < stop:
                return False
            begin = end
        return True

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; none for a control token."""
        if token in self._special:
            return b""
        text = self._tokenizer.id_to_token(token)
        return b"" if text is None else self._bytes_of(text)

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt for the assistant's next turn.

        Args:
            messages: Maps with `role` and `content`: a text, or a list of parts, as the model's template has it.

        Raises:
            InvalidInputError: The model's template refuses the messages.
        """
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=True, tools=None, documents=None
            )
        except (TemplateError, TypeError) as error:  # the latter from one that adds what is no text to a text
            raise InvalidInputError(f"the model's chat template refuses these messages: {error}") from error


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja with what chat templates may use beside it.

    Source: `_compile_jinja_template` of transformers, `utils/chat_template_utils.py`.
    """
    tags = [loopcontrols, GenerationTag]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=tags)
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _as_json(value: Any, indent: int | None = None) -> str:
    """JSON as it was put in: Jinja's own filter sorts keys, and escapes what is not HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> None:
    raise TemplateError(reason)


def _owners(encoding: Encoding, parts: Sequence[PromptText]) -> NDArray[np.int64]:
    """The part that each token begins in."""
    starts = np.array([start for start, _ in encoding.offsets], np.int64)
    owners = np.searchsorted(np.cumsum([len(part.text) for part in parts]), starts, side="right")
    owned: NDArray[np.int64] = np.maximum.accumulate(owners.clip(max=len(parts) - 1)).astype(np.int64, copy=False)
    return owned


@lru_cache(maxsize=65536)
def _plain_bytes(token: str) -> bytes:
    found = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else token.replace("▁", " ").encode()


@lru_cache(maxsize=65536)
def _level_bytes(token: str) -> bytes:
    table = _byte_values()
    if all(character in table for character in token):
        return bytes(table[character] for character in token)
    return token.encode("utf-8")  # an added token, which is stored as plain text


@lru_cache(maxsize=1)
def _byte_values() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    Source: `bytes_to_unicode` of GPT-2: printable bytes stand for themselves, the rest from U+0100 upwards.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(value): value for value in printable}
    others = (value for value in range(256) if value not in set(printable))
    table.update({chr(256 + place): value for place, value in enumerate(others)})
    return table
