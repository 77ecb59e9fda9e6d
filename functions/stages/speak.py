"""`speak`: text to speech."""

from __future__ import annotations

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
    """Load the voices, and say a word, so that the first request does not wait for the dictionary."""
    from runtime.speech.kokoro import Kokoro

    model = Kokoro.load(repository, "kokoro-82m")
    model.plan("ready", model.voices[0])
    return model


@function(
    "speak",
    setup=setup,
    models=("kokoro-82m",),
    group="speech",
    cacheable=True,
    timeout_s=900.0,
)
async def speak(context: Context[Kokoro], inputs: SpeakInputs) -> SpeakOutputs:
    """Say a text, piece by piece.

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
    sounds = []
    for piece in pieces:
        context.check()
        sounds.append(await context.run(context.model.say, piece, options.voice, options.speed))
    data, media_type, seconds, rate_hz = await context.run(_file, sounds, options.format)
    context.note(seconds=round(seconds, 3), pieces=len(pieces))
    return SpeakOutputs(
        speech=Speech(
            audio=await save_media(context.store, data, media_type),
            seconds=seconds,
            sample_rate_hz=rate_hz,
            voice=options.voice,
            format=options.format,
        )
    )


async def _pieces(context: Context[Kokoro], inputs: SpeakInputs, options: SpeechOptions) -> list[str]:
    try:
        return await context.run(context.model.plan, inputs.text, options.voice)
    except NothingToSayError as error:
        if inputs.optional:
            raise Skip(error.message) from error
        raise


def _file(sounds: list[NDArray[np.float32]], kind: str) -> tuple[bytes, str, float, int]:
    import numpy as np

    from runtime.media.encode import encode
    from runtime.speech.kokoro import SAMPLE_RATE_HZ

    samples = np.concatenate(sounds)
    if not np.isfinite(samples).all():
        raise InvalidInputError("the voice gave no sound for this text; try another speed or voice")
    data, media_type = encode(samples, SAMPLE_RATE_HZ, kind)
    return data, media_type, len(samples) / SAMPLE_RATE_HZ, SAMPLE_RATE_HZ
