"""A deployment of small functions behind the doors of the gateway: it says back what it was told.

Nothing of the project is replaced: the pipelines below are a deployer's own, beside `media.fetch` and `assemble`.
"""

from __future__ import annotations

import asyncio
import io
import wave
from typing import Any

import numpy as np
from blake3 import blake3

from bus.contracts import Contract, MediaRef, TensorRef
from bus.errors import CancelledRequestError, error_from_code
from bus.store.media import load_media, save_media
from functions import Context, function
from functions.stages.choices import Choice, ChosenToken, TokenLogprob
from functions.stages.parts import (
    MediaItem,
    Message,
    SamplingOptions,
    Speech,
    SpeechOptions,
    SpeechSegment,
    TranscribeOptions,
    Transcript,
    Usage,
)

RATE_HZ = 8000
DIMENSIONS = 64


class Told(Contract):
    """What a chat brings."""

    messages: tuple[Message, ...]
    images: tuple[MediaItem, ...] = ()
    clips: tuple[MediaItem, ...] = ()
    videos: tuple[MediaItem, ...] = ()
    sampling: SamplingOptions = SamplingOptions()


class Said(Contract):
    """What the parrot says."""

    text: str
    finish_reason: str
    usage: Usage
    choices: tuple[Choice, ...] = ()


class Sayable(Contract):
    """A text to say aloud."""

    text: str
    options: SpeechOptions = SpeechOptions()


class Spoken(Contract):
    """A text said aloud."""

    speech: Speech


class Sounds(Contract):
    """Sound and how to listen."""

    clips: tuple[MediaItem, ...] = ()
    options: TranscribeOptions | None = None


class Clips(Contract):
    """Sound."""

    clips: tuple[MediaItem, ...]


class Heard(Contract):
    """What was heard."""

    transcripts: tuple[Transcript, ...]


class Texts(Contract):
    """Texts to embed."""

    texts: tuple[str, ...]


class Vectors(Contract):
    """float32 (text, dimension), normalised."""

    vectors: TensorRef
    tokens: int


class Anything(Contract):
    """Any value."""

    value: Any


class Described(Contract):
    """What the value was."""

    kind: str
    value: Any


@function("parrot.answer", streams=True)
async def answer(context: Context[Any], inputs: Told) -> Said:
    """Repeat the last message word by word; `settings` tells how it was asked to,
    `fail <code>` fails so, `wait` waits until nobody else does."""
    said = " ".join(part.text for part in inputs.messages[-1].content if part.text)
    if said.startswith("settings"):
        said = inputs.sampling.model_dump_json(exclude_defaults=True)
    if said.startswith("fail "):
        raise error_from_code(said.split()[1], "as you wish", retryable=False, retry_after_s=7.0)
    for item in (*inputs.images, *inputs.clips, *inputs.videos):
        said += f" [{item.part}: {item.ref.media_type}, {item.ref.nbytes} bytes]"
    words = said.split()
    spoken = words[: inputs.sampling.max_tokens]
    for index, word in enumerate(spoken):
        told = {} if inputs.sampling.top_logprobs is None else {"logprobs": [_word(word)], "first": index}
        await context.emit(word if index == 0 else f" {word}", **told)
        if word == "wait":
            await _wait(context, said)
    backwards = " ".join(spoken[::-1])
    for choice in range(1, inputs.sampling.n):
        await context.emit(choice=choice, offset=0, content=backwards)
    asked = sum(len((part.text or "").split()) for message in inputs.messages for part in message.content)
    reason = "stop" if len(spoken) == len(words) else "length"
    logprobs = None if inputs.sampling.top_logprobs is None else tuple(_word(word) for word in spoken)
    first = Choice(text=" ".join(spoken), finish_reason=reason, logprobs=logprobs)
    others = [Choice(text=backwards, finish_reason="length")] * (inputs.sampling.n - 1)
    return Said(
        text=first.text,
        finish_reason=reason,
        choices=(first, *others) if others or logprobs else (),
        usage=Usage(
            prompt_tokens=asked,
            completion_tokens=len(spoken),
            cached_tokens=len(inputs.messages) - 1,
            by_modality={"image": len(inputs.images)},
        ),
    )


def _word(word: str) -> ChosenToken:
    """A word is as unlikely as it is long."""
    own = TokenLogprob(token=word, utf8=tuple(word.encode()), logprob=-len(word))
    return ChosenToken(**own.model_dump(), top=(own,))


async def _wait(context: Context[Any], said: str) -> None:
    """Wait until nobody else does, and leave a note of it where a test can find it."""
    await save_media(context.store, f"began: {said}".encode(), "text/plain")
    try:
        while True:
            context.check()
            await asyncio.sleep(0.01)
    except CancelledRequestError:
        await save_media(context.store, f"cancelled: {said}".encode(), "text/plain")
        raise


@function("parrot.speak")
async def speak(context: Context[Any], inputs: Sayable) -> Spoken:
    """A tone of 10 ms a letter, as WAV whatever the format asked for."""
    seconds = len(inputs.text) * 0.01
    tone = np.sin(2 * np.pi * 440 * np.arange(int(seconds * RATE_HZ)) / RATE_HZ)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE_HZ)
        written.writeframes((tone * 20000).astype("<i2").tobytes())
    options, data = inputs.options, file.getvalue()
    if inputs.text.startswith("fail at once"):
        raise error_from_code("nothing_to_say", "as you wish", retryable=False, retry_after_s=None)
    if options.stream:
        half = await save_media(context.store, data[: len(data) // 2], "audio/wav")
        for _ in range(2):  # as a stage does that was started again
            await context.emit(audio=half.model_dump(exclude_none=True), at=0, rate_hz=RATE_HZ)
    if inputs.text.endswith("wait"):
        await _wait(context, inputs.text)
    if inputs.text.endswith("fail"):
        raise error_from_code("nothing_to_say", "as you wish", retryable=False, retry_after_s=None)
    ref = await save_media(context.store, data, "audio/wav")
    speech = Speech(audio=ref, seconds=seconds, sample_rate_hz=RATE_HZ, voice=options.voice, format=options.format)
    return Spoken(speech=speech)


@function("parrot.listen")
async def listen(context: Context[Any], inputs: Sounds) -> Heard:
    """One segment a second: how loud it was; the prompt `lost` loses what was told first."""
    found = []
    for clip in inputs.clips:
        with wave.open(io.BytesIO(await load_media(context.store, clip.ref, 10_000_000))) as file:
            rate_hz = file.getframerate()
            samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        seconds = len(samples) / rate_hz
        segments = tuple(
            SpeechSegment(start_s=start, end_s=min(start + 1.0, seconds), text=_loudness(samples[start * rate_hz :]))
            for start in range(int(np.ceil(seconds)))
        )
        text = " ".join(segment.text for segment in segments)
        if inputs.options is not None and inputs.options.stream:
            if inputs.options.prompt == "lost":
                context.emit_chunk, tell = None, context.emit_chunk
                await context.emit(text[: text.rindex(" ")])
                context.emit_chunk = tell
                await context.emit(text[text.rindex(" ") :])
            else:
                await context.emit(segments[0].text)
        found.append(
            Transcript(
                part=clip.part,
                text=text,
                language="en",
                seconds=seconds,
                segments=segments,
                words=segments if inputs.options is not None and inputs.options.words else (),
            )
        )
    return Heard(transcripts=tuple(found))


@function("parrot.embed")
async def embed(context: Context[Any], inputs: Texts) -> Vectors:
    """A vector that the text alone decides."""
    rows = [np.frombuffer(blake3(text.encode()).digest(DIMENSIONS), dtype=np.int8) for text in inputs.texts]
    vectors = np.stack(rows).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Vectors(vectors=await context.tensors.put(vectors), tokens=sum(len(t.split()) for t in inputs.texts))


@function("parrot.describe")
async def describe(context: Context[Any], inputs: Anything) -> Described:
    """Say what kind of value came; follow a reference."""
    value = inputs.value
    if isinstance(value, dict) and "digest" in value:
        data = await load_media(context.store, MediaRef.model_validate(value), 100_000_000)
        return Described(kind=f"reference to {len(data)} bytes", value=value)
    return Described(kind=type(value).__name__, value=value)


def _loudness(samples: np.ndarray[Any, Any]) -> str:
    return "loud" if len(samples) and np.abs(samples[:RATE_HZ].astype(np.int32)).max() > 5000 else "quiet"
