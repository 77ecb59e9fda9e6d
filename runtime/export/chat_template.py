"""The chat template of a Hugging Face folder, with the special tokens that it may name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bus.errors import ModelCorruptError, ModelUnsupportedError

_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def chat_template(folder: Path) -> str:
    """A Jinja template that needs nothing but `messages` and `add_generation_prompt`.

    Raises:
        ModelUnsupportedError: There is none: it is not a chat model.
        ModelCorruptError: `tokenizer_config.json` or the template cannot be read.
    """
    config = _read(folder / "tokenizer_config.json")
    template = _file(folder) or _default(config.get("chat_template"))
    if template is None:
        raise ModelUnsupportedError(
            "the folder has no chat template, so the model is none that chats; to serve it all the same, put a "
            "chat_template.jinja into the folder"
        )
    return with_tokens(template, {name: _text(config[name]) for name in _TOKENS if config.get(name)})


def with_tokens(template: str, tokens: Mapping[str, str]) -> str:
    """A template that knows the special tokens which it names.

    Args:
        template: A Jinja template.
        tokens: Texts of tokens by the names that templates use, such as `bos_token`.
    """
    # `+` keeps a line break that the template may begin with.
    named = (
        f"{{% set {name} = {json.dumps(text, ensure_ascii=False)} +%}}"
        for name, text in tokens.items()
        if name in template
    )
    return "".join(named) + template


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelCorruptError(f"{path.name} cannot be read: {error}", file=path.name) from error
    if not isinstance(values, dict):
        raise ModelCorruptError(f"{path.name} holds no JSON object", file=path.name)
    return values


def _file(folder: Path) -> str | None:
    """A template in a file of its own, which newer folders have."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ModelCorruptError(f"{path.name} is no text in UTF-8: {error}", file=path.name) from error
    return _default(_read(folder / "chat_template.json").get("chat_template"))


def _default(template: Any) -> str | None:
    """One template, or the one called `default` of several."""
    if isinstance(template, list):
        return next((one["template"] for one in template if one.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
