"""What an answer needed: the request is asked again without each part of its media, and told how likely its answer is.

Every question is a request to the pipeline that answered, so it works for every model and every composition, runs on
all workers at once, and finds in the caches what does not change.

Source: Zeiler and Fergus, Visualizing and Understanding Convolutional Networks (ECCV 2014), section 4.2, occlusion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bus.contracts import Lane, MediaRef, MediaSource, Modality
from bus.errors import InvalidInputError, UnknownRequestError
from bus.ports import ObjectStore
from functions.client import PipelineClient
from functions.running import outputs_of
from functions.stages.assemble import Answer
from functions.stages.explain.asked import Asked, find_asked
from functions.stages.explain.influence import Explanation, Influence, PartInfluence
from functions.stages.explain.mask import MaskOutputs
from functions.stages.parts import Message

Media = list[dict[str, Any]]


class Explainer:
    """Explains answers.

    Args:
        client: Where their pipelines run.
        store: Where their media are.
        at_once: How many questions are asked at a time.
        timeout_s: The longest that one of them may take.
    """

    def __init__(
        self, client: PipelineClient, store: ObjectStore, *, at_once: int = 4, timeout_s: float = 300.0
    ) -> None:
        self._client, self._store, self._timeout_s = client, store, timeout_s
        self._room = asyncio.Semaphore(at_once)

    async def explain(self, request: str, *, parts: int = 4, draw: bool = True) -> Explanation:
        """What the parts of a finished request's media did for its answer.

        Args:
            request: Its id.
            parts: How finely media are cut, see `explain.mask`.
            draw: Whether pictures are wanted, too.

        Raises:
            UnknownRequestError: No such request, no answer to it, or one without media.
            OmnibusError: What a stage raised.
        """
        asked = await find_asked(self._store, request)
        answer = await self._answer(request)
        masked = await asyncio.gather(*(self._masked(source, parts) for source in asked.inputs["media"]))
        questions = _Questions(self, asked, answer, [_source(one.plain, one.modality) for one in masked])
        nats = await questions.score({})
        found = await asyncio.gather(*(self._part(questions, nats, index, one) for index, one in enumerate(masked)))
        if draw:
            found = await asyncio.gather(*(self._drawn(part, masked[part.part].plain) for part in found))
        return Explanation(
            request=request,
            model=asked.inputs.get("model"),
            answer=answer,
            nats=nats,
            modalities=await self._modalities(questions, nats, masked),
            parts=tuple(found),
        )

    async def ask(self, pipeline: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """The outputs of a pipeline, when there is room for one more."""
        async with (
            self._room,
            self._client.submit(pipeline, inputs, timeout_s=self._timeout_s, lane=Lane.BATCH, streams=False) as running,
        ):
            return await running.outputs()

    async def _answer(self, request: str) -> str:
        result = await self._client.result(request)
        if result is None:
            raise UnknownRequestError(f"request {request!r} has no answer that is kept; ask again", request=request)
        text = Answer.model_validate(outputs_of(result)["answer"]).text
        if not text:
            raise InvalidInputError(f"the answer to request {request!r} is empty: there is nothing to explain")
        return text

    async def _masked(self, source: dict[str, Any], parts: int) -> MaskOutputs:
        outputs = await self.ask("explain-mask", {"media": [source], "parts": parts})
        return MaskOutputs.model_validate(outputs)

    async def _part(self, questions: _Questions, nats: float, index: int, masked: MaskOutputs) -> PartInfluence:
        refs = [masked.whole, *(one.ref for one in masked.masked)]
        scores = await asyncio.gather(*(questions.score({index: _source(ref, masked.modality)}) for ref in refs))
        return PartInfluence(
            part=index,
            modality=masked.modality,
            nats=nats - scores[0],
            places=tuple(
                Influence(nats=nats - score, box=one.box, span_s=one.span_s)
                for one, score in zip(masked.masked, scores[1:], strict=True)
            ),
        )

    async def _drawn(self, part: PartInfluence, plain: MediaRef) -> PartInfluence:
        inputs = {"media": plain.model_dump(), "modality": part.modality.value, "places": part.model_dump()["places"]}
        outputs = await self.ask("explain-draw", inputs)
        return part.model_copy(update={"picture": MediaRef.model_validate(outputs["picture"])})

    async def _modalities(self, questions: _Questions, nats: float, masked: Sequence[MaskOutputs]) -> dict[str, float]:
        """What all pieces of each modality did together, and what the user wrote."""
        found = {}
        for modality in dict.fromkeys(one.modality for one in masked):
            gone = {index: _source(one.whole, modality) for index, one in enumerate(masked) if one.modality is modality}
            found[modality.value] = nats - await questions.score(gone)
        if questions.has_text:
            found[Modality.TEXT.value] = nats - await questions.score({}, without_text=True)
        return found


class _Questions:
    """The request, asked again with other media, for the likelihood of the same answer."""

    def __init__(self, explainer: Explainer, asked: Asked, answer: str, media: Media) -> None:
        self._explainer, self._asked, self._answer, self._media = explainer, asked, answer, media
        self._messages = [Message.model_validate(message) for message in asked.inputs["messages"]]

    @property
    def has_text(self) -> bool:
        """Whether the user wrote anything."""
        return any(message.role == "user" and any(one.text for one in message.content) for message in self._messages)

    async def score(self, instead: dict[int, dict[str, Any]], *, without_text: bool = False) -> float:
        """Log-probability of the answer, in nats.

        Args:
            instead: Media by their place in the request, in the place of what was sent.
            without_text: Leave out what the user wrote.
        """
        messages = self._without_text() if without_text else self._messages
        inputs = {
            **self._asked.inputs,
            "messages": [message.model_dump(exclude_none=True) for message in messages],
            "media": [instead.get(index, source) for index, source in enumerate(self._media)],
            "answer": self._answer,
        }
        outputs = await self._explainer.ask(self._asked.pipeline, inputs)
        choice = Answer.model_validate(outputs["answer"]).choices[0]
        return sum(token.logprob for token in choice.logprobs or ())

    def _without_text(self) -> list[Message]:
        return [
            message.model_copy(update={"content": tuple(one for one in message.content if not one.text)})
            if message.role == "user"
            else message
            for message in self._messages
        ]


def _source(ref: MediaRef, modality: Modality) -> dict[str, Any]:
    return MediaSource(ref=ref, modality=modality).model_dump(exclude_none=True)
