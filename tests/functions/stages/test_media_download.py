"""Reading URLs from servers that lie, redirect, stall and hide."""

from __future__ import annotations

import base64
import gzip
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.errors import MediaFetchError, MediaTooLargeError
from functions.stages.media.download import Downloader
from functions.stages.media.policy import FetchPolicy
from tests.made.web import Site, answer, website

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with website() as site:
        yield site


def downloader(site: Site, **settings: Any) -> Downloader:
    given: dict[str, Any] = {"networks": LOOPBACK, "ports": (site.port,), "timeout_s": 10.0}
    return Downloader(FetchPolicy(**(given | settings)))


async def test_content_is_read(site: Site) -> None:
    site.answers["/a.png?size=big"] = answer(b"content")
    assert await downloader(site).read(site.url("/a.png?size=big"), 100) == b"content"


async def test_the_server_sees_the_name_and_not_the_pinned_address(site: Site) -> None:
    site.answers["/"] = answer(b"x")
    await downloader(site).read(site.url("/", host="localhost"), 100)
    assert f"host: localhost:{site.port}\r\n" in site.requests[0].lower()


async def test_the_loopback_is_refused_unless_allowed(site: Site) -> None:
    site.answers["/"] = answer(b"secret")
    for host in ("127.0.0.1", "localhost", "2130706433", "127.1", "0x7f.0.0.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(MediaFetchError):
            await downloader(site, networks=()).read(site.url("/", host=host), 100)
    assert site.requests == []


async def test_the_name_is_resolved_once_so_that_rebinding_gains_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.answers["/"] = answer(b"x")
    asked = 0
    original = socket.getaddrinfo

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        if args[0] == "localhost":
            asked += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", counting)
    await downloader(site).read(site.url("/", host="localhost"), 100)
    assert asked == 1


async def test_a_name_with_one_inner_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("1.1.1.1", "192.168.0.9")]

    monkeypatch.setattr(socket, "getaddrinfo", mixed)
    with pytest.raises(MediaFetchError, match=r"192\.168\.0\.9"):
        await Downloader(FetchPolicy()).read("http://mixed.example/", 100)


async def test_redirects_are_followed(site: Site) -> None:
    site.answers["/old"] = answer(b"", status="302 Found", location="/new")
    site.answers["/new"] = answer(b"moved")
    assert await downloader(site).read(site.url("/old"), 100) == b"moved"


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "http://10.0.0.1/",
        "data:,inside",
        "http://[half",
    ],
)
async def test_redirects_are_checked_like_the_first_address(site: Site, location: str) -> None:
    site.answers["/"] = answer(b"", status="302 Found", location=location)
    with pytest.raises(MediaFetchError):
        await downloader(site, ports=(site.port, 80)).read(site.url("/"), 100)


async def test_redirects_end(site: Site) -> None:
    site.answers["/"] = answer(b"", status="301 Moved Permanently", location="/")
    with pytest.raises(MediaFetchError, match="redirects"):
        await downloader(site, max_redirects=3).read(site.url("/"), 100)
    assert len(site.requests) == 4


async def test_a_stated_length_over_the_limit_is_refused_at_once(site: Site) -> None:
    site.answers["/"] = answer(b"start", content_length="999999999999")
    with pytest.raises(MediaTooLargeError, match="999999999999"):
        await downloader(site).read(site.url("/"), 100)


async def test_a_body_longer_than_its_stated_length_gives_no_more_than_stated(site: Site) -> None:
    site.answers["/"] = answer(b"x" * 5000, content_length="10")
    assert await downloader(site).read(site.url("/"), 100) == b"x" * 10


async def test_a_body_shorter_than_stated_is_a_retryable_error(site: Site) -> None:
    site.answers["/"] = answer(b"x" * 10, content_length="50")
    with pytest.raises(MediaFetchError) as caught:
        await downloader(site).read(site.url("/"), 100)
    assert caught.value.retryable


async def test_an_endless_body_without_a_length_is_stopped(site: Site) -> None:
    site.answers["/"] = answer(b"x" * 1_000_000, content_length="")
    with pytest.raises(MediaTooLargeError):
        await downloader(site).read(site.url("/"), 1000)


async def test_compression_nobody_asked_for_is_refused(site: Site) -> None:
    site.answers["/"] = answer(gzip.compress(b"0" * 10_000_000), content_encoding="gzip")
    with pytest.raises(MediaFetchError, match="compressed"):
        await downloader(site).read(site.url("/"), 100_000)


async def test_a_server_that_never_answers_is_a_retryable_error(site: Site) -> None:
    site.answers["/"] = None
    with pytest.raises(MediaFetchError, match=r"within 0\.2 s") as caught:
        await downloader(site, timeout_s=0.2).read(site.url("/"), 100)
    assert caught.value.retryable


@pytest.mark.parametrize(("status", "retryable"), [("404 Not Found", False), ("503 Busy", True), ("429 Slow", True)])
async def test_status_says_whether_to_try_again(site: Site, status: str, retryable: bool) -> None:
    site.answers["/"] = answer(b"", status=status)
    with pytest.raises(MediaFetchError) as caught:
        await downloader(site).read(site.url("/"), 100)
    assert caught.value.retryable is retryable


async def test_garbage_instead_of_http_is_a_typed_error(site: Site) -> None:
    site.answers["/"] = b"\x00\x01\x02 this is not http\r\n\r\n"
    with pytest.raises(MediaFetchError):
        await downloader(site).read(site.url("/"), 100)


async def test_a_closed_port_is_a_typed_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        policy = FetchPolicy(networks=LOOPBACK, ports=(port,))
        with pytest.raises(MediaFetchError) as caught:
            await Downloader(policy).read(f"http://127.0.0.1:{port}/", 100)
    assert caught.value.retryable


RAW = bytes(range(256))


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64," + base64.b64encode(RAW).decode(),
        "data:;base64," + base64.b64encode(RAW).decode().rstrip("="),
        "DATA:image/png;base64," + base64.urlsafe_b64encode(RAW).decode(),
        "data:image/png;charset=x;base64," + base64.encodebytes(RAW).decode(),
        "data:application/octet-stream," + "".join(f"%{value:02x}" for value in RAW),
    ],
)
async def test_data_urls_in_every_spelling(url: str) -> None:
    assert await Downloader(FetchPolicy()).read(url, 1000) == RAW


@pytest.mark.parametrize("url", ["data:image/png;base64", "data:;base64,####", "data:;base64,A"])
async def test_broken_data_urls_are_typed_errors(url: str) -> None:
    with pytest.raises(MediaFetchError):
        await Downloader(FetchPolicy()).read(url, 1000)


async def test_data_urls_obey_the_size_limit() -> None:
    with pytest.raises(MediaTooLargeError):
        await Downloader(FetchPolicy()).read("data:;base64," + "A" * 2000, 1000)
