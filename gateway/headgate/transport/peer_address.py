"""The address for which a request counts: that of the peer, or of the client of our own proxies. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from .forwarded import forwarded_address

MAX_ADDRESS_CHARACTERS = 64
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
_WITH_PORT = re.compile(r"\[(?P<bracketed>[^\]]*)\](?::\d+)?|(?P<plain>[^:]+):\d+")


def address_of(environ: Mapping[str, object], proxies: int) -> str | None:
    """Return the `address_key` of a request's client; None for a Unix socket.

    With `proxies` of ours it is the address that the outermost of them saw (forwarded.py).
    """
    peer = (forwarded_address(environ, proxies) if proxies else None) or environ.get("REMOTE_ADDR")
    return address_key(str(peer)) if peer else None


@lru_cache(maxsize=4096)
def address_key(address: str) -> str:
    """Return the key under which an address is counted, one for all its spellings.

    An IPv6 address counts as its /64, the least that a customer gets (RFC 6177). Link-local and loopback addresses share a /64
    and count one by one. An IPv4 address in an IPv6 one (mapped, NAT64) counts as itself. A zone id and a port, which some
    proxies add, do not count.
    """
    text = address.strip()[:MAX_ADDRESS_CHARACTERS].lower()
    if found := _WITH_PORT.fullmatch(text):
        text = found["bracketed"] or found["plain"]
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
