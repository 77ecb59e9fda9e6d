"""Chat templates in all the places that folders keep them in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bus.errors import InvalidInputError, ModelCorruptError, ModelUnsupportedError
from runtime.export.chat_template import chat_template
from runtime.generation.tokenizer import ChatTokenizer
from tests.runtime.export.folders import chat_folder

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with a tokenizer, which a template can be put beside."""
    saved = chat_folder(tmp_path / "saved")
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "tokenizer.json").write_bytes((saved.folder / "tokenizer.json").read_bytes())
    return tmp_path / "served"


def render(folder: Path, served: Path) -> str:
    (served / "chat.jinja").write_text(chat_template(folder), encoding="utf-8")
    return ChatTokenizer(served).chat(HELLO)


def config(folder: Path, **values: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


def test_a_template_may_stand_in_the_tokenizers_configuration(tmp_path: Path, served: Path) -> None:
    folder = config(tmp_path, chat_template="\n{{ bos_token }}{{ messages[0].content }}", bos_token="<\"s\\'>")
    assert render(folder, served) == "\n<\"s\\'>Hello"


def test_a_token_may_be_described_at_length(tmp_path: Path, served: Path) -> None:
    template = "{% macro end() %}{{ eos_token }}{% endmacro %}{{ messages[0].content }}{{ end() }}"
    folder = config(tmp_path, chat_template=template, eos_token={"content": "</s>", "lstrip": False})
    assert render(folder, served) == "Hello</s>"


def test_of_several_templates_the_default_one_is_taken(tmp_path: Path, served: Path) -> None:
    both = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ messages[0].content }}!"}]
    assert render(config(tmp_path, chat_template=both), served) == "Hello!"


def test_a_file_of_its_own_comes_first(tmp_path: Path, served: Path) -> None:
    config(tmp_path, chat_template="old")
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "newer"}))
    assert render(tmp_path, served) == "newer"
    (tmp_path / "chat_template.jinja").write_text("newest")
    assert render(tmp_path, served) == "newest"


def test_what_templates_of_the_hub_use_is_there(tmp_path: Path, served: Path) -> None:
    template = (
        "{% if tools is not none %}tools{% endif %}{% for message in messages %}{% if loop.index > 1 %}{% break %}"
        "{% endif %}{{ message | tojson }}{% endfor %}{{ strftime_now('%Y') | length }}"
    )
    assert render(config(tmp_path, chat_template=template), served) == '{"role": "user", "content": "Hello"}4'


def test_a_template_can_refuse_messages(tmp_path: Path, served: Path) -> None:
    folder = config(tmp_path, chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidInputError, match="roles must alternate"):
        render(folder, served)


def test_a_folder_without_a_template_is_no_chat_model(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupportedError, match=r"chat_template\.jinja"):
        chat_template(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_configuration_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(ModelCorruptError, match=r"tokenizer_config\.json"):
        chat_template(tmp_path)
