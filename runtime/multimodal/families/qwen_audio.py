"""Qwen2-Audio: clips of half a minute, 25 tokens a second; a longer one is several, one behind the other.

Source: Chu et al., Qwen2-Audio (2024), section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import MediaUnreadableError, ModelUnsupportedError
from runtime.multimodal.family import Detail, Film, Laid, split
from runtime.multimodal.hearing import HOP, SECONDS_PER_TOKEN, Hearing
from runtime.multimodal.prepared import Floats, Prepared, in_a_row

if TYPE_CHECKING:
    from PIL.Image import Image

_AHEAD = 2


class QwenAudio:
    """The family with one model's parameters.

    Args:
        parameters: As `runtime.graphs.encoders.qwen_audio` gives them.
    """

    closer_alone = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.encoders: Mapping[Modality, str] = {Modality(name): file for name, file in parameters["encoders"].items()}
        self.placeholders: Mapping[Modality, str] = {Modality.AUDIO: str(parameters["audio_token"])}
        self._frames = int(parameters["window_frames"])
        self._hearing = Hearing(int(parameters["mels"]), self._frames, _AHEAD)
        self._between = f"{parameters['end']}{parameters['begin']}"

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """The clip; one that is longer than the model hears at once in several, each as if it were alone.

        All of it is heard, whatever the detail: what is too much for a budget is merged behind the encoder.

        Raises:
            MediaUnreadableError: It holds no sound.
        """
        if not len(samples):
            raise MediaUnreadableError("the clip has no samples; send one with sound")
        long = self._frames * HOP
        windows = [samples[start : start + long] for start in range(0, len(samples), long)]
        heard = [self._hearing.chunks(window, self._frames) for window in windows]
        counts = [self._hearing.tokens(one["counted"]) for one in heard]
        frame = [FramePiece(slots=counts[0])]
        for count in counts[1:]:
            frame += [FramePiece(text=self._between), FramePiece(slots=count)]
        return Prepared(
            modality=Modality.AUDIO,
            inputs={
                "mel": np.concatenate([one["mel"] for one in heard], axis=1),
                **{name: np.concatenate([one[name] for one in heard]) for name in ("given", "counted")},
            },
            frame=tuple(frame),
            positions=in_a_row(sum(counts)),
            grid=(sum(counts), 1, 1),
            seconds_per_step=SECONDS_PER_TOKEN,
            start_s=0.0,
        )

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no pictures; send audio or text")

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no pictures; send audio or text")

    def video(self, film: Film, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no video; send its sound")

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no video; send its sound")

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Chunks of all clips."""
        return self._hearing.packed(inputs)

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """The tokens of each clip."""
        return split(outputs[0], pieces)

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """Pictures are not taken."""
        return None
