"""What an embeddings request asks about."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from bus.contracts import Modality
from bus.errors import InvalidInputError
from bus.store.directory import DirectoryObjectStore
from functions.gateway.embedding_inputs import asked, media_of

PIXEL = "data:image/png;base64," + base64.b64encode(b"pixels").decode()


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    ("value", "texts", "pictures"),
    [
        ("a", {0: "a"}, {}),
        (["a", "b"], {0: "a", 1: "b"}, {}),
        ([{"type": "text", "text": "a"}], {0: "a"}, {}),
        ([picture("u")], {}, {0: "u"}),
        ([{"type": "image_url", "image_url": "u"}], {}, {0: "u"}),
        (["a", picture("u"), "b", picture("v")], {0: "a", 2: "b"}, {1: "u", 3: "v"}),
    ],
)
def test_texts_and_pictures_keep_their_places(value: Any, texts: dict[int, str], pictures: dict[int, str]) -> None:
    found = asked(value)
    assert (found.texts, found.pictures, found.count) == (texts, pictures, len(texts) + len(pictures))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "1 to 2048 texts or pictures, not 0"),
        (["x"] * 2049, "not 2049"),
        (["a", 5], r"input\.1 is a int"),
        (["a", " "], r"input\.1 is empty"),
        ([[1, 2]], r"input\.0 is a list"),
        ([None], r"input\.0 is a NoneType"),
        ([{"type": "input_audio", "input_audio": {}}], r"input\.0 is a part of type text or image_url"),
        ([{"type": "image_url"}], r"input\.0 is a part"),
        ([{"type": "image_url", "image_url": {"url": 5}}], r"input\.0 is a part"),
        ([{"type": "text", "text": ""}], r"input\.0 is empty"),
        ([{"type": ["text"]}], r"input\.0 is a part"),
        ([{}], r"input\.0 is a part"),
    ],
)
def test_anything_else_is_refused_by_its_place(value: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        asked(value)


async def test_pictures_become_sources_in_the_order_of_their_places(tmp_path: Path) -> None:
    async with DirectoryObjectStore(tmp_path) as store:
        inline, remote = await media_of(store, {0: PIXEL, 4: "https://example.org/cat.png"})
        assert inline.ref is not None
        assert inline.ref.nbytes == 6
        assert (remote.url, remote.modality) == ("https://example.org/cat.png", Modality.IMAGE)
        with pytest.raises(InvalidInputError, match=r"input\.2\.image_url"):
            await media_of(store, {2: "ftp://example.org/cat.png"})
