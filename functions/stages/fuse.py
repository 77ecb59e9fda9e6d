"""`fuse`: messages and encoded media as one prompt for the language model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bus.contracts import Contract, Modality
from bus.errors import ContextLengthError, InvalidInputError
from functions.context import Context
from functions.decorator import function
from functions.spec import ModelChoice
from functions.stages.parts import Block, Message, SamplingOptions
from functions.stages.phrases import Media, Piece, SoftTokens, Words, message_pieces
from functions.stages.prompt import LANGUAGE_MODEL, FusedPrompt, is_language_model

if TYPE_CHECKING:
    from runtime.generation.tokenizer import ChatTokenizer, PromptText
    from runtime.repository import Repository

_MEDIA_TOKEN = -1
# Stands for a message's content while the chat template is rendered, so that a user's text is never read as markup.
# A space on each side tells whether the template trims what it is given.
_HOLE = re.compile("( ?)\ue000(\\d+)\ue001( ?)")


class FuseInputs(Contract):
    """A chat and what the encoders made of its media."""

    messages: tuple[Message, ...] = Field(min_length=1)
    images: tuple[Block, ...] = ()
    frames: tuple[Block, ...] = ()
    speech: tuple[Block, ...] = ()
    soundtracks: tuple[Block, ...] = ()
    sampling: SamplingOptions | None = None
    model: str | None = Field(default=None, description="Id, `id@version` or alias; None: the chat pipeline's own.")


class FuseOutputs(Contract):
    """The prompt."""

    prompt: FusedPrompt


@dataclass(frozen=True, slots=True)
class Fusion:
    """What `fuse` needs of the language model."""

    tokenizer: ChatTokenizer
    hidden: int
    context: int
    ref: str


def setup(repository: Repository) -> Fusion:
    """Load the tokenizer and the chat template."""
    from runtime.generation.limits import context_tokens
    from runtime.generation.tokenizer import ChatTokenizer

    manifest = repository.resolve(LANGUAGE_MODEL)
    tokenizer = ChatTokenizer(repository.folder(manifest))
    return Fusion(tokenizer, manifest.dims["hidden"], context_tokens(manifest), manifest.ref)


@function(
    "fuse",
    setup=setup,
    models=(LANGUAGE_MODEL,),
    choice=ModelChoice(name=LANGUAGE_MODEL, of=lambda inputs: inputs.model, serves=is_language_model),
    group="generate",
    slots=8,
)
async def fuse(context: Context[Fusion], inputs: FuseInputs) -> FuseOutputs:
    """Put everything in its place.

    Raises:
        InvalidInputError: Nothing was written, shown or said; a message refers to media that no encoder has seen;
            embeddings of another width than the model's.
        ContextLengthError: More tokens than the model's context.
    """
    model = context.model
    media = Media(
        await _soft(context, inputs.images),
        await _soft(context, inputs.frames),
        inputs.speech,
        inputs.soundtracks,
    )
    contents = [message_pieces(message, media) for message in inputs.messages]
    if not any(isinstance(piece, SoftTokens) or piece.text.strip() for pieces in contents for piece in pieces):
        raise InvalidInputError("the prompt is empty: nothing was written, shown or said")
    prompt = await context.run(_assemble, model, inputs.messages, contents)
    if len(prompt.ids) >= model.context:
        raise ContextLengthError(
            f"the prompt has {len(prompt.ids)} tokens, {model.ref} takes {model.context} with the answer; shorten it",
            tokens=len(prompt.ids),
            context=model.context,
        )
    context.note(tokens=len(prompt.ids), **{f"{name}_tokens": count for name, count in prompt.counts.items()})
    return FuseOutputs(
        prompt=FusedPrompt(
            ids=await context.tensors.put(prompt.ids),
            embeddings=await context.tensors.put(prompt.embeddings) if len(prompt.embeddings) else None,
            positions=await context.tensors.put(prompt.positions),
            counts=prompt.counts,
            model=model.ref,
        )
    )


async def _soft(context: Context[Fusion], blocks: Sequence[Block]) -> list[tuple[Block, SoftTokens]]:
    soft = []
    for block in blocks:
        embeddings = block.block.embeddings
        if embeddings is None or embeddings.shape[1] != context.model.hidden:
            have = "no embeddings" if embeddings is None else f"embeddings of {embeddings.shape[1]} dimensions"
            raise InvalidInputError(
                f"the block of media {block.part} from {block.block.encoder} has {have}; "
                f"{context.model.ref} takes {context.model.hidden}",
                part=block.part,
            )
        rows = (await context.tensors.get(embeddings)).astype(np.float32)
        places = np.tile(np.arange(len(rows), dtype=np.int32), (3, 1))
        if block.block.positions is not None:
            places = await context.tensors.get(block.block.positions)
        soft.append((block, SoftTokens(block.block.modality, rows, places)))
    return soft


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: NDArray[np.int32]
    embeddings: NDArray[np.float32]
    positions: NDArray[np.int32]
    counts: dict[str, int]


def _assemble(model: Fusion, messages: Sequence[Message], contents: Sequence[Sequence[Piece]]) -> _Prompt:
    """The chat template's own tokens with every message's pieces where its content belongs."""
    from runtime.generation.tokenizer import PromptText

    holes = [{"role": message.role, "content": f" \ue000{place}\ue001 "} for place, message in enumerate(messages)]
    # Markup, and between it three members for each message: the space before it, its number, the space behind it.
    rendered = _HOLE.split(model.tokenizer.chat(holes))
    prompt = _Growing(model.hidden)
    run: list[tuple[Modality, PromptText]] = []
    for place, part in enumerate(rendered):
        if place % 4 == 0:
            run.append((Modality.TEXT, PromptText(part, markup=True)))
        if place % 4 != 2:
            continue
        pieces = _trimmed(_joined(contents[int(part)]), before=not rendered[place - 1], behind=not rendered[place + 1])
        for piece in pieces:
            if isinstance(piece, Words):
                run.append((piece.modality, PromptText(piece.text)))
            else:
                _add_words(prompt, model.tokenizer, run)
                prompt.add_soft(piece)
                run = []
    _add_words(prompt, model.tokenizer, run)
    return prompt.finish()


def _add_words(prompt: _Growing, tokenizer: ChatTokenizer, run: Sequence[tuple[Modality, PromptText]]) -> None:
    """Add what stands between two media as one text: a word may begin in one part and end in the next."""
    if not run:
        return
    ids, owners = tokenizer.encode_parts([text for _, text in run])
    for place, (modality, _) in enumerate(run):
        prompt.add(modality, ids[owners == place])


def _trimmed(pieces: list[Piece], *, before: bool, behind: bool) -> list[Piece]:
    """A message without the space at its ends, where the template takes that away."""
    if pieces and before and isinstance(pieces[0], Words):
        pieces[0] = Words(pieces[0].modality, pieces[0].text.lstrip())
    if pieces and behind and isinstance(pieces[-1], Words):
        pieces[-1] = Words(pieces[-1].modality, pieces[-1].text.rstrip())
    return pieces


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbouring words as one text, since tokens do not end where pieces do; the longest names the modality."""
    joined: list[Piece] = []
    longest = 0
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, Words) and isinstance(last, Words):
            modality = piece.modality if len(piece.text) > longest else last.modality
            joined[-1] = Words(modality, last.text + piece.text)
            longest = max(longest, len(piece.text))
        else:
            joined.append(piece)
            longest = len(piece.text) if isinstance(piece, Words) else 0
    return joined


class _Growing:
    """A prompt under construction.

    Positions follow the M-RoPE rule: text counts on in all three axes, a block keeps its own three-dimensional
    positions from where the text stopped, and what follows starts behind the block's largest.

    Source: Wang et al., Qwen2-VL (2024), section 2.1.
    """

    def __init__(self, hidden: int) -> None:
        self._ids: list[NDArray[np.int32]] = []
        self._embeddings: list[NDArray[np.float32]] = [np.zeros((0, hidden), np.float32)]
        self._positions: list[NDArray[np.int32]] = []
        self._counts: dict[str, int] = {}
        self._next = 0

    def add(self, modality: Modality, ids: NDArray[np.int32]) -> None:
        self._append(modality, ids, np.tile(np.arange(len(ids), dtype=np.int32), (3, 1)))

    def add_soft(self, soft: SoftTokens) -> None:
        self._embeddings.append(soft.embeddings)
        self._append(soft.modality, np.full(len(soft.embeddings), _MEDIA_TOKEN, np.int32), soft.positions)

    def _append(self, modality: Modality, ids: NDArray[np.int32], places: NDArray[np.int32]) -> None:
        if not len(ids):
            return
        self._ids.append(ids)
        self._positions.append(places + np.int32(self._next))
        self._next += int(places.max()) + 1
        self._counts[modality.value] = self._counts.get(modality.value, 0) + len(ids)

    def finish(self) -> _Prompt:
        return _Prompt(
            np.concatenate(self._ids),
            np.concatenate(self._embeddings),
            np.ascontiguousarray(np.concatenate(self._positions, axis=1)),
            self._counts,
        )
