"""The contracts that stages hand to each other.

| function           | inputs                                             | outputs                          |
|--------------------|----------------------------------------------------|----------------------------------|
| `media.fetch`      | media: MediaSource…                                | images, audio, videos: MediaItem… |
| `image.preprocess` | images: MediaItem…                                 | images: ImageTensor…             |
| `image.encode`     | images: ImageTensor…                               | blocks: Block…, labels: ImageLabels… |
| `image.embed`      | images: ImageTensor…                               | vectors: TensorRef, parts: int…  |
| `image.ocr`        | images: MediaItem…                                 | pages: Page…                     |
| `audio.preprocess` | clips: MediaItem…                                  | clips: AudioTensor…              |
| `audio.transcribe` | clips: AudioTensor…, options?                      | blocks: Block…, transcripts: Transcript… |
| `video.preprocess` | videos: MediaItem…                                 | images: ImageTensor…, clips: AudioTensor… |
| `tokens.prepare`   | media: MediaItem…, modality, model, options?       | media: PreparedMedia…, model     |
| `tokens.encode`    | media: PreparedMedia…, model                       | blocks: Block…                   |
| `text.embed`       | texts: str…                                        | vectors: TensorRef, tokens: int  |
| `fuse`             | messages: Message…, images, speech, frames, soundtracks: Block… | prompt: FusedPrompt |
| `generate`         | prompt: FusedPrompt, sampling?                     | text, finish_reason, usage: Usage |
| `speak`            | text, options: SpeechOptions?                      | speech: Speech                   |
| `assemble`         | the parts                                          | answer: Answer                   |

`part` is the index in the request's list of media. A stage whose required list is empty is skipped.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bus.contracts import Contract, MediaRef, TensorRef, TokenBlock
from functions.stages.answer_format import AnswerFormat


class MediaItem(Contract):
    """One stored piece of media and where it stands in the request."""

    part: int = Field(ge=0, description="Its index in the request's list of media.")
    ref: MediaRef


class MediaOptions(Contract):
    """How one piece of media is to be looked at."""

    part: int = Field(ge=0, description="Its index in the request's list of media.")
    detail: str = Field(
        default="auto", pattern="^(low|high|auto)$", description="OpenAI's; how many tokens it may cost."
    )
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="None: the model's own limit.")


class ImageTensor(Contract):
    """One image as an encoder takes it."""

    part: int = Field(ge=0)
    pixels: TensorRef = Field(description="float32 (channel, height, width), normalised for the encoder.")
    width: int = Field(gt=0, description="Of the original after rotation, in pixels.")
    height: int = Field(gt=0)
    source: str = Field(description="Digest of the media.")
    time_s: float | None = Field(default=None, description="When in its video this frame is shown.")


class SpeechSegment(Contract):
    """A stretch of voice, or of text that was said."""

    start_s: float
    end_s: float
    text: str = ""


class AudioTensor(Contract):
    """One clip as the speech models take it."""

    part: int = Field(ge=0)
    samples: TensorRef = Field(description="float32 (sample,), mono, 16 kHz, in [-1, 1].")
    seconds: float = Field(ge=0)
    source: str = Field(description="Digest of the media.")
    voice: tuple[SpeechSegment, ...] = Field(default=(), description="Where somebody speaks.")


class Block(Contract):
    """A token block and where it stands in the request."""

    part: int = Field(ge=0)
    block: TokenBlock
    time_s: float | None = Field(default=None, description="When in its video it is.")


class ContentPart(Contract):
    """A piece of a message: text, or a reference to the request's list of media."""

    text: str | None = None
    part: int | None = Field(default=None, ge=0, description="Index in the request's list of media.")


class Message(Contract):
    """One turn of a chat."""

    role: str = Field(pattern="^(system|user|assistant)$")
    content: tuple[ContentPart, ...]


class TranscribeOptions(Contract):
    """How to listen."""

    language: str | None = Field(default=None, description="ISO 639 code, such as `en`; None: listen first.")
    timestamps: bool = Field(default=False, description="Segments by sentence instead of by window.")
    words: bool = Field(default=False, description="Tell when each word was said, too.")
    prompt: str = Field(default="", max_length=4096, description="How names are written, or what was said before.")
    temperature: float = Field(default=0.0, ge=0.0, le=1.0, description="Of the first try; unsure texts get warmer.")
    stream: bool = Field(default=False, description="Tell the text window by window while it is written.")


class Transcript(Contract):
    """What was said in one clip."""

    part: int = Field(ge=0)
    text: str
    language: str
    seconds: float
    segments: tuple[SpeechSegment, ...] = ()
    words: tuple[SpeechSegment, ...] = Field(default=(), description="One a word, where they were asked for.")


TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
"""A token's number as text: keys of maps are text on the wire."""

Bias = Annotated[float, Field(ge=-100.0, le=100.0)]
"""What is added to a token's logit."""


StopText = Annotated[str, Field(min_length=1, max_length=1024)]
"""A text that ends an answer."""


class SamplingOptions(Contract):
    """How the next token is chosen and when to stop; OpenAI's names and meanings."""

    max_tokens: int = Field(default=256, ge=1, le=1_000_000_000, description="The context ends an answer, too.")
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0, le=1_000_000_000, description="0: all.")
    min_p: float = Field(default=0.0, ge=0.0, le=1.0, description="Share of the likeliest token's probability.")
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=10.0, description="1: none.")
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    logit_bias: dict[TokenId, Bias] = Field(default_factory=dict, max_length=1024)
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="None: no log-probabilities at all.")
    n: int = Field(default=1, ge=1, le=16, description="Answers to one prompt.")
    format: AnswerFormat | None = Field(default=None, description="None: free text.")
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64, description="None: derived from the request id.")
    stop: tuple[StopText, ...] = Field(default=(), max_length=16)
    prediction: str = Field(default="", max_length=1_000_000, description="What the answer may repeat, to be faster.")


class SpeechOptions(Contract):
    """How an answer is spoken."""

    voice: str = "af_heart"
    speed: float = Field(default=1.0, ge=0.25, le=4.0)
    format: str = Field(default="wav", pattern="^(wav|mp3|opus|flac|pcm)$")
    stream: bool = Field(default=False, description="Tell of the file's parts while it is made.")


class Speech(Contract):
    """A spoken text."""

    audio: MediaRef
    seconds: float = Field(ge=0)
    sample_rate_hz: int = Field(gt=0)
    voice: str
    format: str


class Usage(Contract):
    """Tokens that a request cost, OpenAI's names."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = Field(default=0, description="Prompt tokens that an earlier prompt had computed already.")
    accepted_prediction_tokens: int = Field(default=0, description="Guessed tokens that came true.")
    rejected_prediction_tokens: int = Field(default=0, description="Guessed tokens that did not.")
    by_modality: dict[str, int] = Field(default_factory=dict, description="Prompt tokens by modality.")


class ImageLabels(Contract):
    """What an encoder saw in one image."""

    part: int = Field(ge=0)
    names: tuple[str, ...]
    probabilities: tuple[float, ...]
