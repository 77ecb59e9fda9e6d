"""Media in the prompt of a native multimodal model: where its own chat template puts them, framed as it was trained.

The template is given the parts of each message as the model's reference gives them, and writes a placeholder where a
piece of media belongs. What users wrote is not in it, so nobody can write a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bus.contracts import Modality
from bus.errors import InvalidInputError, ModelUnsupportedError
from functions.stages.parts import ContentPart, Message
from functions.stages.pieces import Markup, Piece, SoftTokens, Words
from functions.stages.template import filled, hole, holes_in

if TYPE_CHECKING:
    from runtime.generation.tokenizer import ChatTokenizer

Media = Mapping[int, Sequence[Piece]]
"""What stands for each piece of media: its embeddings, or words where nothing of it is to be seen or heard."""


def native_pieces(
    tokenizer: ChatTokenizer,
    placeholders: Mapping[Modality, str],
    messages: Sequence[Message],
    media: Media,
    told: Mapping[int, Words],
) -> Iterator[Piece]:
    """The pieces of a prompt.

    Args:
        tokenizer: Of the model.
        placeholders: What its template writes for each kind of media.
        messages: The chat.
        media: What its media became.
        told: What is written on pictures and said in clips: text that stands behind the piece that it is of.

    Raises:
        InvalidInputError: A message refers to media that no encoder has seen.
        ModelUnsupportedError: The model's template has no place for some of what the messages hold.
    """
    chat = _Chat(media, told)
    rendered = tokenizer.chat([chat.message(message) for message in messages])
    places = _Places(placeholders, chat.shown)
    if holes_in(rendered) != set(range(len(chat.words))):
        raise ModelUnsupportedError("the model's chat template leaves out some of what the messages say")
    for piece in filled(rendered, lambda number: chat.words[number]):
        if isinstance(piece, Markup):
            yield from places.split(piece.text)
        else:
            yield piece
    places.check_all_stand()


class _Chat:
    """Messages as the template takes them, and what it does not see of them."""

    def __init__(self, media: Media, told: Mapping[int, Words]) -> None:
        self._media, self._told = media, told
        self.words: list[list[Piece]] = []
        self.shown: list[tuple[Modality, int, Sequence[Piece]]] = []

    def message(self, message: Message) -> dict[str, Any]:
        parts = [part for content in message.content for part in self._parts(content)]
        return {"role": message.role, "content": parts}

    def _parts(self, content: ContentPart) -> Iterator[dict[str, str]]:
        if content.part is None:
            if content.text:
                yield self._text(Words(Modality.TEXT, content.text))
            return
        if content.part not in self._media:
            raise InvalidInputError(
                f"a message refers to media {content.part}, which no encoder has seen", part=content.part
            )
        pieces = self._media[content.part]
        soft = next((piece for piece in pieces if isinstance(piece, SoftTokens)), None)
        if soft is not None:
            self.shown.append((soft.modality, content.part, pieces))
            yield {"type": soft.modality.value}
        elif pieces:
            yield self._text(*pieces)
        if words := self._told.get(content.part):
            yield self._text(words)

    def _text(self, *pieces: Piece) -> dict[str, str]:
        self.words.append(list(pieces))
        return {"type": "text", "text": hole(len(self.words) - 1)}


class _Places:
    """The placeholders of a rendered template, each for the next piece of media of its kind."""

    def __init__(
        self, placeholders: Mapping[Modality, str], shown: Sequence[tuple[Modality, int, Sequence[Piece]]]
    ) -> None:
        self._waiting: dict[str, list[tuple[Modality, int, Sequence[Piece]]]] = {
            text: [] for text in placeholders.values()
        }
        for one in shown:
            if one[0] not in placeholders:
                raise ModelUnsupportedError(f"the model's chat template has no place for {one[0]}", part=one[1])
            self._waiting[placeholders[one[0]]].append(one)
        longest_first = sorted(self._waiting, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(text) for text in longest_first))

    def split(self, markup: str) -> Iterator[Piece]:
        end = 0
        for found in self._pattern.finditer(markup):
            yield Markup(markup[end : found.start()])
            waiting = self._waiting[found[0]]
            if not waiting:
                raise ModelUnsupportedError(
                    f"the model's chat template writes {found[0]!r} where the messages hold no media"
                )
            yield from waiting.pop(0)[2]
            end = found.end()
        yield Markup(markup[end:])

    def check_all_stand(self) -> None:
        """Refuse media that the template wrote no place for, such as those of a role that it takes none from."""
        for waiting in self._waiting.values():
            for modality, part, _ in waiting:
                raise ModelUnsupportedError(
                    f"the model's chat template has no place for media {part}, {modality}, in a message of that role; "
                    "send it as the user's",
                    part=part,
                )
