"""The encoders of a model, run for the media of all requests together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality, ModelManifest
from bus.errors import CancelledRequestError, EngineError, ModelCorruptError, ModelUnsupportedError
from runtime.multimodal.encoder import MediaEncoder, size_class
from runtime.multimodal.family import Detail
from runtime.multimodal.prepared import Prepared, in_a_row
from runtime.repository import Catalog, Repository
from tests.functions.stages import native_model
from tests.runtime.multimodal.drawn import scene


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelManifest]:
    root = tmp_path_factory.mktemp("models")
    native_model.install(tmp_path_factory.mktemp("saved"), root)
    repository = Repository(root, catalog=Catalog(()))
    manifest = repository.resolve("eyes")
    return repository.folder(manifest), manifest


@pytest.fixture
async def encoder(installed: tuple[Path, ModelManifest]) -> AsyncIterator[MediaEncoder]:
    encoder = MediaEncoder(*installed, threads=1)
    yield encoder
    encoder.close()


@pytest.fixture
def runs(encoder: MediaEncoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces each run had."""
    seen: list[int] = []
    pack = encoder.family.pack

    def counted(modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        seen.append(len(inputs))
        return pack(modality, inputs)

    monkeypatch.setattr(encoder.family, "pack", counted)
    return seen


def picture(encoder: MediaEncoder, width: int, height: int, seed: int = 0, **detail: Any) -> Prepared:
    return encoder.family.image(scene(width, height, seed), Detail(**detail))


async def test_pieces_of_all_requests_share_runs_and_get_what_they_would_get_alone(
    encoder: MediaEncoder, runs: list[int]
) -> None:
    pieces = [picture(encoder, 200, 150, seed) for seed in range(6)]
    alone = [(await encoder.encode([piece]))[0] for piece in pieces]
    assert runs == [1] * 6
    together = await asyncio.gather(
        encoder.encode(pieces[:2], tenant="anna"), *(encoder.encode([piece], tenant="bert") for piece in pieces[2:])
    )
    assert sum(runs[6:]) == 6
    assert len(runs[6:]) < 5
    for found, right in zip([one for call in together for one in call], alone, strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5)


async def test_a_small_piece_does_not_wait_for_the_company_of_large_ones(
    encoder: MediaEncoder, runs: list[int]
) -> None:
    large, small = picture(encoder, 200, 150), picture(encoder, 200, 150, level="low")
    assert size_class(small) < size_class(large)
    found = await encoder.encode([large, small, large, small])
    assert [len(one) for one in found] == [large.tokens, small.tokens] * 2
    assert sorted(runs) == [2, 2]


async def test_what_nobody_waits_for_any_more_is_not_encoded(encoder: MediaEncoder, runs: list[int]) -> None:
    with pytest.raises(CancelledRequestError):
        await encoder.encode([picture(encoder, 60, 60)], cancelled=lambda: True)
    assert runs == []


async def test_an_encoder_that_gives_other_tokens_than_were_prepared_for_is_told(encoder: MediaEncoder) -> None:
    piece = picture(encoder, 60, 60, level="low")
    frame = (FramePiece(slots=piece.tokens - 1),)
    wrong = replace(piece, frame=frame, positions=in_a_row(piece.tokens - 1), regions=None)
    with pytest.raises(EngineError, match=r"eyes@1 gave 4 tokens where 3 were prepared for; build the model again"):
        await encoder.encode([wrong])
    assert len((await encoder.encode([piece]))[0]) == piece.tokens


async def test_a_graph_is_opened_by_the_first_piece_that_needs_it(
    installed: tuple[Path, ModelManifest], tmp_path: Path
) -> None:
    encoder = MediaEncoder(tmp_path, installed[1])
    with pytest.raises(ModelCorruptError):
        await encoder.encode([picture(encoder, 60, 60)])
    encoder.close()


def test_a_model_of_text_has_no_encoders(installed: tuple[Path, ModelManifest]) -> None:
    with pytest.raises(ModelUnsupportedError):
        MediaEncoder(installed[0], installed[1].model_copy(update={"parameters": {}}))
