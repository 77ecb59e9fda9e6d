"""Guess the next tokens, and let the model check them all in one step.

A step of one row is bound by reading the weights, so a few more tokens in it cost little. Tokens are chosen from the
checked logits as without any guess, so an answer stays what it would have been: a guess that was right saves a step, a
wrong one costs its share of one.

Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding (ICML 2023), section 2; for a guess
    that is certain of its tokens, accepting with the target's probability is drawing from the target and comparing.
    Saxena, Prompt Lookup Decoding (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.generation.decoder import Decoder
from runtime.generation.limits import EngineConfig
from runtime.generation.request import MEDIA_TOKEN

Tokens = Sequence[int]

MOST_PREDICTED = 16384
"""Tokens of a prediction that are looked at: they are put into an index between the steps of all answers."""

_LONGEST, _SHORTEST = 4, 2
_MOST_REST = 32


class Proposer(Protocol):
    """Guesses how a row of tokens goes on."""

    def propose(self, tokens: Tokens, most: int) -> Tokens:
        """The next tokens, as many as it dares, at most `most`.

        Args:
            tokens: Prompt and answer so far; each call's begin with those of the call before.
            most: At least 1.
        """


class PromptLookup:
    """What came after the last few tokens when they came before: for answers that quote, of one sequence."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._read = 0

    def propose(self, tokens: Tokens, most: int) -> Tokens:
        """See `Proposer`; the longest match wins, the latest among equals."""
        self._index(tokens)
        for length in range(_LONGEST, _SHORTEST - 1, -1):
            start = self._after.get(tuple(tokens[-length:])) if len(tokens) >= length else None
            if start is not None:
                return _text_only(tokens[start : start + most])
        return ()

    def _index(self, tokens: Tokens) -> None:
        # The very end is left out: it is what is looked for, and nothing comes after it yet.
        for end in range(self._read, len(tokens) - 1):
            for length in range(_SHORTEST, _LONGEST + 1):
                if end + 1 >= length:
                    self._after[tuple(tokens[end + 1 - length : end + 1])] = end + 1
        self._read = max(self._read, len(tokens) - 1)


class DraftModel:
    """What a smaller model with the same tokens would say; it keeps its own cache of the sequence.

    Args:
        decoder: The smaller model; one row of its pool is used.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._no_media = np.zeros((0, decoder.hidden), np.float32)
        self._cached: list[int] = []

    def propose(self, tokens: Tokens, most: int) -> Tokens:
        """See `Proposer`; nothing for prompts with media, whose embeddings are of the larger model's width."""
        room = self._decoder.pool.capacity - len(tokens)
        if MEDIA_TOKEN in tokens or room < 1:
            return ()
        proposed: list[int] = []
        fresh = self._forget(tokens)
        for _ in range(min(most, room)):
            proposed.append(self._next([*fresh]))
            if proposed[-1] in self._decoder.end_tokens:
                break
            fresh = proposed[-1:]
        return proposed

    def _forget(self, tokens: Tokens) -> Tokens:
        """Give up what the cache has beyond what the sequence begins with; the tokens that it lacks, at least one."""
        shared = 0
        for ours, theirs in zip(self._cached, tokens[:-1], strict=False):
            if ours != theirs:
                break
            shared += 1
        del self._cached[shared:]
        return tokens[shared:]

    def _next(self, fresh: list[int]) -> int:
        start = len(self._cached)
        if len(fresh) == 1:
            logits = self._decoder.decode(np.array(fresh, np.int32), np.array([start]))[0]
        else:
            logits = self._decoder.prefill(0, self._decoder.embed(np.array(fresh, np.int32), self._no_media), start)
        self._cached += fresh
        return int(logits.argmax())


class Pace:
    """How many tokens to propose: more while guesses come true, none for a while after they did not.

    Args:
        most: The most tokens of one guess.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = min(2, most)
        self._rest = self._pause = 0

    def length(self) -> int:
        """Tokens to propose in the next step; 0: none."""
        if self._rest:
            self._rest -= 1
            return 0
        return self._length

    def learn(self, proposed: int, accepted: int) -> None:
        """Take notice of a guess.

        Args:
            proposed: Its tokens, at least 1.
            accepted: Those of them that came true.
        """
        if accepted:
            self._pause = 0
            self._length = min(2 * self._length, self._most) if accepted == proposed else max(1, accepted)
        else:
            self._length = 1
            self._pause = min(2 * self._pause or 1, _MOST_REST)
            self._rest = self._pause


class Speculation:
    """The guesses of one sequence.

    Args:
        proposer: Who makes them.
        prompt: int32 `(token,)`.
        most: The most tokens of one guess.
    """

    def __init__(self, proposer: Proposer, prompt: NDArray[np.int32], most: int) -> None:
        self._proposer = proposer
        self._tokens: list[int] = prompt.tolist()
        self._prompt = len(self._tokens)
        self._pace = Pace(most)

    def propose(self, answer: Tokens, room: int) -> Tokens:
        """Tokens to check in the next step; none where a guess would not pay.

        Args:
            answer: Tokens of the answer so far.
            room: The most tokens that are of use.
        """
        most = min(self._pace.length(), room)
        if most < 1:
            return ()
        self._tokens += answer[len(self._tokens) - self._prompt :]
        return self._proposer.propose(self._tokens, most)

    def learn(self, proposed: int, accepted: int) -> None:
        """See `Pace.learn`."""
        self._pace.learn(proposed, accepted)


def speculation(
    config: EngineConfig, draft: DraftModel | None, prompt: NDArray[np.int32], prediction: NDArray[np.int32] | None
) -> Speculation | None:
    """How an answer is guessed at; None: not at all.

    Args:
        config: Whether, and how far.
        draft: Guesses where nothing was predicted; None: a lookup does.
        prompt: int32 `(token,)`.
        prediction: int32 `(token,)`, what the request expects of the answer; its first `MOST_PREDICTED` count.
    """
    most = config.speculative_tokens
    if not most or (prediction is None and not config.speculate):
        return None
    if prediction is None:
        return Speculation(draft or PromptLookup(), prompt, most)
    # As if the prediction had followed the prompt once before.
    history = np.concatenate([prompt[-_SHORTEST:], prediction[:MOST_PREDICTED], prompt])
    return Speculation(PromptLookup(), history, most)


def _text_only(tokens: Tokens) -> Tokens:
    return tokens[: tokens.index(MEDIA_TOKEN)] if MEDIA_TOKEN in tokens else tokens
