"""Which addresses `media.fetch` may read: the one place that reads its settings."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from bus.errors import MediaFetchError, StackConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Set aside for protocols (RFC 6890) and 6to4 relays (RFC 7526); some versions of `ipaddress` call them global.
_SPECIAL = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("192.88.99.0/24"))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, kw_only=True)
class FetchPolicy:
    """What a deployer allows.

    Attributes:
        hosts: Patterns of host names that may be read, such as `*.example.org`; `*` is every public host.
            From `OMNIBUS_MEDIA_HOSTS`, separated by commas; empty: no URL is read at all.
        ports: Ports that may be contacted. From `OMNIBUS_MEDIA_PORTS`.
        networks: Networks that may be contacted although they are not public, such as `10.1.0.0/16`.
            From `OMNIBUS_MEDIA_NETWORKS`.
        timeout_s: For one URL in all, redirects included. From `OMNIBUS_MEDIA_TIMEOUT_S`.
        max_redirects: How many redirects are followed; each is checked like the first address.
    """

    hosts: tuple[str, ...] = ("*",)
    ports: tuple[int, ...] = (80, 443)
    networks: tuple[Network, ...] = ()
    timeout_s: float = 20.0
    max_redirects: int = 4

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> FetchPolicy:
        """The policy that the environment sets.

        Raises:
            StackConfigError: With every setting that could not be read.
        """
        given = os.environ if environment is None else environment
        problems: list[str] = []
        fields: dict[str, Any] = {}
        for variable, (name, read) in _SETTINGS.items():
            if variable in given:
                try:
                    fields[name] = read(given[variable])
                except ValueError as error:
                    problems.append(f"{variable}={given[variable]!r}: {error}")
        if problems:
            raise StackConfigError("; ".join(problems), problems=problems)
        return cls(**fields)

    def check_url(self, url: str) -> tuple[str, str, int]:
        """Scheme, host and port of a URL that may be read.

        Raises:
            MediaFetchError: Another scheme, a name or port that is not allowed, credentials, or no URL.
        """
        try:
            parts = urlsplit(url)
            # Compared and contacted in the form that travels: digits in circles are digits to a resolver.
            host = (parts.hostname or "").rstrip(".")
            host, port = host if host.isascii() else host.encode("idna").decode(), parts.port
        except ValueError as error:
            raise MediaFetchError(f"{_shown(url)} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not host:
            raise MediaFetchError(f"{_shown(url)} is not read; send an http, https or data URL with a host")
        if parts.username is not None or parts.password is not None:
            raise MediaFetchError(f"a URL with credentials is not read; send {host}'s media another way")
        port = port or (443 if parts.scheme == "https" else 80)
        if not any(fnmatchcase(host, pattern.lower()) for pattern in self.hosts):
            raise MediaFetchError(f"host {host!r} is not on the allow-list; add it to OMNIBUS_MEDIA_HOSTS", host=host)
        if port not in self.ports:
            raise MediaFetchError(f"port {port} of {host!r} is not allowed; add it to OMNIBUS_MEDIA_PORTS", host=host)
        return parts.scheme, host, port

    def check_address(self, host: str, address: str) -> None:
        """Refuse an address inside somebody's network.

        Raises:
            MediaFetchError: Loopback, private, link-local, multicast, reserved, or one that wraps such a one.
        """
        found = ipaddress.ip_address(address.partition("%")[0])
        if any(found.version == network.version and found in network for network in self.networks):
            return
        for reached in (found, *_wrapped(found)):
            if not reached.is_global or reached.is_multicast or _special(reached):
                raise MediaFetchError(
                    f"host {host!r} is at {address}, which is not a public address; "
                    "an operator can allow its network in OMNIBUS_MEDIA_NETWORKS",
                    host=host,
                )


def _special(address: Address) -> bool:
    return any(address.version == network.version and address in network for network in _SPECIAL)


def _wrapped(address: Address) -> tuple[Address, ...]:
    """IPv4 addresses that a gateway would unwrap from an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if address in _NAT64:
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    return tuple(one for one in inner if one is not None)


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _ports(value: str) -> tuple[int, ...]:
    return tuple(int(word) for word in _words(value))


def _networks(value: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(word) for word in _words(value))


def _shown(url: str) -> str:
    return repr(url if len(url) <= 80 else url[:80] + "…")


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "OMNIBUS_MEDIA_HOSTS": ("hosts", _words),
    "OMNIBUS_MEDIA_PORTS": ("ports", _ports),
    "OMNIBUS_MEDIA_NETWORKS": ("networks", _networks),
    "OMNIBUS_MEDIA_TIMEOUT_S": ("timeout_s", float),
}
"""Environment variable → field and reader."""
