"""Qwen2.5-Omni's thinker: pictures, films and sound, a film and its sound on one time axis.

Source: Xu et al., Qwen2.5-Omni (2025), section 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import MediaUnreadableError
from runtime.multimodal.families.qwen_vl import QwenVl
from runtime.multimodal.family import Detail, Film, Laid, split
from runtime.multimodal.hearing import SECONDS_PER_TOKEN, Hearing
from runtime.multimodal.prepared import Floats, Prepared, in_a_row

if TYPE_CHECKING:
    from PIL.Image import Image


class QwenOmni:
    """The family with one model's parameters.

    Args:
        parameters: As `runtime.graphs.encoders.qwen_omni` gives them.
    """

    closer_alone = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.encoders: Mapping[Modality, str] = {Modality(name): file for name, file in parameters["encoders"].items()}
        self._seen = QwenVl(parameters)
        self._marks = [str(parameters[name]) for name in ("vision_begin", "begin", "end", "vision_end")]
        self.placeholders: Mapping[Modality, str] = {
            Modality.IMAGE: str(parameters["image_token"]),
            # With the marks around it: where a film has its sound, both have theirs at the same positions.
            Modality.VIDEO: f"{self._marks[0]}{parameters['video_token']}{self._marks[3]}",
            Modality.AUDIO: str(parameters["audio_token"]),
        }
        self._heard = Hearing(int(parameters["mels"]), int(parameters["window_frames"]), across=True)
        self._padded_frames = int(parameters["padded_frames"])
        self._ticks_per_block = int(parameters["ticks_per_block"])

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """See `QwenVl.resolution`."""
        return self._seen.resolution(width, height, detail)

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """See `QwenVl.image`."""
        return self._seen.image(picture, detail)

    def video(self, film: Film, detail: Detail) -> Prepared:
        """See `QwenVl.video`; with the marks of a picture around it."""
        prepared = self._seen.video(film, detail)
        begin, end = FramePiece(text=self._marks[0]), FramePiece(text=self._marks[3])
        return replace(prepared, frame=(begin, *prepared.frame, end))

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """See `QwenVl.frames`."""
        return self._seen.frames(seconds, frames_per_second, detail, cuts)

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """The clip, of any length; see `QwenAudio.audio` for budgets.

        Raises:
            MediaUnreadableError: It holds no sound.
        """
        if not len(samples):
            raise MediaUnreadableError("the clip has no samples; send one with sound")
        heard = self._heard.chunks(samples, self._padded_frames)
        tokens = self._heard.tokens(heard["counted"])
        return Prepared(
            modality=Modality.AUDIO,
            inputs=heard,
            frame=(FramePiece(slots=tokens),),
            positions=in_a_row(tokens),
            grid=(tokens, 1, 1),
            seconds_per_step=SECONDS_PER_TOKEN,
            start_s=0.0,
        )

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Chunks of all clips, or patches of all pictures."""
        return self._heard.packed(inputs) if modality is Modality.AUDIO else self._seen.pack(modality, inputs)

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """The tokens of each piece."""
        return split(outputs[0], pieces) if modality is Modality.AUDIO else self._seen.unpack(modality, outputs, pieces)

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """What is to be seen in two seconds before what is to be heard in them, and so on.

        Tokens keep their times: both begin at the same moment, and one of sound lasts as long as one tick of time.
        """
        times = np.concatenate([picture.positions[0], sound.positions[0]])
        is_sound = np.repeat([0, 1], [picture.positions.shape[1], sound.positions.shape[1]])
        order = np.argsort(times // self._ticks_per_block * 2 + is_sound, kind="stable")
        vision_begin, begin, end, vision_end = self._marks
        regions = None
        if picture.regions is not None:
            regions = np.concatenate([picture.regions, np.zeros((len(sound.embeddings), 4), np.float32)])[order]
        return Laid(
            embeddings=np.concatenate([picture.embeddings, sound.embeddings])[order],
            positions=np.concatenate([picture.positions, sound.positions], axis=1)[:, order],
            frame=(
                FramePiece(text=vision_begin),
                FramePiece(text=begin, back=1),
                FramePiece(slots=len(order)),
                FramePiece(text=end),
                FramePiece(text=vision_end, back=1),
            ),
            seconds_per_step=picture.seconds_per_step,
            regions=regions,
        )
