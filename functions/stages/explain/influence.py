"""The contracts of an explanation: what an answer needed, part by part."""

from __future__ import annotations

from pydantic import Field

from bus.contracts import Contract, MediaRef, Modality

Box = tuple[float, float, float, float]
Span = tuple[float, float]


class MaskedMedia(Contract):
    """A piece of media without a part of it."""

    ref: MediaRef
    box: Box | None = Field(default=None, description="Left, top, right, bottom of what is missing; shares.")
    span_s: Span | None = Field(default=None, description="From when to when it is missing, in seconds.")


class Influence(Contract):
    """What a part of a piece of media did for an answer."""

    nats: float = Field(
        description="How much likelier the answer is with the part than without it: a difference of log-probabilities."
    )
    box: Box | None = Field(default=None, description="Left, top, right, bottom; shares of an upright picture.")
    span_s: Span | None = Field(default=None, description="From when to when, in seconds.")


class PartInfluence(Contract):
    """What one piece of media did for an answer."""

    part: int = Field(ge=0, description="Its index in the request's list of media.")
    modality: Modality
    nats: float = Field(description="All of it.")
    places: tuple[Influence, ...] = Field(description="Each of its regions, or stretches of time.")
    picture: MediaRef | None = Field(default=None, description="The same as a picture.")


class Explanation(Contract):
    """What an answer needed, found by taking it away."""

    request: str
    model: str | None = Field(default=None, description="The model that answered, where the request named it.")
    answer: str
    nats: float = Field(description="Log-probability of the answer, given everything.")
    modalities: dict[str, float] = Field(description="What each modality did for the answer, all its parts together.")
    parts: tuple[PartInfluence, ...]
