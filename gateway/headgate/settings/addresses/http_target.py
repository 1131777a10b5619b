"""The target of an HTTP request, parsed from a URL with an unambiguous host. No I/O.

Parsers disagree about odd URLs (spaces, backslashes, `0x7f.1`, `1270.1`), so the host that one parser checks may differ from
the host that another connects to. So a host must be a plain name or a plainly written address.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from headgate.settings.addresses.origins import DEFAULT_PORTS, Origin, ascii_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

EXPECTED_URL = "an http or https URL with a plain host, without user and password, such as https://example.com/hook"
MAX_URL_LENGTH = 2048
# Characters allowed in a path (RFC 3986). The rest is percent-encoded.
_PATH = "/%:@!$&'()*+,;=~-._"


@dataclass(frozen=True, slots=True)
class Target:
    """Host (ASCII, lower case, no brackets, no final dot), port, and path with query (may hold a token, so it is not shown)."""

    scheme: str
    host: str
    port: int
    path: str

    def __repr__(self) -> str:
        return f"{self.origin}/…"

    @property
    def origin(self) -> str:
        """Scheme, host and any unusual port, safe for a log."""
        return str(Origin(self.scheme, self.host, self.port))

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        return self.origin.partition("://")[2]

    @property
    def address(self) -> Address | None:
        """The address, if the host is one."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


def read_target(raw: str) -> Target:
    """Parse a URL.

    Raises ValueError if it differs from EXPECTED_URL or `ascii_host` refuses its host. The text is one sentence without the
    URL.
    """
    text = raw.strip()
    if len(text) > MAX_URL_LENGTH or not text.isprintable() or any(letter in text for letter in ' \\"<>^`{|}'):
        raise ValueError(f"expected {EXPECTED_URL}")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise ValueError(f"expected {EXPECTED_URL}") from error
    if url.scheme not in DEFAULT_PORTS or not url.hostname or "@" in url.netloc or "%" in url.netloc or port == 0:
        raise ValueError(f"expected {EXPECTED_URL}")
    path = quote(url.path or "/", safe=_PATH) + (f"?{quote(url.query, safe=_PATH + '?')}" if url.query else "")
    return Target(url.scheme, ascii_host(url.hostname), port or DEFAULT_PORTS[url.scheme], path)
