"""`speak`: text to speech."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract
from bus.errors import InvalidInputError, LimitExceededError, NothingToSayError
from bus.store.media import save_media
from functions.context import Context
from functions.decorator import function
from functions.signals import Skip
from functions.stages.parts import Speech, SpeechOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from runtime.repository import Repository
    from runtime.speech.kokoro import Kokoro

_RATE_HZ = 24_000
"""What the voices give; importing the stage loads none of them."""

MAX_CHARACTERS = 8192
"""The longest text of one request: about ten minutes of speech."""


class SpeakInputs(Contract):
    """What to say and how."""

    text: str
    options: SpeechOptions | None = None
    optional: bool = Field(default=False, description="True: a text that cannot be said is skipped, not refused.")


class SpeakOutputs(Contract):
    """The spoken text."""

    speech: Speech


def setup(repository: Repository) -> Kokoro:
    """Load the voices and the dictionary."""
    from runtime.speech.kokoro import Kokoro

    return Kokoro.load(repository, "kokoro-82m")


async def warm_up(model: Kokoro) -> None:
    """Say a word."""
    voice = model.voices[0]
    (piece,) = await asyncio.to_thread(model.plan, "ready", voice)
    await asyncio.to_thread(model.say, piece, voice)


@function(
    "speak",
    setup=setup,
    warm_up=warm_up,
    models=("kokoro-82m",),
    group="speech",
    version=3,
    cacheable=True,
    streams=True,
    timeout_s=900.0,
)
async def speak(context: Context[Kokoro], inputs: SpeakInputs) -> SpeakOutputs:
    """Say a text, piece by piece; whoever asks for a stream hears each one as soon as it is said.

    Raises:
        InvalidInputError: An unknown voice.
        NothingToSayError: Nothing in the text can be said, and it is not optional.
        LimitExceededError: Too long.
    """
    options = inputs.options or SpeechOptions()
    if len(inputs.text) > MAX_CHARACTERS:
        raise LimitExceededError(
            f"the text has {len(inputs.text)} characters; at most {MAX_CHARACTERS} are spoken at once",
            characters=len(inputs.text),
            max_characters=MAX_CHARACTERS,
        )
    pieces = await _pieces(context, inputs, options)
    said = (_said(context, piece, options) for piece in pieces)
    data, media_type, seconds = await (_streamed if options.stream else _whole)(context, said, options)
    context.note(seconds=round(seconds, 3), pieces=len(pieces))
    return SpeakOutputs(
        speech=Speech(
            audio=await save_media(context.store, data, media_type),
            seconds=seconds,
            sample_rate_hz=_RATE_HZ,
            voice=options.voice,
            format=options.format,
        )
    )


async def _said(context: Context[Kokoro], piece: str, options: SpeechOptions) -> NDArray[np.float32]:
    context.check()
    return await context.run(_finite, context.model, piece, options)


async def _whole(
    context: Context[Kokoro], said: Iterable[Awaitable[NDArray[np.float32]]], options: SpeechOptions
) -> tuple[bytes, str, float]:
    """The file, its MIME type and its seconds, once all is said."""
    sounds = [await sound for sound in said]
    return await context.run(_file, sounds, options.format)


async def _streamed(
    context: Context[Kokoro], said: Iterable[Awaitable[NDArray[np.float32]]], options: SpeechOptions
) -> tuple[bytes, str, float]:
    """The same, each part told as soon as it is made: `{"audio": MediaRef, "at": byte, "rate_hz": samples}`."""
    from runtime.media.encode import SoundEncoder

    encoder = SoundEncoder(options.format, _RATE_HZ)
    data, samples = b"", 0
    for awaited in said:
        sound = await awaited
        samples += len(sound)
        part = await context.run(encoder.add, sound)
        if part:
            # Kept where media are, for a part may be larger than a message.
            ref = await save_media(context.store, part, encoder.media_type)
            await context.emit(audio=ref.model_dump(exclude_none=True), at=len(data), rate_hz=_RATE_HZ)
            data += part
    return data + await context.run(encoder.finish), encoder.media_type, samples / _RATE_HZ


async def _pieces(context: Context[Kokoro], inputs: SpeakInputs, options: SpeechOptions) -> list[str]:
    try:
        return await context.run(
            lambda: context.model.plan(inputs.text, options.voice, speed=options.speed, early=options.stream)
        )
    except NothingToSayError as error:
        if inputs.optional:
            raise Skip(error.message) from error
        raise


def _finite(model: Kokoro, piece: str, options: SpeechOptions) -> NDArray[np.float32]:
    import numpy as np

    sound = model.say(piece, options.voice, options.speed)
    if not np.isfinite(sound).all():
        raise InvalidInputError("the voice gave no sound for this text; try another speed or voice")
    return sound


def _file(sounds: list[NDArray[np.float32]], kind: str) -> tuple[bytes, str, float]:
    import numpy as np

    from runtime.media.encode import encode

    samples = np.concatenate(sounds)
    data, media_type = encode(samples, _RATE_HZ, kind)
    return data, media_type, len(samples) / _RATE_HZ
