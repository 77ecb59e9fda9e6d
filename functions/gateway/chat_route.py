"""Which pipeline answers a chat: by the model that it names, and by what that model takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from bus.contracts import Modality
from bus.errors import ModelUnsupportedError
from functions.gateway.chat_parts import ChatMedia
from functions.gateway.model_names import Chosen
from functions.gateway.openai_chat_body import ChatBody
from functions.stages.tokens.media import is_native

COMPOSED, NATIVE = "chat", "native"
"""A language model with other models' eyes and ears; one that has its own."""

_MEDIA_PARTS = {"image_url": Modality.IMAGE, "input_audio": Modality.AUDIO, "video_url": Modality.VIDEO}


@dataclass(frozen=True, slots=True)
class Route:
    """How a chat is answered.

    Attributes:
        pipeline: By which pipeline.
        model: With which model.
    """

    pipeline: str
    model: Chosen

    def inputs(self, media: ChatMedia, taken: Collection[str]) -> dict[str, Any]:
        """The pipeline's inputs beside those that every chat has.

        Args:
            media: Of the chat.
            taken: What the pipeline takes.
        """
        model = self.model.name
        if model is None and media.sources and self.model.manifest is not None and "model" in taken:
            # The pipeline was chosen for this version: one that takes its place meanwhile may take media otherwise.
            model = self.model.manifest.ref
        found: dict[str, Any] = {} if model is None else {"model": model}
        if self.pipeline == NATIVE:
            if self.model.manifest is not None:
                found.setdefault("model", self.model.manifest.ref)
            if media.options:
                found["options"] = [one.model_dump() for one in media.options]
            if media.listen:
                found["listen"] = list(media.listen)
        return found


def route_of(model: Chosen, body: ChatBody) -> Route:
    """The route of a chat.

    Raises:
        ModelUnsupportedError: The chat holds media that its model does not take; names the first.
    """
    if model.manifest is None or not is_native(model.manifest):
        return Route(COMPOSED, model)
    taken = model.manifest.modalities_in
    for where, kind in _media_of(body):
        if kind not in taken:
            raise ModelUnsupportedError(
                f"{where}: {model.manifest.ref} takes {', '.join(taken)}, not {kind}; leave it out or choose another "
                "model",
                model=model.manifest.ref,
                param=where,
            )
    return Route(NATIVE, model)


def _media_of(body: ChatBody) -> Iterator[tuple[str, Modality]]:
    for turn, message in enumerate(body.messages):
        for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if part.type in _MEDIA_PARTS:
                yield f"messages.{turn}.content.{place}", _MEDIA_PARTS[part.type]
