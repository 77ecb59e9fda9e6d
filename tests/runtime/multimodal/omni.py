"""Qwen2.5-Omni's thinker twice: what the reference makes of a prompt, and what is served here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerFast, WhisperFeatureExtractor
from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import Qwen2_5OmniProcessor

from runtime.multimodal.family import Detail, Film, Laid
from runtime.multimodal.prepared import Prepared
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.heard import RATE
from tests.runtime.multimodal.patches import patches_of
from tests.runtime.multimodal.served import Prompt, Served

Floats = NDArray[np.float32]
LOOK, LOOKED, HEAR, HEARD = "<|vision_bos|>", "<|vision_eos|>", "<|audio_bos|>", "<|audio_eos|>"
IMAGE, VIDEO, AUDIO = "<|IMAGE|>", "<|VIDEO|>", "<|AUDIO|>"
PICTURE, FILM, CLIP = f"{LOOK}{IMAGE}{LOOKED}", f"{LOOK}{VIDEO}{LOOKED}", f"{HEAR}{AUDIO}{HEARD}"
TOKENS = {"image": IMAGE, "video": VIDEO, "audio": AUDIO}
FILM_PIXELS = {"shortest_edge": 4 * 28 * 28, "longest_edge": 12 * 28 * 28}
PLAIN = Detail()


@dataclass(frozen=True)
class Seen:
    """A film and its sound track."""

    film: Film
    track: Floats | None = None


@dataclass(frozen=True)
class Right:
    """What the reference makes of a prompt."""

    ids: list[int]
    embedded: torch.Tensor
    positions: torch.Tensor


Piece = tuple[str, Any]


def _clips(kind: str, one: Any) -> list[Floats]:
    if kind == "audio":
        return [one]
    return [one.track] if kind == "video" and one.track is not None else []


@dataclass(frozen=True)
class Pair:
    """One model twice."""

    model: PreTrainedModel
    words: PreTrainedTokenizerFast
    pictures: Any
    sounds: WhisperFeatureExtractor
    served: Served
    folder: Path

    def right(self, text: str, *pieces: Piece) -> Right:
        """The reference's merged embeddings and positions; `text` has a placeholder for each piece."""
        given, counts = self._heard([clip for kind, one in pieces for clip in _clips(kind, one)])
        given["use_audio_in_video"] = any(kind == "video" and one.track is not None for kind, one in pieces)
        images = [patches_of(self.pictures, [one]) for kind, one in pieces if kind == "image"]
        films = [one.film for kind, one in pieces if kind == "video"]
        videos = [patches_of(self.pictures, list(one.frames), FILM_PIXELS) for one in films]
        steps = [2 * one.seconds / len(one.times_s) for one in films]
        for kind, name, seen in (("image", "pixel_values", images), ("video", "pixel_values_videos", videos)):
            if seen:
                given[name] = torch.cat([patches for patches, _ in seen])
                given[f"{kind}_grid_thw"] = torch.stack([grid for _, grid in seen])
        if films:
            given["video_second_per_grid"] = torch.tensor(steps)
        grids = [grid for _, grid in images], list(zip([grid for _, grid in videos], steps, strict=True))
        shown = self._written(text, pieces, iter(grids[0]), iter(grids[1]), iter(counts))
        ids = self.words(shown, add_special_tokens=False, return_tensors="pt")["input_ids"]
        return self._merged({**given, "input_ids": ids, "attention_mask": torch.ones_like(ids)})

    def _heard(self, clips: list[Floats]) -> tuple[dict[str, Any], list[int]]:
        """Mel frames of clips, and how many tokens each takes."""
        if not clips:
            return {}, []
        heard = self.sounds(clips, sampling_rate=RATE, return_attention_mask=True, return_tensors="pt")
        mask = heard["attention_mask"]
        counts = [((int(frames) - 1) // 2 + 1 - 2) // 2 + 1 for frames in mask.sum(-1)]
        return {"input_features": heard["input_features"], "feature_attention_mask": mask}, counts

    def _merged(self, given: dict[str, Any]) -> Right:
        inner: Any = self.model.model
        mask = given.get("feature_attention_mask")
        positions, _ = inner.get_rope_index(
            given["input_ids"],
            given.get("image_grid_thw"),
            given.get("video_grid_thw"),
            given["attention_mask"],
            given["use_audio_in_video"],
            None if mask is None else mask.sum(-1),
            given.get("video_second_per_grid"),
        )
        embedded = merged.embedded(self.model, inner.language_model, **given)
        return Right(given["input_ids"][0].tolist(), embedded, positions[:, 0])

    def _written(
        self,
        text: str,
        pieces: Sequence[Piece],
        images: Iterator[torch.Tensor],
        videos: Iterator[tuple[torch.Tensor, float]],
        counts: Iterator[int],
    ) -> str:
        """The text with as many tokens for each piece as it takes."""
        for kind, one in pieces:
            if kind == "image":
                shown = "<image>" * (int(next(images).prod()) // 4)
            elif kind == "audio":
                shown = "<audio>" * next(counts)
            else:
                shown = self._film(*next(videos), None if one.track is None else next(counts))
            text = text.replace(TOKENS[kind], shown, 1)
        for kind, token in TOKENS.items():
            text = text.replace(f"<{kind}>", token)
        return text

    def _film(self, grid: torch.Tensor, step: float, track: int | None) -> str:
        """What the reference's processor writes for a film, whatever processor of films it holds."""
        if track is None:
            return "<video>" * (int(grid.prod()) // 4)
        itself: Any = SimpleNamespace(
            video_processor=SimpleNamespace(merge_size=2),
            audio_bos_token=HEAR,
            audio_eos_token=HEARD,
            video_token="<video>",
            audio_token="<audio>",
        )
        itself.get_chunked_index = lambda *given: Qwen2_5OmniProcessor.get_chunked_index(itself, *given)
        video = {"video_grid_thw": [grid.numpy()], "video_second_per_grid": [step]}
        given: dict[str, Any] = {"position_id_per_seconds": 25, "seconds_per_chunk": 2.0}
        written: str = Qwen2_5OmniProcessor.replace_video_with_audio_token(
            itself, video, 0, {"num_audio_tokens": [track]}, 0, **given
        )
        return written

    def prompt(self, text: str, *pieces: Piece) -> Prompt:
        """Ours of the same."""
        family = self.served.family
        parts: list[Any] = []
        for kind, one in pieces:
            piece = self.laid(kind, one)
            before, _, text = text.partition(family.placeholders[piece[0].modality])
            parts += [before, piece]
        return self.served.prompt(*parts, text)

    def laid(self, kind: str, one: Any) -> tuple[Prepared, Floats]:
        family = self.served.family
        if kind != "video":
            prepared = family.image(one, PLAIN) if kind == "image" else family.audio(one, PLAIN)
            return prepared, self.served.encode(prepared)[0]
        prepared = family.video(one.film, PLAIN)
        embeddings = self.served.encode(prepared)[0]
        if one.track is None:
            return prepared, embeddings
        track = family.audio(one.track, PLAIN)
        heard = Laid(self.served.encode(track)[0], track.positions, track.frame, track.seconds_per_step)
        joined = family.join(Laid(embeddings, prepared.positions, prepared.frame, prepared.seconds_per_step), heard)
        assert joined is not None
        whole = Prepared(
            modality=prepared.modality, inputs={}, frame=joined.frame, positions=joined.positions, grid=prepared.grid
        )
        return whole, joined.embeddings
