"""`tokens.encode`: prepared media as tokens in the space of their own language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, TensorRef, TokenBlock
from bus.errors import InvalidInputError
from bus.ports import Array
from functions.context import Context
from functions.decorator import function
from functions.spec import ModelChoice
from functions.stages.blame import about
from functions.stages.parts import Block
from functions.stages.tokens.media import INLINE_NBYTES, NATIVE_MODEL, PreparedMedia, is_native

if TYPE_CHECKING:
    from runtime.multimodal.encoder import MediaEncoder
    from runtime.multimodal.prepared import Floats, Prepared
    from runtime.repository import Repository


_LOOK_EVERY_S = 0.2
"""How often somebody who waits for another request's encoding looks whether its own is cancelled."""


class EncodeInputs(Contract):
    """Prepared media."""

    media: tuple[PreparedMedia, ...]
    model: str = Field(description="`id@version` that they were prepared for.")


class EncodeOutputs(Contract):
    """A block for each, in their order."""

    blocks: tuple[Block, ...] = ()


def setup(repository: Repository) -> MediaEncoder:
    """Make the encoders ready; their graphs are opened when they are first used."""
    from runtime.multimodal.encoder import MediaEncoder

    manifest = repository.resolve(NATIVE_MODEL)
    return MediaEncoder(repository.folder(manifest), manifest)


@function(
    "tokens.encode",
    setup=setup,
    choice=ModelChoice(name=NATIVE_MODEL, of=lambda inputs: str(inputs.model), serves=is_native),
    made_for=lambda inputs: str(inputs.model),
    group="encode",
    slots=8,
    timeout_s=300.0,
)
async def encode(context: Context[MediaEncoder], inputs: EncodeInputs) -> EncodeOutputs:
    """Encode what is not known; pieces of all requests share runs, and are remembered.

    Raises:
        CancelledRequestError: Nobody waits any more.
        InvalidInputError: A piece cannot be as few tokens as it may become.
        EngineError: An encoder failed; says on which piece where there was but one.
    """
    # The same picture twice in a request is encoded once.
    wanted = {piece.key: piece for piece in inputs.media if piece.block is None}
    made, encoded = await _made(context, wanted)
    blocks = [Block(part=piece.part, block=piece.block or made[piece.key]) for piece in inputs.media]
    tokens = sum(one.block.embeddings.shape[0] for one in blocks if one.block.embeddings is not None)
    context.note(media=len(blocks), encoded=encoded, tokens=tokens)
    return EncodeOutputs(blocks=tuple(blocks))


async def _made(
    context: Context[MediaEncoder], wanted: Mapping[str, PreparedMedia]
) -> tuple[dict[str, TokenBlock], int]:
    """The block of each piece, and how many of them were encoded here; what another request encodes is waited for."""
    cache, made, encoded = context.encoder_cache, dict[str, TokenBlock](), 0
    for key in wanted:
        # It may have been encoded since it was prepared.
        if cache.knows(key) and (known := await cache.get(key)) is not None:
            made[key] = known
    while left := [key for key in wanted if key not in made]:
        if mine := cache.flights.take_off(left):
            landed: dict[str, TokenBlock] = {}
            try:
                await _encode(context, [wanted[key] for key in mine], landed)
            finally:
                cache.flights.land(mine, landed)
            made |= landed
            encoded += len(mine)
            continue
        context.check()
        if (block := await cache.flights.landed(left[0], _LOOK_EVERY_S)) is not None:
            made[left[0]] = block
    return made, encoded


async def _encode(
    context: Context[MediaEncoder], pieces: Sequence[PreparedMedia], landed: dict[str, TokenBlock]
) -> None:
    prepared = [await _prepared(context, piece) for piece in pieces]
    for piece, one in zip(pieces, await _encoded(context, pieces, prepared), strict=True):
        with about(piece.part, context.model.ref):
            landed[piece.key] = await _block(context, piece, *one)


async def _encoded(
    context: Context[MediaEncoder], waiting: Sequence[PreparedMedia], prepared: Sequence[Prepared]
) -> list[tuple[Prepared, Floats]]:
    encoder, tenant = context.model, context.event.tenant

    def cancelled() -> bool:
        return context.cancelled

    if len(waiting) == 1:
        with about(waiting[0].part, encoder.ref):
            found = await encoder.encode(prepared, tenant=tenant, cancelled=cancelled)
    else:
        found = await encoder.encode(prepared, tenant=tenant, cancelled=cancelled)
    return list(zip(prepared, found, strict=True))


async def _prepared(context: Context[MediaEncoder], piece: PreparedMedia) -> Prepared:
    from runtime.multimodal.prepared import Prepared, in_a_row

    tensors = context.tensors
    with about(piece.part):
        return Prepared(
            modality=piece.modality,
            inputs={name: await tensors.get(ref) for name, ref in piece.inputs.items()},
            frame=piece.frame,
            positions=in_a_row(piece.tokens) if piece.positions is None else await tensors.get(piece.positions),
            grid=piece.grid,
            regions=None if piece.regions is None else await tensors.get(piece.regions),
            seconds_per_step=piece.seconds_per_step,
            start_s=piece.start_s,
        )


async def _block(
    context: Context[MediaEncoder], piece: PreparedMedia, prepared: Prepared, embeddings: Floats
) -> TokenBlock:
    """The block of a piece, in as many tokens as it is worth; remembered.

    Raises:
        InvalidInputError: What must stay apart is more tokens than it may become.
    """
    from runtime.multimodal.budget import tokens_to_keep
    from runtime.multimodal.family import Detail, Laid
    from runtime.multimodal.merge import merge

    laid = Laid(embeddings, prepared.positions, prepared.frame, prepared.seconds_per_step, prepared.regions)
    detail = Detail(level=piece.options.detail, max_tokens=piece.options.max_tokens)
    wanted = tokens_to_keep(prepared.tokens, piece.complexity, detail)
    if wanted < prepared.tokens:
        laid = await context.run(merge, laid, wanted)
    least, most = len(laid.embeddings), piece.options.max_tokens
    if most is not None and least > most:
        raise InvalidInputError(
            f"with max_tokens of {most} this {piece.modality} would still be {least} tokens, for those of different "
            f"pieces stay apart; ask for {least} or more",
            max_tokens=most,
            least=least,
        )
    block = TokenBlock(
        modality=piece.modality,
        embeddings=await _put(context, laid.embeddings),
        positions=await _put(context, laid.positions),
        regions=None if laid.regions is None else await _put(context, laid.regions),
        frame=laid.frame,
        grid=prepared.grid,
        seconds_per_step=prepared.seconds_per_step,
        start_s=prepared.start_s,
        encoder=context.model.ref,
        compression=prepared.tokens / len(laid.embeddings),
        complexity=piece.complexity,
        source=piece.source,
    )
    await context.encoder_cache.put(piece.key, block)
    return block


async def _put(context: Context[MediaEncoder], array: Array) -> TensorRef:
    return await context.tensors.put(array, inline_nbytes=INLINE_NBYTES)
