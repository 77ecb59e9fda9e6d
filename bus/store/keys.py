"""Which keys an object may have: the same rule for every store."""

from __future__ import annotations

from urllib.parse import quote

from bus.errors import InvalidInputError

MAX_KEY_LENGTH = 900
MAX_PART_LENGTH = 240


def check_key(key: str) -> str:
    """The key itself, when every store can hold it.

    A key is `/`-separated parts of printable characters. Parts that a file system or a URL would
    resolve (`.`, `..`, empty) are refused, so that a key can never leave the store.

    Raises:
        InvalidInputError: Names the key and the rule it breaks.
    """
    if not key or len(key) > MAX_KEY_LENGTH:
        raise InvalidInputError(f"an object key has 1 to {MAX_KEY_LENGTH} characters, not {len(key)}")
    for part in key.split("/"):
        if part in ("", ".", ".."):
            raise InvalidInputError(f"object key {key!r} has the part {part!r}; name every part", key=key)
        if not part.isprintable() or "\\" in part:
            raise InvalidInputError(f"object key {key!r} has a control character or a backslash", key=key)
        if len(quote(part, safe="")) > MAX_PART_LENGTH:
            raise InvalidInputError(
                f"object key {key!r} has a part longer than {MAX_PART_LENGTH} characters once quoted", key=key
            )
    return key
