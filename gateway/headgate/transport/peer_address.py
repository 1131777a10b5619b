"""Address, scheme, host and port of a request's client, from the peer or from our declared proxies. No I/O.

Each proxy appends the value that it saw, so our proxies wrote the last values, and the value of our outermost one counts.
`Forwarded` (RFC 7239) counts only in a request without X-Forwarded-For, -Proto, -Host and -Port, because a proxy that sets one
kind passes on the client's values of the other kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from headgate.settings.addresses.origins import DEFAULT_PORTS

MAX_ADDRESS_CHARACTERS = 64
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
_WITH_PORT = re.compile(r"\[(?P<bracketed>[^\]]*)\](?::\d+)?|(?P<plain>[^:]+):\d+")
_HEADERS = {
    "for": "HTTP_X_FORWARDED_FOR",
    "proto": "HTTP_X_FORWARDED_PROTO",
    "host": "HTTP_X_FORWARDED_HOST",
    "port": "HTTP_X_FORWARDED_PORT",
}
_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_INNER_PORTS = {"http": 443, "https": 80}
# A value may be a token or a quoted string. Many proxies write addresses with colons and brackets, and no quotes.
_PAIR = re.compile(
    r'[ \t]*+(?:(?P<name>[!#$%&\'*+.^_`|~0-9A-Za-z-]++)=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^",;\s]++)))?[ \t]*+'
    r"(?P<end>[;,]|\Z)"
)


def address_of(environ: Mapping[str, object], proxies: int) -> str | None:
    """Return the `address_key` of a request's client, as the outermost proxy saw it; None for a Unix socket."""
    peer: object = None
    if proxies and len(seen := _seen(environ, "for")) >= proxies:
        peer = seen[-proxies]
    peer = peer or environ.get("REMOTE_ADDR")
    return address_key(str(peer)) if peer else None


@lru_cache(maxsize=4096)
def address_key(address: str) -> str:
    """Return the key for counting an address, the same for all its spellings.

    An IPv6 address counts as its /64, the least that a customer gets (RFC 6177). Link-local and loopback addresses, which share
    a /64, count one by one. An IPv4 address in an IPv6 one (mapped, NAT64) counts as itself. A zone id and a port, which some
    proxies add, do not count.
    """
    text = address.strip()[:MAX_ADDRESS_CHARACTERS].lower()
    if match := _WITH_PORT.fullmatch(text):
        text = match["bracketed"] or match["plain"]
    try:
        parsed = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    inner = parsed.ipv4_mapped or (IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _NAT64 else None)
    if inner is not None:
        return str(inner)
    if parsed.is_link_local or parsed.is_loopback:
        return str(parsed)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"


def forwarded_scheme(environ: Mapping[str, Any], proxies: int) -> str | None:
    """Return the scheme that the browser used, `http` or `https`; None if no proxy reports it.

    X-Forwarded-Proto counts even without a declared proxy, because a page cannot set it on a WebSocket.
    """
    value = _outermost(environ, "proto", proxies) if proxies or "HTTP_X_FORWARDED_PROTO" in environ else None
    return _SCHEMES.get((value or "").lower())


def forwarded_host(environ: Mapping[str, Any], proxies: int) -> str:
    """Return the Host that the browser sent, unchanged, from our proxies if they report it."""
    value = _outermost(environ, "host", proxies) if proxies else None
    return str(environ.get("HTTP_HOST", "")) if value is None else value


def forwarded_port(environ: Mapping[str, Any], proxies: int, scheme: str) -> int:
    """Return the port for a Host without one, from X-Forwarded-Port or the scheme's default.

    Port 80 with https, or 443 with http, belongs to an inner proxy and is ignored.
    """
    value = _outermost(environ, "port", proxies) if proxies else None
    port = int(value) if value is not None and re.fullmatch("[0-9]{1,5}", value) else 0
    return port if 0 < port < 65536 and port != _INNER_PORTS[scheme] else DEFAULT_PORTS[scheme]


def is_forwarded(environ: Mapping[str, Any]) -> bool:
    """Return whether a proxy has reported the client of a request."""
    return bool(environ.get("HTTP_X_FORWARDED_FOR") or environ.get("HTTP_FORWARDED"))


def _outermost(environ: Mapping[str, Any], part: str, proxies: int) -> str | None:
    """Return the value from our outermost proxy, or from an inner one that has overwritten the others."""
    seen = _seen(environ, part)
    return seen[-max(1, min(proxies, len(seen)))] if seen else None


def _seen(environ: Mapping[str, Any], part: str) -> list[str | None]:
    """Return a part of the request as each proxy saw it, our nearest proxy last."""
    if any(name in environ for name in _HEADERS.values()):
        return [each.strip() for each in str(environ.get(_HEADERS[part], "")).split(",") if each.strip()]
    return [element.get(part) for element in _elements(str(environ.get("HTTP_FORWARDED", "")))]


@lru_cache(maxsize=256)
def _elements(header: str) -> tuple[Mapping[str, str], ...]:
    """Return the elements of a Forwarded header, one per proxy; none if it is malformed (RFC 7239 section 4)."""
    elements: list[dict[str, str]] = [{}]
    at = 0
    while match := _PAIR.match(header, at):
        if match["name"] is not None:
            name, quoted = match["name"].lower(), match["quoted"]
            if name in elements[-1]:
                return ()
            elements[-1][name] = match["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        if not match["end"]:
            return tuple(element for element in elements if element)
        if match["end"] == ",":
            elements.append({})
        at = match.end()
    return ()
