"""Which addresses may be read: a table of tricks."""

from __future__ import annotations

import ipaddress

import pytest

from bus.errors import MediaFetchError, StackConfigError
from functions.stages.media.policy import FetchPolicy


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/a.png",
        "file:///etc/passwd",
        "gopher://example.org/",
        "http://",
        "//example.org/a.png",
        "/etc/passwd",
        "javascript:alert(1)",
        "http://user:secret@example.org/a.png",
        "http://example.org:22/",
        "http://example.org:notaport/",
        "http://[::1",
        "http://\u202e/",
        "http://" + "é" * 80 + ".example/",
    ],
)
def test_urls_that_are_never_read(url: str) -> None:
    with pytest.raises(MediaFetchError):
        FetchPolicy().check_url(url)


def test_a_refusal_never_shows_the_password() -> None:
    with pytest.raises(MediaFetchError) as caught:
        FetchPolicy().check_url("http://user:secret@example.org/a.png")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.org/a.png", ("http", "example.org", 80)),
        ("https://EXAMPLE.org./a", ("https", "example.org", 443)),
        ("https://example.org:443/?q=1", ("https", "example.org", 443)),
        ("http://[2606:4700::1111]/", ("http", "2606:4700::1111", 80)),
        ("http://bücher.example/", ("http", "xn--bcher-kva.example", 80)),
        ("http://①②⑦.⓪.⓪.①/", ("http", "127.0.0.1", 80)),
    ],
)
def test_urls_that_are_read(url: str, expected: tuple[str, str, int]) -> None:
    assert FetchPolicy().check_url(url) == expected


@pytest.mark.parametrize(
    ("hosts", "host", "allowed"),
    [
        (("*",), "anything.example", True),
        (("media.example.org",), "media.example.org", True),
        (("media.example.org",), "MEDIA.EXAMPLE.ORG", True),
        (("media.example.org",), "media.example.org.evil.example", False),
        (("*.example.org",), "cdn.example.org", True),
        (("*.example.org",), "example.org", False),
        (("*.example.org",), "evilexample.org", False),
        ((), "example.org", False),
    ],
)
def test_the_allow_list(hosts: tuple[str, ...], host: str, allowed: bool) -> None:
    policy = FetchPolicy(hosts=hosts)
    if allowed:
        policy.check_url(f"https://{host}/a.png")
    else:
        with pytest.raises(MediaFetchError, match="allow-list"):
            policy.check_url(f"https://{host}/a.png")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12:3456::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:c0a8:101::1",
    ],
)
def test_addresses_inside_somebodys_network_are_refused(address: str) -> None:
    with pytest.raises(MediaFetchError, match="not a public address"):
        FetchPolicy().check_address("innocent.example", address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_allowed(address: str) -> None:
    FetchPolicy().check_address("example.org", address)


def test_an_operator_can_allow_a_network() -> None:
    policy = FetchPolicy(networks=(ipaddress.ip_network("10.1.0.0/16"),))
    policy.check_address("files.internal", "10.1.2.3")
    with pytest.raises(MediaFetchError):
        policy.check_address("files.internal", "10.2.2.3")


def test_settings_come_from_the_environment() -> None:
    policy = FetchPolicy.from_environment(
        {
            "OMNIBUS_MEDIA_HOSTS": "a.example, *.b.example",
            "OMNIBUS_MEDIA_PORTS": "443,8443",
            "OMNIBUS_MEDIA_NETWORKS": "10.0.0.0/8",
            "OMNIBUS_MEDIA_TIMEOUT_S": "3.5",
        }
    )
    assert policy == FetchPolicy(
        hosts=("a.example", "*.b.example"),
        ports=(443, 8443),
        networks=(ipaddress.ip_network("10.0.0.0/8"),),
        timeout_s=3.5,
    )


def test_all_bad_settings_are_told_at_once() -> None:
    with pytest.raises(StackConfigError) as caught:
        FetchPolicy.from_environment({"OMNIBUS_MEDIA_PORTS": "https", "OMNIBUS_MEDIA_NETWORKS": "10.0.0.0/99"})
    assert "OMNIBUS_MEDIA_PORTS" in str(caught.value)
    assert "OMNIBUS_MEDIA_NETWORKS" in str(caught.value)
