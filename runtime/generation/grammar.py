"""Answers of a given form: JSON, JSON of a schema, text of a regular expression.

Source: Willard and Louf, Efficient Guided Generation (2023); the parser and its token masks are llguidance's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError
from runtime.generation.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class GrammarConstraint:
    """Where one answer stands in its grammar.

    Args:
        matcher: At the beginning of the answer.
        vocabulary: Tokens of the model.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def allowed(self) -> NDArray[np.bool_]:
        """The tokens that may come next, bool `(vocabulary,)`; none of them when the parser has given up."""
        if self._matcher.is_error():
            return np.zeros(self._vocabulary, np.bool_)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(np.bool_)

    def accept(self, token: int) -> None:
        """Go on behind a token."""
        self._matcher.consume_token(token)


class GrammarCompiler:
    """Makes constraints for one model. Safe from any thread; blocks while it compiles.

    Args:
        tokenizer: The model's.
        vocabulary: Tokens that the model gives logits for.
        end_tokens: Tokens that end an answer.
    """

    def __init__(self, tokenizer: ChatTokenizer, vocabulary: int, end_tokens: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end_tokens = sorted(end_tokens)
        self._tokens: LLTokenizer | None = None
        self._lock = threading.Lock()

    def compile(self, kind: str, definition: str, count: int = 1) -> list[GrammarConstraint]:
        """Constraints for several answers of one form.

        Args:
            kind: `json_object`, `json_schema` or `regex`.
            definition: The schema as JSON, or the regular expression.
            count: How many.

        Raises:
            InvalidInputError: A schema or an expression that is wrong or not supported; says what and why.
        """
        from llguidance import LLMatcher

        try:
            matcher = LLMatcher(self._ready(), _grammar(kind, definition), log_level=0)
        except (ValueError, RecursionError) as error:
            raise _refused(kind, str(error)) from error
        if matcher.is_error():
            raise _refused(kind, matcher.get_error())
        return [GrammarConstraint(matcher.deep_copy(), self._vocabulary) for _ in range(count)]

    def _ready(self) -> LLTokenizer:
        """The token trie, built when the first request wants one: most workers never need it."""
        from llguidance import LLTokenizer, TokenizerWrapper

        with self._lock:
            if self._tokens is None:
                vocabulary = _Vocabulary(self._tokenizer, self._vocabulary, self._end_tokens)
                self._tokens = LLTokenizer(
                    TokenizerWrapper(vocabulary), n_vocab=self._vocabulary, eos_token=self._end_tokens
                )
            return self._tokens


class _Vocabulary:
    """Our tokenizer as llguidance asks for one."""

    bos_token_id = None

    def __init__(self, tokenizer: ChatTokenizer, size: int, end_tokens: list[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = end_tokens[0]
        self.tokens = [tokenizer.token_bytes(token) for token in range(size)]
        self.special_token_ids = [token for token, held in enumerate(self.tokens) if not held]

    def __call__(self, text: bytes | str) -> list[int]:
        words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return [int(token) for token in self._tokenizer.encode(words)]


def _grammar(kind: str, definition: str) -> str:
    from llguidance import LLMatcher

    if kind == "regex":
        return LLMatcher.grammar_from_regex(definition)
    schema = '{"type": "object"}' if kind == "json_object" else definition
    if not isinstance(json.loads(schema), dict):
        raise ValueError("a schema is a JSON object")
    # Left to itself, a small model can write spaces until the token limit ends the answer.
    return LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": " ?"})


def _refused(kind: str, reason: str) -> InvalidInputError:
    return InvalidInputError(f"the {kind} of the answer cannot be followed: {reason}", param="response_format")
