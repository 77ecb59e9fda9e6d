"""Text as it is said: signs, units, addresses and numbers that a dictionary of words does not hold."""

from __future__ import annotations

import re
import unicodedata

_WORDS = {
    "&": " and ", "@": " at ", "+": " plus ", "=": " equals ", "#": " number ", "~": " about ", "≈": " about ",
    "×": " times ", "÷": " divided by ", "≤": " at most ", "≥": " at least ", "<": " less than ",
    ">": " greater than ", "→": " to ", "±": " plus or minus ", "√": " the root of ", "π": " pi ", "∞": " infinity ",
}  # fmt: skip

_UNITS = {
    "km": "kilometers", "cm": "centimeters", "mm": "millimeters", "kg": "kilograms", "mg": "milligrams",
    "ml": "milliliters", "ms": "milliseconds", "kb": "kilobytes", "mb": "megabytes", "gb": "gigabytes",
    "tb": "terabytes", "mph": "miles per hour", "ghz": "gigahertz", "mhz": "megahertz", "khz": "kilohertz",
    "hz": "hertz", "fps": "frames per second",
}  # fmt: skip

_MOST_DIGITS = 18
"""Longer numbers are no quantities that anybody has words for."""

_TENS = ("tens", "twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties", "nineties")
_LETTERS = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l", "ı": "i", "þ": "th", "ð": "th"}
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "", "“": '"', "”": '"', "–": ", ", "—": ", ", "…": "... "})
_FRACTIONS = {"1/2": "one half", "1/3": "one third", "2/3": "two thirds", "1/4": "one quarter", "3/4": "three quarters"}


def spoken(text: str) -> str:
    """English text with everything written out that is not said as it is written.

    Letters of other alphabets stay; who says the text leaves them out.
    """
    text = unicodedata.normalize("NFKC", text.translate(_QUOTES)).replace("⁄", "/")
    text = re.sub(r"[*_|^\[\]{}\\]+|`{3}", " ", text)  # marks of Markdown and of code are not said
    text = re.sub(r"\bhttps?://(?:www\.)?([^\s/?#]+)\S*", lambda found: _dotted(found[1]), text)
    text = re.sub(r"\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)", lambda found: f"{found[1]} at {_dotted(found[2])}", text)
    text = re.sub(r"\d[\d,]*\d", lambda found: _numbers(found[0]), text)
    text = re.sub(r"(?<![\d/])(\d/\d)(?![\d/])", lambda found: _FRACTIONS.get(found[1], found[1]), text)
    text = re.sub(r"(?<![\d/])(\d+)/(\d+)(?![\d/])", r"\1 over \2", text)
    text = re.sub(r"°\s?([CF])\b", lambda found: " degrees " + {"C": "Celsius", "F": "Fahrenheit"}[found[1]], text)
    text = text.replace("°", " degrees ")
    text = re.sub(r"(?<![\w.])[-−](?=\d)", " minus ", text)
    text = re.sub(r"\b(\d0|\d\d\d0)s\b", lambda found: _decade(found[1]), text)
    text = re.sub(
        r"(\d)\s?(" + "|".join(_UNITS) + r")\b",
        lambda found: f"{found[1]} {_UNITS[found[2].lower()]}",
        text,
        flags=re.I,
    )
    for sign, words in _WORDS.items():
        text = text.replace(sign, words)
    text = re.sub(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])(?!(?:st|nd|rd|th|am|pm|s)\b)", " ", text)
    return re.sub(r"\s+", " ", _plain_letters(text)).strip()


def _numbers(text: str) -> str:
    """Digits and commas: one number where the commas mark thousands; too long a one as its digits."""
    if "," in text and not re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        return ", ".join(_numbers(part) for part in text.split(",") if part)
    digits = text.replace(",", "")
    return text if len(digits) <= _MOST_DIGITS else " ".join(digits)


def _dotted(address: str) -> str:
    return address.replace(".", " dot ").replace(":", " port ")


def _decade(year: str) -> str:
    """`1990s` as `19 nineties`, `90s` as `nineties`: the numbers that are left are read as numbers."""
    century, tens = year[:-2], int(year[-2:])
    if tens:
        return f"{century} {_TENS[tens // 10 - 1]}".strip()
    return f"{int(century) // 10} thousands" if century.endswith("0") else f"{century} hundreds"


def _plain_letters(text: str) -> str:
    """Latin letters without their accents: the dictionary knows `cafe`, not `café`."""
    out = []
    for letter in text:
        low = _LETTERS.get(letter.lower())
        if low is not None:
            out.append(low)
        elif "LATIN" in unicodedata.name(letter, ""):
            out.append("".join(one for one in unicodedata.normalize("NFD", letter) if not unicodedata.combining(one)))
        else:
            out.append(letter)
    return "".join(out)
