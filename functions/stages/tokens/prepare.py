"""`tokens.prepare`: media as the encoders of a native multimodal model take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, MediaLimits, Modality, TensorRef, TokenBlock
from bus.errors import ContextLengthError, ModelUnsupportedError
from bus.ports import Array
from bus.store.media import load_media
from functions.context import Context
from functions.decorator import function
from functions.spec import ModelChoice
from functions.stages.blame import about
from functions.stages.parts import MediaItem, MediaOptions
from functions.stages.tokens.media import INLINE_NBYTES, NATIVE_MODEL, PreparedMedia, is_native

if TYPE_CHECKING:
    from runtime.multimodal.media import Readied, Readier
    from runtime.repository import Repository


class PrepareInputs(Contract):
    """Media of one kind in the object store."""

    media: tuple[MediaItem, ...]
    modality: Modality = Field(description="What all of them are.")
    model: str = Field(description="Id, `id@version` or alias of the model that is to take them.")
    options: tuple[MediaOptions, ...] = Field(default=(), description="Of those that are not to be as usual.")
    limits: MediaLimits = MediaLimits()


class PrepareOutputs(Contract):
    """The same media; a video whose sound the model takes is two, its picture and its track."""

    media: tuple[PreparedMedia, ...] = ()
    model: str = Field(description="`id@version` that they were prepared for.")


@dataclass(frozen=True, slots=True)
class Preparer:
    """What `tokens.prepare` needs of a model: its family, and what its blocks are remembered by.

    Attributes:
        readier: Makes media ready.
        ref: `id@version`.
        content: Digest of the model's files.
        context: The most tokens of a prompt and its answer.
    """

    readier: Readier
    ref: str
    content: str
    context: int


def setup(repository: Repository) -> Preparer:
    """Read the model's manifest; nothing of its weights."""
    from runtime.engines.identity import content_digest
    from runtime.generation.limits import context_tokens
    from runtime.multimodal.known import exact_pixels, family_of
    from runtime.multimodal.media import Readier

    manifest = repository.resolve(NATIVE_MODEL)
    readier = Readier(family_of(manifest), exact_pixels=exact_pixels(manifest))
    return Preparer(readier, manifest.ref, content_digest(manifest), context_tokens(manifest))


@function(
    "tokens.prepare",
    setup=setup,
    choice=ModelChoice(name=NATIVE_MODEL, of=lambda inputs: str(inputs.model), serves=is_native),
    group="media",
    slots=8,
    timeout_s=300.0,
)
async def prepare(context: Context[Preparer], inputs: PrepareInputs) -> PrepareOutputs:
    """Decode and preprocess what was not encoded before.

    Raises:
        ModelUnsupportedError: The model does not take such media.
        ContextLengthError: More tokens than the model's context.
        MediaTooLargeError: Longer, or of more pixels, than allowed.
        MediaUnsupportedError: Media that are not decoded here.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    model = context.model
    options = {one.part: one for one in inputs.options}
    prepared: list[PreparedMedia] = []
    for item in inputs.media:
        context.check()
        with about(item.part, model.ref):
            _check_taken(model, inputs.modality)
            chosen = options.get(item.part) or MediaOptions(part=item.part)
            prepared += await _piece(context, inputs, item, chosen, prepared)
            _check_room(model, prepared)
    known = sum(one.block is not None for one in prepared)
    context.note(
        media=len(prepared), tokens=sum(one.tokens for one in prepared), cache_hits=known,
        cache_misses=len(prepared) - known,
    )  # fmt: skip
    return PrepareOutputs(media=tuple(prepared), model=model.ref)


def _check_taken(model: Preparer, modality: Modality) -> None:
    taken = model.readier.takes
    if modality not in taken:
        raise ModelUnsupportedError(
            f"{model.ref} takes text and {', '.join(taken)}, not {modality}; leave it out or choose another model",
            model=model.ref,
        )


def _check_room(model: Preparer, prepared: Sequence[PreparedMedia]) -> None:
    tokens = sum(one.tokens for one in prepared)
    if tokens >= model.context:
        raise ContextLengthError(
            f"with it the media are {tokens} tokens, {model.ref} takes {model.context} with the text and the answer; "
            "send fewer, or ask for less of their detail",
            tokens=tokens,
            context=model.context,
            model=model.ref,
        )


async def _piece(
    context: Context[Preparer],
    inputs: PrepareInputs,
    item: MediaItem,
    options: MediaOptions,
    before: Sequence[PreparedMedia],
) -> list[PreparedMedia]:
    """A piece, or a video's picture and its track; one that stood in the request before is made once."""
    from runtime.multimodal.family import Detail

    readier = context.model.readier
    kinds = [inputs.modality]
    if inputs.modality is Modality.VIDEO and Modality.AUDIO in readier.takes:
        kinds.append(Modality.AUDIO)
    made_before = {one.key: one for one in before}
    found = [await _known(context, inputs, item, options, kind) for kind in kinds]
    if all(one.key in made_before for one in found):
        return [made_before[one.key].model_copy(update={"part": item.part}) for one in found]
    missing = [one.modality for one in found if one.block is None]
    if not missing:
        return found
    data = await load_media(context.store, item.ref, inputs.limits.max_bytes)
    detail = Detail(level=options.detail, max_tokens=options.max_tokens, alone=_is_alone(context, inputs))
    made = await context.run(readier.ready, data, inputs.modality, detail, inputs.limits)
    ready = {one.prepared.modality: one for one in made}
    damaged = [round(second, 2) for one in made for second in one.damaged_s]
    if damaged:
        context.note(**{f"damaged_s_of_media_{item.part}": damaged})
    return [one if one.block is not None else await _kept(context, one, ready.get(one.modality)) for one in found]


def _is_alone(context: Context[Preparer], inputs: PrepareInputs) -> bool:
    """Whether a piece is prepared as the only one; always, where the model knows no difference."""
    return len(inputs.media) == 1 or not context.model.readier.closer_alone


async def _known(
    context: Context[Preparer], inputs: PrepareInputs, item: MediaItem, options: MediaOptions, kind: Modality
) -> PreparedMedia:
    """The piece as the encoder cache has it, or without anything."""
    cache, source = context.encoder_cache, item.ref.digest
    chosen = [options.detail, options.max_tokens, _is_alone(context, inputs)]
    settings = [inputs.modality, kind, *chosen, inputs.limits.model_dump()]
    key = cache.key(context.event.tenant, source, f"{context.model.ref} {context.model.content}", *settings)
    return PreparedMedia(
        part=item.part, modality=kind, source=source, options=options, key=key, block=await cache.get(key)
    )


async def _kept(context: Context[Preparer], piece: PreparedMedia, ready: Readied | None) -> PreparedMedia:
    if ready is None:  # the track of a silent film: remembered, too, or it would be looked for again
        silence = TokenBlock(modality=piece.modality, text="", encoder=context.model.ref, source=piece.source)
        await context.encoder_cache.put(piece.key, silence)
        return piece.model_copy(update={"block": silence})
    prepared = ready.prepared
    return piece.model_copy(
        update={
            "inputs": {name: await _put(context, array) for name, array in prepared.inputs.items()},
            "frame": prepared.frame,
            "positions": await _put(context, prepared.positions),
            "regions": None if prepared.regions is None else await _put(context, prepared.regions),
            "grid": prepared.grid,
            "seconds_per_step": prepared.seconds_per_step,
            "start_s": prepared.start_s,
            "complexity": ready.complexity,
        }
    )


async def _put(context: Context[Preparer], array: Array) -> TensorRef:
    return await context.tensors.put(array, inline_nbytes=INLINE_NBYTES)
