"""One answer in the making."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.generation.request import Generation, IsCancelled, PromptTokens, TextDelta
from runtime.generation.sampler import Constraint, Sampler, TokenChoice
from runtime.generation.sampling import SamplingConfig
from runtime.generation.speculation import Speculation
from runtime.generation.text import Detokenizer, StopFilter


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One answer in the making.

    Attributes:
        prompt: Its prompt.
        sampling: How its tokens are chosen.
        generation: Where the answer goes.
        is_cancelled: Asked between steps.
        deadline_s: Unix time after which nobody waits.
        limit: The most tokens that its row may have.
        constraint: What the answer has to look like.
        speculation: Its guesses; None: it makes none.
        length: Tokens that its row of the cache has.
        last: The token that the next step appends.
        produced: Tokens chosen so far.
        keys: Of the prompt's blocks in the prefix cache.
        embeddings: float32 `(token, hidden)` of the prompt while it is computed.
        beside: Others that answer the same prompt, itself among them.
        first: float32 `(vocabulary,)`, logits behind the prompt, once they are known and while others need them.
        shift: How far positions behind the prompt are ahead of their places.
    """

    prompt: PromptTokens
    sampling: SamplingConfig
    generation: Generation
    is_cancelled: IsCancelled
    deadline_s: float | None
    limit: int
    constraint: Constraint | None = None
    speculation: Speculation | None = None
    length: int = 0
    last: int = 0
    produced: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    embeddings: NDArray[Any] | None = None
    beside: list[Sequence] = field(default_factory=list)
    first: NDArray[np.float32] | None = None
    shift: int = field(init=False)
    sampler: Sampler = field(init=False)
    detokenizer: Detokenizer = field(default_factory=Detokenizer)
    stop: StopFilter = field(init=False)

    def __post_init__(self) -> None:
        self.shift = self.prompt.shift
        self.sampler = Sampler(self.sampling, self.prompt.ids, self.constraint)
        self.stop = StopFilter(self.sampling.stop)

    def learn(self, proposed: int, accepted: int) -> None:
        """Take notice of guessed tokens and of those that came true."""
        self.generation.accepted_tokens += accepted
        self.generation.rejected_tokens += proposed - accepted
        if self.speculation is not None:
            self.speculation.learn(proposed, accepted)

    def take(self, choice: TokenChoice, piece: bytes, ended: bool) -> str | None:
        """Append a token and deliver what is certain after it; the reason why the answer ends here, if it does.

        Args:
            choice: The token.
            piece: Its bytes.
            ended: Whether it ends answers.
        """
        self.last = choice.token
        self.produced.append(choice.token)
        text = "" if ended else self.stop.push(self.detokenizer.push(piece))
        reason = self._finish_reason(ended)
        if reason is not None and not self.stop.stopped:
            text += self.stop.push(self.detokenizer.finish()) + self.stop.finish()
        logprobs = () if choice.logprob is None else (choice.logprob,)
        self.generation.deliver(TextDelta(text, (choice.token,), reason, logprobs))
        return reason

    def _finish_reason(self, ended: bool) -> str | None:
        if ended or self.stop.stopped:
            return "stop"
        full = self.length >= self.limit or len(self.produced) >= self.sampling.max_tokens
        return "length" if full else None
