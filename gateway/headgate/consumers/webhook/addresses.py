"""The network addresses to which a request may be sent, and how an operator allows more. No I/O.

In: addresses, after the resolution of a name. Out: the objection to one ("loopback", "private", …), or None. Public addresses
are global unicast and not in IANA's special-purpose registries (RFC 6890 and its successors). All others are refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.settings.addresses.http_target import Address, read_target
from headgate.settings.options import all_parsed, read_words

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LINK_LOCAL, LOOPBACK, METADATA, PRIVATE, RESERVED = "link-local", "loopback", "cloud metadata", "private", "reserved"
# The first match determines the kind of an address.
_KINDS: tuple[tuple[Network, str], ...] = tuple(
    (ipaddress.ip_network(network), kind)
    for kind, networks in (
        # Azure (in public address space), several, Alibaba, Oracle, Amazon.
        (METADATA, "168.63.129.16/32 169.254.169.254/32 100.100.100.200/32 192.0.0.192/32 fd00:ec2::254/128"),
        ("unspecified", "0.0.0.0/8 ::/128"),
        (PRIVATE, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
        ("carrier-grade NAT", "100.64.0.0/10"),
        (LOOPBACK, "127.0.0.0/8 ::1/128"),
        (LINK_LOCAL, "169.254.0.0/16 fe80::/10"),
        ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
        ("6to4", "192.88.99.0/24 2002::/16"),
        ("benchmarking", "198.18.0.0/15"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        ("Teredo", "2001::/32"),
        (RESERVED, "192.0.0.0/24 240.0.0.0/4 2001::/23"),
    )
    for network in networks.split()
)
_PLACE = re.compile(r"[^/?#]+:[0-9]+", re.ASCII)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# In mapped and NAT64 addresses (RFC 6052, the well-known prefix), the last four bytes are an IPv4 address.
_CARRIES_IPV4 = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
# Kinds covered by an allowed host and port. Others need an allowed network, because a name that resolves to a metadata address
# is an attack.
_ALLOWED_BY_NAME = (PRIVATE, LOOPBACK, "carrier-grade NAT")


def kind_of(address: Address) -> str | None:
    """Return None for a public address, else its kind."""
    address = _meant(address)
    for network, kind in _KINDS:
        if address in network:
            return kind
    return None if address.version == 4 or address in _GLOBAL_UNICAST else RESERVED


@dataclass(frozen=True, slots=True)
class Allowed:
    """The addresses allowed besides public ones, as networks, and as hosts (as in a Target) with a port."""

    networks: tuple[Network, ...] = ()
    places: tuple[tuple[str, int], ...] = ()

    def refusal(self, address: Address, host: str, port: int) -> str | None:
        """Return the objection to connecting to `address`, which `host` resolved to, or None."""
        kind = kind_of(address)
        meant = _meant(address)
        if kind is None or any(meant in network or address in network for network in self.networks):
            return None
        return None if kind in _ALLOWED_BY_NAME and (host, port) in self.places else kind


def read_allowed(raw: str | Sequence[str]) -> Allowed:
    """Read networks (`10.0.0.0/8`) and places (`hooks.internal:8443`, `[fd00::1]:80`).

    Raises ValueError with every other word.
    """
    allowed = all_parsed(_read_one, read_words(raw))
    networks = tuple(each for each in allowed if not isinstance(each, tuple))
    return Allowed(networks, tuple(each for each in allowed if isinstance(each, tuple)))


def _read_one(word: str) -> Network | tuple[str, int]:
    try:
        return ipaddress.ip_network(word)
    except ValueError:
        if not _PLACE.fullmatch(word):
            raise
    place = read_target(f"http://{word}")  # normalises a host as a target does
    return place.host, place.port


def _meant(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _CARRIES_IPV4):
        return ipaddress.IPv4Address(address.packed[-4:])
    return address
