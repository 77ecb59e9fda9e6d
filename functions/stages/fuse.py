"""`fuse`: messages and encoded media as one prompt for the language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract
from bus.errors import ContextLengthError, InvalidInputError
from functions.context import Context
from functions.decorator import function
from functions.spec import ModelChoice
from functions.stages.layout import Laid, Layout
from functions.stages.native import native_pieces
from functions.stages.pages import Page
from functions.stages.parts import Block, Message, SamplingOptions, Transcript
from functions.stages.phrases import Media, message_pieces
from functions.stages.pieces import Markup, Piece, SoftTokens
from functions.stages.prompt import LANGUAGE_MODEL, FusedPrompt, is_language_model
from functions.stages.reading import said_in, written_on
from functions.stages.soft import native_media, soft_tokens
from functions.stages.sources import Source, sources_of
from functions.stages.template import filled, hole
from functions.stages.tokens.media import is_native

if TYPE_CHECKING:
    from runtime.generation.tokenizer import ChatTokenizer
    from runtime.multimodal.family import MultimodalFamily
    from runtime.repository import Repository


class FuseInputs(Contract):
    """A chat and what the encoders made of its media."""

    messages: tuple[Message, ...] = Field(min_length=1)
    images: tuple[Block, ...] = Field(default=(), description="Pictures, of a composition.")
    frames: tuple[Block, ...] = Field(default=(), description="Frames of films, of a composition.")
    speech: tuple[Block, ...] = Field(default=(), description="Transcripts of clips.")
    soundtracks: tuple[Block, ...] = Field(default=(), description="Transcripts of films' sound.")
    pictures: tuple[Block, ...] = Field(default=(), description="Pictures, of the model's own encoder.")
    films: tuple[Block, ...] = Field(default=(), description="Films and their sound, of the model's own encoders.")
    clips: tuple[Block, ...] = Field(default=(), description="Sound, of the model's own encoder.")
    pages: tuple[Page, ...] = Field(default=(), description="What is written on pictures that are to be read, too.")
    transcripts: tuple[Transcript, ...] = Field(default=(), description="Of clips, with times.")
    soundtrack_transcripts: tuple[Transcript, ...] = Field(default=(), description="Of films' sound, with times.")
    sampling: SamplingOptions | None = None
    answer: str | None = Field(
        default=None, description="Given where a chat is asked again to explain its answer: nothing may be left of it."
    )
    model: str | None = Field(default=None, description="Id, `id@version` or alias; None: the chat pipeline's own.")

    @property
    def heard(self) -> tuple[Transcript, ...]:
        """What was said in clips and films."""
        return (*self.transcripts, *self.soundtrack_transcripts)

    @property
    def native(self) -> tuple[Block, ...]:
        """What the model's own encoders made."""
        return (*self.pictures, *self.films, *self.clips)

    @property
    def composed(self) -> tuple[Block, ...]:
        """What other models made."""
        return (*self.images, *self.frames, *self.speech, *self.soundtracks)


class FuseOutputs(Contract):
    """The prompt, and where it came from."""

    prompt: FusedPrompt
    sources: tuple[Source, ...] = Field(default=(), description="One for each piece of media.")


@dataclass(frozen=True, slots=True)
class Fusion:
    """What `fuse` needs of the language model.

    Attributes:
        tokenizer: Its tokenizer and chat template.
        hidden: Width of its embeddings.
        context: The most tokens of a prompt and its answer.
        ref: `id@version`.
        family: How media stand in its prompts, where it takes them itself.
    """

    tokenizer: ChatTokenizer
    hidden: int
    context: int
    ref: str
    family: MultimodalFamily | None


def setup(repository: Repository) -> Fusion:
    """Load the tokenizer and the chat template."""
    from runtime.generation.installed_tokenizer import installed_tokenizer
    from runtime.generation.limits import context_tokens
    from runtime.multimodal.known import family_of

    manifest = repository.resolve(LANGUAGE_MODEL)
    tokenizer = installed_tokenizer(repository, manifest)
    family = family_of(manifest) if is_native(manifest) else None
    return Fusion(tokenizer, manifest.dims["hidden"], context_tokens(manifest), manifest.ref, family)


def _model_of(inputs: FuseInputs) -> str | None:
    """What its media were encoded for comes first: a name may have begun to mean another version meanwhile."""
    return next((one.block.encoder for one in inputs.native), inputs.model)


@function(
    "fuse",
    setup=setup,
    models=(LANGUAGE_MODEL,),
    choice=ModelChoice(name=LANGUAGE_MODEL, of=_model_of, serves=is_language_model),
    group="generate",
    slots=8,
)
async def fuse(context: Context[Fusion], inputs: FuseInputs) -> FuseOutputs:
    """Put everything in its place.

    Raises:
        InvalidInputError: Nothing was written, shown or said; a message refers to media that no encoder has seen;
            embeddings of another width or of another model than this one.
        ModelUnsupportedError: The model, or its chat template, does not take what the messages hold.
        ContextLengthError: More tokens than the model's context.
    """
    model = context.model
    pieces = await (_native(context, inputs) if model.family is not None else _composed(context, inputs))
    if inputs.answer is None and not any(isinstance(piece, SoftTokens) or _says_something(piece) for piece in pieces):
        raise InvalidInputError("the prompt is empty: nothing was written, shown or said")
    laid = await context.run(_laid, model, pieces)
    _check_room(model, laid)
    context.note(tokens=len(laid.ids), **{f"{name}_tokens": count for name, count in laid.counts.items()})
    return FuseOutputs(
        prompt=FusedPrompt(
            ids=await context.tensors.put(laid.ids),
            embeddings=await context.tensors.put(laid.embeddings) if len(laid.embeddings) else None,
            positions=await context.tensors.put(laid.positions),
            counts=laid.counts,
            model=model.ref,
        ),
        sources=sources_of((*inputs.native, *inputs.composed), laid, inputs.pages, inputs.heard),
    )


async def _composed(context: Context[Fusion], inputs: FuseInputs) -> Sequence[Piece]:
    """The prompt of a model of text alone, in which others have put media into words and soft tokens."""
    model = context.model
    media = Media(
        [(block, await soft_tokens(context, block)) for block in inputs.images],
        [(block, await soft_tokens(context, block)) for block in inputs.frames],
        inputs.speech,
        inputs.soundtracks,
        written_on(inputs.pages),
    )
    contents = [message_pieces(message, media) for message in inputs.messages]
    chat = [{"role": message.role, "content": hole(place)} for place, message in enumerate(inputs.messages)]
    return list(filled(model.tokenizer.chat(chat), lambda number: contents[number]))


async def _native(context: Context[Fusion], inputs: FuseInputs) -> Sequence[Piece]:
    """The prompt of a model that takes media itself."""
    family = context.model.family
    assert family is not None
    media = await native_media(context, family, inputs.native)
    told = written_on(inputs.pages) | said_in(inputs.heard)
    return list(native_pieces(context.model.tokenizer, family.placeholders, inputs.messages, media, told))


def _says_something(piece: Piece) -> bool:
    return not isinstance(piece, (Markup, SoftTokens)) and bool(piece.text.strip())


def _laid(model: Fusion, pieces: Sequence[Piece]) -> Laid:
    layout = Layout(model.tokenizer, model.hidden)
    for piece in pieces:
        layout.add(piece)
    return layout.finish()


def _check_room(model: Fusion, laid: Laid) -> None:
    if len(laid.ids) >= model.context:
        of = ", ".join(f"{count} {name}" for name, count in laid.counts.items())
        raise ContextLengthError(
            f"the prompt has {len(laid.ids)} tokens ({of}), {model.ref} takes {model.context} with the answer; "
            "shorten it",
            tokens=len(laid.ids),
            context=model.context,
            model=model.ref,
        )
