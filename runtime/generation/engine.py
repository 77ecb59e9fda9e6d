"""Iteration-level continuous batching: every step, whoever is there; a new prompt joins between two steps.

Source: Yu et al., Orca (OSDI 2022), section 3.1.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import (
    CancelledRequestError,
    DeadlineExceededError,
    EngineError,
    InvalidInputError,
    OmnibusError,
)
from runtime.generation.admission import check_prompt, row_limit
from runtime.generation.chunking import PrefillPace
from runtime.generation.decoder import Decoder
from runtime.generation.limits import EngineConfig
from runtime.generation.prefill import Prefill
from runtime.generation.prefix_cache import BLOCK_TOKENS, PrefixCache, block_keys
from runtime.generation.request import Generation, IsCancelled, PromptTokens
from runtime.generation.sampler import Constraint, TokenChoice, choose_tokens
from runtime.generation.sampling import SamplingConfig
from runtime.generation.scheduler import Scheduler
from runtime.generation.sequence import Sequence
from runtime.generation.speculation import DraftModel, Tokens, speculation

_NO_TOKEN = "no token can come next: the model gave no numbers, or its grammar became too complex; verify its files"

log = logging.getLogger("omnibus.generation")


class TextEngine:
    """Generates text for many prompts at once, in a thread of its own.

    Args:
        decoder: The model; used from the engine's thread only.
        token_bytes: The bytes of a token.
        config: Limits.
        draft: A smaller model with the same tokens, to guess with; None: guesses are looked up in the prompt and the
            answer.

    Raises:
        InvalidInputError: The draft model has other tokens.
    """

    def __init__(
        self,
        decoder: Decoder,
        token_bytes: Callable[[int], bytes],
        config: EngineConfig | None = None,
        draft: Decoder | None = None,
    ) -> None:
        if draft is not None and draft.vocabulary != decoder.vocabulary:
            raise InvalidInputError(
                f"the draft model has {draft.vocabulary} tokens, the model {decoder.vocabulary}; they must be the same"
            )
        self._decoder = decoder
        self._token_bytes = token_bytes
        self._config = config or EngineConfig()
        self._scheduler = Scheduler(decoder.pool, self._config.max_waiting)
        self._draft = None if draft is None else DraftModel(draft)
        self._pace = PrefillPace(self._config.prefill_chunk)
        self._prefixes = PrefixCache(decoder.pool, self._config.prefix_cache_nbytes)
        self._prompts = Prefill(decoder, self._scheduler, self._prefixes, self._pace)
        self._work = threading.Condition()
        self._closed = False
        # A daemon: a process that ends must not wait for an answer that nobody will read.
        self._thread = threading.Thread(target=self._serve, name="omnibus-generation", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End after the current step; what runs is cancelled. Closing twice is fine."""
        with self._work:
            self._closed = True
            self._work.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer together."""
        return self._decoder.pool.capacity

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has."""
        return self._decoder.vocabulary

    def submit(
        self, prompt: PromptTokens, sampling: SamplingConfig, *, constraint: Constraint | None = None, **common: Any
    ) -> Generation:
        """Start an answer; see `submit_all`."""
        return self.submit_all(prompt, [sampling], constraints=[constraint], **common)[0]

    def submit_all(
        self,
        prompt: PromptTokens,
        samplings: list[SamplingConfig],
        *,
        constraints: list[Constraint | None] | None = None,
        prediction: NDArray[np.int32] | None = None,
        deadline_s: float | None = None,
        is_cancelled: IsCancelled = lambda: False,
    ) -> list[Generation]:
        """Start several answers to one prompt, all or none; call it in a running event loop.

        The prompt is computed once, for all that run together.

        Args:
            prompt: What to answer.
            samplings: How to choose tokens of each; an answer also ends when the context is full.
            constraints: What each has to look like; used from the engine's thread from now on. None: anything.
            prediction: int32 `(token,)`, what answers may repeat parts of; they come sooner where they do.
            deadline_s: Unix time after which nobody waits.
            is_cancelled: Asked between steps, from the engine's thread.

        Raises:
            ContextLengthError: The prompt leaves no room for an answer.
            InvalidInputError: Embeddings of another width than the model's, a bias for a token that it lacks, or more
                answers than there are places.
            OverloadedError: (retryable) too many requests wait.
            EngineError: The engine is closed.
        """
        if not self._decoder.takes_positions:
            prompt = replace(prompt, positions=None)
        sequences: list[Sequence] = []
        for sampling, constraint in zip(samplings, constraints or [None] * len(samplings), strict=True):
            check_prompt(self._decoder, prompt, sampling)
            sequences.append(
                Sequence(
                    prompt=prompt,
                    sampling=sampling,
                    generation=Generation(len(prompt.ids)),
                    constraint=constraint,
                    is_cancelled=is_cancelled,
                    deadline_s=deadline_s,
                    limit=row_limit(self._decoder, prompt),
                    speculation=speculation(self._config, self._draft, prompt.ids, prediction),
                    beside=sequences if len(samplings) > 1 else [],
                )
            )
        with self._work:
            if self._closed:
                raise EngineError("the generation engine is closed", retryable=True)
            self._scheduler.admit(sequences)
            self._work.notify()
        return [sequence.generation for sequence in sequences]

    def _serve(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._closed or len(self._scheduler))
                if self._closed:
                    for sequence in self._scheduler.everyone():
                        self._end(sequence, CancelledRequestError("the generation engine was closed"))
                    return
                self._drop_unwanted()
                prefill = self._scheduler.next_prefill()
            if prefill is not None:
                self._guard([prefill[0]], partial(self._prefill, *prefill))
            if self._scheduler.decoding:
                self._guard(list(self._scheduler.decoding), self._decode)

    def _guard(self, sequences: list[Sequence], step: Callable[[], None]) -> None:
        """Run a step; an error ends the sequences that were in it and nothing else."""
        try:
            step()
        except Exception as error:
            log.exception("a generation step with %d sequences failed", len(sequences))
            ours = error if isinstance(error, OmnibusError) else EngineError(f"a generation step failed: {error!r}")
            with self._work:
                for sequence in sequences:
                    self._end(sequence, ours)

    def _prefill(self, sequence: Sequence, row: int) -> None:
        logits = self._prompts.step(sequence, row)
        if logits is not None:
            with self._work:
                self._scheduler.prefilled()
            self._take(sequence, choose_tokens([sequence.sampler], logits[None])[0])

    def _decode(self) -> None:
        running = list(self._scheduler.decoding)
        if len(running) == 1 and (proposed := self._proposed(running[0])):
            self._verify(running[0], proposed)
            return
        begun_s = time.perf_counter()
        least = self._decoder.least_rows if self._config.repeatable else 1
        logits = self._decoder.decode(*self._scheduler.step_inputs(least))[: len(running)]
        self._pace.decoded(time.perf_counter() - begun_s)
        for sequence in running:
            # All of them before any ends: a row that moves must take this step's keys and values along.
            sequence.length += 1
        choices = choose_tokens([sequence.sampler for sequence in running], logits)
        for sequence, choice in zip(running, choices, strict=True):
            self._take(sequence, choice)

    def _proposed(self, sequence: Sequence) -> Tokens:
        """Tokens to check in this step; all of them fit, and so does the one that is chosen behind them."""
        left = sequence.sampling.max_tokens - len(sequence.produced)
        room = min(left, sequence.limit - sequence.length) - 1
        return () if sequence.speculation is None else sequence.speculation.propose(sequence.produced, room)

    def _verify(self, sequence: Sequence, proposed: Tokens) -> None:
        """Choose a token behind the last one, and behind each proposed one for as long as they come true."""
        tokens = np.array([sequence.last, *proposed], np.int32)
        row = self._scheduler.row_of(sequence)
        logits = self._decoder.verify(row, tokens, sequence.length, sequence.shift)
        choices: list[TokenChoice | None] = []
        for place, expected in enumerate([*proposed, None]):
            choices += choose_tokens([sequence.sampler], logits[place : place + 1])
            chosen = choices[-1]
            if chosen is None or chosen.token != expected or expected in self._decoder.end_tokens:
                break
        sequence.learn(len(proposed), len(choices) - 1)
        for choice in choices:
            sequence.length += 1
            if not self._take(sequence, choice):
                break

    def _take(self, sequence: Sequence, choice: TokenChoice | None) -> bool:
        """Deliver what is certain after one more token; whether the answer goes on."""
        if choice is None:
            with self._work:
                self._end(sequence, EngineError(_NO_TOKEN))
            return False
        ended = choice.token in self._decoder.end_tokens
        reason = sequence.take(choice, b"" if ended else self._token_bytes(choice.token), ended)
        if reason is not None:
            self._remember(sequence)
            with self._work:
                self._scheduler.remove(sequence)
        return reason is None

    def _remember(self, sequence: Sequence) -> None:
        """Keep an answer with its prompt: the next turn of the chat begins with both."""
        keys = block_keys(sequence.prompt, sequence.produced)
        whole = sequence.length // BLOCK_TOKENS  # the last token was never fed back
        self._prefixes.store(keys[:whole], self._scheduler.row_of(sequence))

    def _drop_unwanted(self) -> None:
        for sequence in self._scheduler.everyone():
            self._guard([sequence], partial(self._drop_if_unwanted, sequence))

    def _drop_if_unwanted(self, sequence: Sequence) -> None:
        if sequence.deadline_s is not None and time.time() > sequence.deadline_s:
            self._end(sequence, DeadlineExceededError("the request's deadline passed while it was generated"))
        elif sequence.generation.abandoned or sequence.is_cancelled():
            self._end(sequence, CancelledRequestError("the request was cancelled while it was generated"))

    def _end(self, sequence: Sequence, error: OmnibusError) -> None:
        self._scheduler.remove(sequence)
        sequence.generation.deliver(error)
