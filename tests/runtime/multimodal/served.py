"""A multimodal model as it is served: built out of a folder, with its family, its encoders and its decoder open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import Modality, ModelManifest
from runtime.engines.onnx import OnnxSession
from runtime.export.hugging_face import BuildOptions, build_model
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.request import MEDIA_TOKEN, PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.generation.tokenizer import ChatTokenizer, PromptText
from runtime.multimodal.family import MultimodalFamily
from runtime.multimodal.known import family_of
from runtime.multimodal.prepared import Prepared
from runtime.repository import Catalog, Repository

Floats = NDArray[np.float32]
CONTEXT = 1024


@dataclass(frozen=True)
class Prompt:
    """A prompt of text and media.

    Attributes:
        tokens: As the engine takes it, with positions of three axes.
        embedded: float32 `(token, hidden)`.
    """

    tokens: PromptTokens
    embedded: Floats

    @property
    def slots(self) -> NDArray[np.intp]:
        """Places of embeddings."""
        return np.flatnonzero(self.tokens.ids == MEDIA_TOKEN)


class Served:
    """A model that was built and opened.

    Args:
        folder: The Hugging Face folder.
        root: Where to build.
        context: The most tokens of a row.

    Attributes:
        manifest: Its manifest.
        family: Its family.
    """

    def __init__(self, folder: Path, root: Path, context: int = CONTEXT) -> None:
        repository = Repository(root, catalog=Catalog(()))
        options = BuildOptions(id="small", quantisation="float32", context_tokens=context)
        self.manifest: ModelManifest = build_model(str(folder), repository, options)
        self.family: MultimodalFamily = family_of(self.manifest)
        self._folder = repository.folder(self.manifest)
        files = sorted(set(self.family.encoders.values()))
        self._sessions = {file: OnnxSession(self._folder / file, threads=1) for file in files}
        self._tokenizer = ChatTokenizer(self._folder)
        self.decoder = Decoder(self._folder, self.manifest, slots=2, threads=1)

    def outputs(self, modality: Modality, pieces: Sequence[Prepared]) -> list[NDArray[Any]]:
        """What the encoder's graph gives for pieces that run together."""
        inputs = self.family.pack(modality, [piece.inputs for piece in pieces])
        return self._sessions[self.family.encoders[modality]].run(inputs)

    def encode(self, *pieces: Prepared) -> list[Floats]:
        """Embeddings of pieces of one modality that run together, float32 `(token, hidden)` each."""
        modality = pieces[0].modality
        return self.family.unpack(modality, self.outputs(modality, pieces), pieces)

    def prompt(self, *parts: str | tuple[Prepared, Floats]) -> Prompt:
        """Lay out markup and media; positions count on by the rule of `FramePiece`."""
        ids: list[NDArray[np.int32]] = []
        places: list[NDArray[np.int32]] = []
        rows = [np.zeros((0, self.decoder.hidden), np.float32)]
        run: list[PromptText] = []
        following, apart = 0, False

        def write(back: int = 0) -> None:
            nonlocal following
            words, _ = self._tokenizer.encode_parts(run) if run else (np.zeros(0, np.int32), None)
            ids.append(words)
            places.append(np.tile(np.arange(len(words), dtype=np.int32) + following - back, (3, 1)))
            following = max(following, following - back + len(words))
            run.clear()

        for part in parts:
            if isinstance(part, str):
                # A space behind markup that stands apart, unless one or more markup follows.
                run.append(PromptText(f" {part}" if apart and re.match(r"[^\s<]", part) else part, markup=True))
                apart = apart and not part
                continue
            piece, embeddings = part
            rows.append(embeddings)
            used, reached, start = 0, 0, None
            for frame in piece.frame:
                if frame.text and not frame.back:
                    if not (frame.once and "".join(text.text for text in run).endswith(frame.text)):
                        run.append(PromptText(frame.text, markup=True))
                    apart = frame.apart
                    continue
                write()
                if frame.text:
                    run.append(PromptText(frame.text, markup=True))
                    write(frame.back)
                    continue
                taken = piece.positions[:, used : used + frame.slots]
                # Positions begin at 0 with the block's first embedding; words between its runs push the rest on.
                start = following if start is None else start + following - reached
                places.append(taken + np.int32(start))
                ids.append(np.full(frame.slots, MEDIA_TOKEN, np.int32))
                used += frame.slots
                following = reached = start + int(taken.max()) + 1
        write()
        tokens = np.concatenate(ids)
        media = np.concatenate(rows)
        where = np.ascontiguousarray(np.concatenate(places, axis=1).astype(np.int32))
        positions = where if self.decoder.takes_positions else None
        return Prompt(PromptTokens(tokens, media, positions=positions), self.decoder.embed(tokens, media))

    def logits(self, prompt: Prompt, *cuts: int) -> Floats:
        """Logits of the last token; the prompt goes in whole, or in pieces that end at some places."""
        count = len(prompt.tokens.ids)
        start, found = 0, None
        for stop in (*cuts, count):
            places = None if prompt.tokens.positions is None else prompt.tokens.positions[:, start:stop]
            found = self.decoder.prefill(0, prompt.embedded[start:stop], start, places).copy()
            start = stop
        assert found is not None
        return found

    async def greedy(self, count: int, *prompts: Prompt) -> list[list[int]]:
        """The likeliest continuations of prompts that are answered together."""
        engine = TextEngine(self.decoder, lambda token: b"")
        engine.open()
        try:
            sampling = SamplingConfig(max_tokens=count, temperature=0)
            started = [engine.submit(prompt.tokens, sampling) for prompt in prompts]
            return [list(answer) for answer in await asyncio.gather(*map(_tokens, started))]
        finally:
            engine.close()


async def _tokens(generation: Any) -> list[int]:
    return [token async for piece in generation for token in piece.token_ids]
