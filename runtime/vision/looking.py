"""The image encoder for many callers: pictures that come at about the same time are looked at in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.batching.batcher import Batcher
from runtime.repository import Repository
from runtime.vision.classifier import ImageClassifier, Seen

_BATCH = 8


class Looking:
    """An image classifier whose callers share runs.

    Args:
        classifier: The model.
    """

    def __init__(self, classifier: ImageClassifier) -> None:
        self.classifier = classifier
        self._batcher: Batcher[NDArray[Any], Seen] = Batcher(self._run, _BATCH)

    @classmethod
    def load(cls, repository: Repository, name: str) -> Looking:
        """Open an installed model.

        Raises:
            ModelNotFoundError: Not installed.
            ModelCorruptError: Damaged.
        """
        return cls(ImageClassifier.load(repository, name))

    async def look(
        self, pictures: Sequence[NDArray[Any]], *, tenant: str = "", cancelled: Callable[[], bool] = lambda: False
    ) -> list[Seen]:
        """What the encoder makes of each picture: a `Seen` of probabilities `(class,)` and features `(dim,)`.

        Args:
            pictures: float32 `(3, height, width)` each.
            tenant: Whose they are.
            cancelled: Asked before they are looked at.

        Raises:
            InvalidInputError: A picture of another dtype or shape than the encoder takes.
            CancelledRequestError: It was cancelled.
        """
        # By type and shape, so that a picture that does not fit ends no other one's run.
        items = [((one.dtype.str, one.shape), one) for one in pictures]
        return await self._batcher.submit(items, tenant=tenant, cancelled=cancelled)

    def close(self) -> None:
        """End its thread."""
        self._batcher.close()

    def _run(self, pictures: Sequence[NDArray[Any]]) -> list[Seen]:
        seen = self.classifier.look(np.stack(pictures))
        return [Seen(*pair) for pair in zip(seen.probabilities, seen.features, strict=True)]
