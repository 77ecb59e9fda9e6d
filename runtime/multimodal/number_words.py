"""Numbers in English words, as prompts of films name how many frames follow."""

from __future__ import annotations

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(number: int) -> str:
    """A whole number from 0 to 999,999, as in "one hundred and twenty-three"."""
    if number >= 1000:
        rest = number % 1000
        link = "" if not rest else " and " if rest < 100 else ", "
        return f"{in_words(number // 1000)} thousand{link}{in_words(rest) if rest else ''}"
    if number >= 100:
        rest = number % 100
        return f"{_SMALL[number // 100]} hundred" + (f" and {in_words(rest)}" if rest else "")
    if number >= 20:
        return _TENS[number // 10] + (f"-{_SMALL[number % 10]}" if number % 10 else "")
    return _SMALL[number]
