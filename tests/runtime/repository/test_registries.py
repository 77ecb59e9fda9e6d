"""Where packages come from: what pip and npm are set to."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.errors import InvalidInputError
from runtime.repository.registries import npm_registry, pip_settings
from runtime.repository.source import Source


def test_a_pip_file_is_read_and_a_variable_wins_over_it(tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://one.test/simple/\nextra-index-url =\n  https://two.test/a\n  file:///b\n"
    )
    environment = {"HOME": str(tmp_path / "nobody"), "XDG_CONFIG_HOME": str(tmp_path), "XDG_CONFIG_DIRS": ""}
    settings = pip_settings(environment)
    assert settings.indexes == ("https://one.test/simple", "https://two.test/a", "file:///b")
    assert pip_settings(environment | {"PIP_INDEX_URL": "https://three.test/x"}).indexes[0] == "https://three.test/x"


def test_no_index_leaves_the_links(tmp_path: Path) -> None:
    settings = pip_settings({"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/a /b"})
    assert settings.indexes == ()
    assert settings.find_links == ("/a", "/b")


def test_the_npm_registry_comes_from_the_npmrc(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text("fund=false\nregistry=https://npm.test/\n")
    assert npm_registry({"HOME": str(tmp_path)}) == "https://npm.test"
    assert npm_registry({"npm_config_registry": "https://other.test"}) == "https://other.test"


@pytest.mark.parametrize(
    "text",
    ["pypi://name==1.0", "npm://@scope/name@1.2.3", "hf://org/repo@main", "s3://bucket/a/key", "file:///a/b"],
)
def test_a_source_reads_back_as_it_is_written(text: str) -> None:
    assert str(Source.parse(text)) == text


@pytest.mark.parametrize("text", ["pypi://name", "hf://repo", "ftp://a/b", "name", "file://relative"])
def test_a_source_that_is_not_pinned_or_not_known_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="model source"):
        Source.parse(text)
