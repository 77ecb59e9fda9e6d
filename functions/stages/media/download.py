"""One URL read safely: the address is checked, pinned, and the size and time are bounded."""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from bus.errors import MediaFetchError, MediaTooLargeError
from functions.stages.media.policy import FetchPolicy

if TYPE_CHECKING:
    import httpx

_RETRYABLE = (408, 425, 429, 500, 502, 503, 504)


class Downloader:
    """Reads media URLs under a policy.

    The name is resolved once, every address is checked, and the connection goes to the checked address: a
    name that changes its address between check and use (DNS rebinding) gains nothing.
    """

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy

    async def read(self, url: str, max_bytes: int) -> bytes:
        """The content of an http, https or data URL.

        Raises:
            MediaFetchError: Refused by the policy, or no answer (retryable where trying again may help).
            MediaTooLargeError: More than `max_bytes`.
        """
        if url[:5].lower() == "data:":
            return _read_data_url(url, max_bytes)
        try:
            async with asyncio.timeout(self._policy.timeout_s):
                return await self._follow(url, max_bytes)
        except TimeoutError as error:
            host = urlsplit(url).hostname
            raise MediaFetchError(
                f"host {host!r} did not send the media within {self._policy.timeout_s} s", retryable=True
            ) from error

    async def _follow(self, url: str, max_bytes: int) -> bytes:
        import httpx  # here: the contracts of this stage are imported by processes that never fetch

        for _ in range(self._policy.max_redirects + 1):
            scheme, host, port = self._policy.check_url(url)
            address = await self._resolve(host, port)
            try:
                async with httpx.AsyncClient(trust_env=False, timeout=self._policy.timeout_s) as client:
                    found = await _get(client, _Target(url, scheme, host, port, address), max_bytes)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise MediaFetchError(
                    f"reading {host!r} failed: {type(error).__name__} {error}".strip(),
                    retryable=isinstance(error, httpx.TransportError),
                    host=host,
                ) from error
            if isinstance(found, bytes):
                return found
            url = _joined(url, found.location, host)
        raise MediaFetchError(f"more than {self._policy.max_redirects} redirects, the last one to {url[:80]!r}")

    async def _resolve(self, host: str, port: int) -> str:
        """The address to contact; every address of the name is checked, not only the one that is used."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise MediaFetchError(f"host {host!r} has no address: {error}", host=host) from error
        addresses = [str(entry[4][0]) for entry in found]
        for address in addresses:
            self._policy.check_address(host, address)
        return addresses[0]


class _Target:
    """A URL and the address that was checked for it."""

    def __init__(self, url: str, scheme: str, host: str, port: int, address: str) -> None:
        parts = urlsplit(url)
        self.host = host
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        authority = f"[{address}]" if ":" in address else address
        self.pinned = f"{scheme}://{authority}:{port}{self.path}"
        self.host_header = f"[{host}]" if ":" in host else host
        if port != (443 if scheme == "https" else 80):
            self.host_header += f":{port}"


class _Redirect:
    def __init__(self, location: str) -> None:
        self.location = location


async def _get(client: httpx.AsyncClient, target: _Target, max_bytes: int) -> bytes | _Redirect:
    headers = {"host": target.host_header, "accept": "*/*", "accept-encoding": "identity"}
    # The certificate is checked against the name, although the connection goes to the address.
    extensions = {"sni_hostname": target.host}
    async with client.stream("GET", target.pinned, headers=headers, extensions=extensions) as response:
        if response.is_redirect and "location" in response.headers:
            return _Redirect(response.headers["location"])
        if response.status_code != 200:
            raise MediaFetchError(
                f"host {target.host!r} answered {response.status_code} for {target.path[:80]!r}",
                retryable=response.status_code in _RETRYABLE,
                host=target.host,
                status=response.status_code,
            )
        if response.headers.get("content-encoding", "identity") != "identity":
            # Nobody asked for compression; unpacking it would be the bomb that the size cap is there to stop.
            raise MediaFetchError(f"host {target.host!r} sent compressed content that was not asked for")
        claimed = response.headers.get("content-length", "")
        if claimed.isdigit() and int(claimed) > max_bytes:
            raise _too_large(target.host, int(claimed), max_bytes)
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > max_bytes:
                raise _too_large(target.host, len(data), max_bytes)
        return bytes(data)


def _joined(url: str, location: str, host: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise MediaFetchError(f"host {host!r} redirects to {location[:80]!r}, which is no URL", host=host) from error


def _too_large(source: str, nbytes: int, max_bytes: int) -> MediaTooLargeError:
    return MediaTooLargeError(
        f"the media from {source!r} has {nbytes} bytes or more; at most {max_bytes} are taken",
        nbytes=nbytes,
        max_bytes=max_bytes,
    )


def _read_data_url(url: str, max_bytes: int) -> bytes:
    """RFC 2397; base64 with or without padding, in either alphabet."""
    head, comma, body = url.partition(",")
    if not comma:
        raise MediaFetchError("a data URL has a comma before its data; this one has none")
    if len(body) > max_bytes * 4:
        raise _too_large("a data URL", len(body) * 3 // 4, max_bytes)
    raw = unquote_to_bytes(body)
    if head.lower().endswith(";base64"):
        compact = b"".join(raw.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
        try:
            raw = base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
        except (binascii.Error, ValueError) as error:
            raise MediaFetchError(f"the data URL's base64 does not decode: {error}") from error
    if len(raw) > max_bytes:
        raise _too_large("a data URL", len(raw), max_bytes)
    return raw
