"""YAML files are read by one reader, which says where one is no YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.contracts.yaml_file import read_yaml


def test_a_document_comes_as_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("defaults: {max: 4}\nnames: [a, ü]\nwhen: 1.5\n", encoding="utf-8")
    assert read_yaml(path) == {"defaults": {"max": 4}, "names": ["a", "ü"], "when": 1.5}


def test_an_empty_file_is_no_document(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.touch()
    assert read_yaml(path) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"a: [1, 2\nb: 3\n", "line 2"), (b"a: !!python/object:os.system {}\n", "tag"), (b"\xff", "utf-8")],
)
def test_what_is_no_yaml_is_refused_with_the_place(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_yaml(path)
