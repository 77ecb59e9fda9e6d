"""A model source as it is written: `scheme://name` with what pins its version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bus.errors import InvalidInputError

_FORMS = {
    "pypi": (
        re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)"),
        "pypi://name==1.0",
    ),
    "npm": (
        re.compile(r"(?P<name>(?:@[a-z0-9._-]+/)?[a-z0-9._-]+)@(?P<version>[A-Za-z0-9.+-]+)"),
        "npm://name@1.0",
    ),
    "hf": (re.compile(r"(?P<name>[\w.-]+/[\w.-]+)@(?P<version>[\w./-]+)"), "hf://org/repo@revision"),
    "s3": (re.compile(r"(?P<name>[\w.-]+)/(?P<version>.+)"), "s3://bucket/key"),
    "file": (re.compile(r"(?P<name>/.+)(?P<version>)"), "file:///path"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where raw weights come from.

    Attributes:
        scheme: `pypi`, `npm`, `hf`, `s3` or `file`.
        name: Package, repository, bucket or path.
        version: Version, revision or key; empty for `file`.
    """

    scheme: str
    name: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Source:
        """Read a source.

        Raises:
            InvalidInputError: A scheme that is not known or a name that is not pinned.
        """
        scheme, separator, rest = text.partition("://")
        if not separator or scheme not in _FORMS:
            raise InvalidInputError(f"model source {text!r} has no known scheme; known: {', '.join(_FORMS)}")
        pattern, example = _FORMS[scheme]
        found = pattern.fullmatch(rest)
        if found is None:
            raise InvalidInputError(f"model source {text!r} is not of the form {example}", source=text)
        return cls(scheme, found["name"], found["version"])

    def __str__(self) -> str:
        joint = {"pypi": "==", "npm": "@", "hf": "@", "s3": "/", "file": ""}[self.scheme]
        return f"{self.scheme}://{self.name}{joint}{self.version}"
