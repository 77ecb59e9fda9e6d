"""Where an answer came from: for each piece of media, what of it stands in the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import Field

from bus.contracts import Contract, Modality
from functions.stages.layout import Laid
from functions.stages.pages import Page, TextLine
from functions.stages.parts import Block, SpeechSegment, Transcript


class Source(Contract):
    """One piece of media in the prompt."""

    part: int = Field(ge=0, description="Its index in the request's list of media.")
    modality: Modality
    media: str = Field(description="Digest of the media.")
    tokens: int = Field(ge=0, description="Of the prompt, with the words around it.")
    spans: tuple[tuple[int, int], ...] = Field(
        default=(), description="Where its embeddings stand in the prompt: first token, and the one behind the last."
    )
    encoders: tuple[str, ...] = Field(default=(), description="`id@version` of what encoded it.")
    composition: str | None = Field(default=None, description="Name of the composition that stands in for an encoder.")
    compression: float = Field(default=1.0, description="Embeddings before compression / embeddings after.")
    grid: tuple[int, int, int] | None = Field(default=None, description="Time steps, rows and columns of tokens.")
    start_s: float | None = Field(default=None, description="Of what was looked at or heard, in the media's own time.")
    end_s: float | None = None
    segments: tuple[SpeechSegment, ...] = Field(default=(), description="What was said, and when.")
    lines: tuple[TextLine, ...] = Field(default=(), description="What is written on it, and where.")

    @property
    def uncompressed(self) -> int:
        """How many embeddings it would have without compression."""
        return round(self.compression * sum(stop - start for start, stop in self.spans))


def sources_of(
    blocks: Iterable[Block], laid: Laid, pages: Sequence[Page], transcripts: Sequence[Transcript]
) -> tuple[Source, ...]:
    """The sources of a prompt, by part.

    Args:
        blocks: Of all media.
        laid: The prompt.
        pages: What is written on pictures.
        transcripts: What was said in clips and films.
    """
    by_part: dict[int, list[Block]] = {}
    for block in blocks:
        by_part.setdefault(block.part, []).append(block)
    said = {one.part: one.segments for one in transcripts}
    lines = {page.part: page.lines for page in pages}
    return tuple(
        _source(part, found, laid).model_copy(update={"segments": said.get(part, ()), "lines": lines.get(part, ())})
        for part, found in sorted(by_part.items())
    )


def _source(part: int, blocks: Sequence[Block], laid: Laid) -> Source:
    # A film is known by its picture, whose block comes before that of its sound.
    first = blocks[0].block
    starts = [one.block.start_s for one in blocks if one.block.start_s is not None]
    ends = [end for one in blocks if (end := _end_s(one)) is not None]
    return Source(
        part=part,
        modality=first.modality,
        media=first.source,
        tokens=laid.parts.get(part, 0),
        spans=tuple(laid.spans.get(part, ())),
        encoders=tuple(dict.fromkeys(one.block.encoder for one in blocks)),
        composition=first.composition,
        compression=_compression(blocks),
        grid=None if first.embeddings is None else first.grid,
        start_s=min(starts, default=None),
        end_s=max(ends, default=None),
    )


def _compression(blocks: Sequence[Block]) -> float:
    after = [0 if one.block.embeddings is None else one.block.embeddings.shape[0] for one in blocks]
    before = sum(count * one.block.compression for count, one in zip(after, blocks, strict=True))
    return before / sum(after) if sum(after) else 1.0


def _end_s(block: Block) -> float | None:
    steps = block.block.seconds_per_step
    if block.block.start_s is None:
        return None
    return block.block.start_s + (0.0 if steps is None else steps * block.block.grid[0])
