"""Chat templates with tags of transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers.utils.chat_template_utils import render_jinja_template

from runtime.generation.tokenizer import ChatTokenizer

TEMPLATES = {
    "in a line": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "over lines": "{% for m in messages %}\n  {% generation %}\n<{{ m.role }}>\n{{ m.content | trim }}\n"
    "  {% endgeneration %}\n{% endfor %}\n",
    "around a loop": "{% generation %}{% for m in messages %}{% if loop.last %}{% continue %}{% endif %}{{ m.content }}"
    "{% endfor %}{% endgeneration %}",
}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_what_an_assistant_said_stands_as_it_is(template: str, tmp_path: Path) -> None:
    Tokenizer(models.BPE()).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat.jinja").write_text(template)
    assert json.loads((tmp_path / "tokenizer.json").read_text())
    (right,), _ = render_jinja_template([CHAT], chat_template=template, add_generation_prompt=True)
    assert ChatTokenizer(tmp_path).chat(CHAT) == right
