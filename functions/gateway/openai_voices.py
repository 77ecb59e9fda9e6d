"""OpenAI's voice names, for clients that cannot send another."""

from __future__ import annotations

from typing import Any

from bus.errors import InvalidInputError

_OPENAI_VOICES = frozenset(
    {
        "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer",
        "verse",
    }
)  # fmt: skip


def voice_of(voice: str | dict[str, Any]) -> dict[str, str]:
    """The `voice` field of `SpeechOptions`: empty for a name of OpenAI's, which means the default voice.

    Raises:
        InvalidInputError: A voice object without an id.
    """
    name = voice if isinstance(voice, str) else voice.get("id")
    if not isinstance(name, str) or not name:
        raise InvalidInputError('a voice is a name or {"id": name}', param="voice")
    return {} if name in _OPENAI_VOICES else {"voice": name}
