"""Media URLs that would have the stack read what its clients cannot."""

from __future__ import annotations

import httpx
import pytest

from tests.hostile.stack import Stack, answered, refused

pytestmark = pytest.mark.models


def look(stack: Stack, url: str) -> httpx.Response:
    return stack.chat([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}])


def test_a_site_that_the_operator_allows_is_read(stack: Stack, site: str) -> None:
    assert answered(look(stack, f"{site}/picture"))["omnibus"]["labels"]


INSIDE = [
    "http://127.0.0.2/", "http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://[::ffff:127.0.0.2]/",
    "http://0/", "http://10.0.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://[fd00::1]/",
    "http://[64:ff9b::7f00:2]/", "http://0x7f.2/", "http://2130706434/", "http://①②⑦.⓪.⓪.②/",
]  # fmt: skip


@pytest.mark.parametrize("url", INSIDE)
def test_an_address_inside_is_refused(stack: Stack, url: str) -> None:
    refused(look(stack, url), 400, "media_fetch_failed", "not a public address")


@pytest.mark.parametrize("url", INSIDE[:4])
def test_an_address_inside_is_refused_behind_a_redirect(stack: Stack, site: str, url: str) -> None:
    refused(look(stack, f"{site}/to/{url}"), 400, "media_fetch_failed", "not a public address")


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[half", "//", "http://user:secret@127.0.0.1/"])
def test_a_redirect_to_no_site_is_refused(stack: Stack, site: str, location: str) -> None:
    response = look(stack, f"{site}/to/{location}")
    refused(response, 400, "media_fetch_failed")
    assert "secret" not in response.text


@pytest.mark.parametrize(
    "url",
    [
        "http://", "http://[", "http:///x", "http://127.0.0.1:22/", "http://x:99999/", "http://user:secret@example.org/",
        "http://" + "a" * 70 + ".example/", "http://" + "a." * 3_000 + "example/", "http://\u202e/", "http://a\0b/",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(stack: Stack, url: str) -> None:
    response = look(stack, url)
    refused(response, 400, "media_fetch_failed")
    assert "secret" not in response.text


@pytest.mark.parametrize("url", ["ftp://example.org/a", "file:///etc/passwd", "javascript:1", "//example.org/a"])
def test_another_scheme_is_refused_at_the_door(stack: Stack, url: str) -> None:
    refused(look(stack, url), 400, "invalid_input", "send an http, https or data URL")


@pytest.mark.parametrize(
    ("path", "words"), [("/nobody", "404"), ("/silent", "within 0.2 s"), ("/" + "a" * 100_000, "URL too long")]
)
def test_a_site_without_an_answer_is_told(stack: Stack, site: str, path: str, words: str) -> None:
    refused(look(stack, site + path), 400, "media_fetch_failed", words)
