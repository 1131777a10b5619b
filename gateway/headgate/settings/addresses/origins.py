"""Origins and hosts as comparable values. Only this module parses origins. No I/O.

In: text from a setting or a header. Out: an `Origin`, or a host in its single spelling, or a ValueError with the reason.

hostnames.py defines the single spelling of a host. `ws` and `wss` count as `http` and `https`, because a page of `https://…`
opens `wss://…`, and some proxies forward the latter.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from headgate.settings.addresses.hostnames import ascii_host

DEFAULT_PORTS = {"http": 80, "https": 443}
# A host name has at most 253 characters (RFC 1035 section 2.3.4).
MAX_CHARACTERS = 300
_PAGE_SCHEMES = {"ws": "http", "wss": "https"}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,63}", re.ASCII)
# Hosts of other schemes are ids and the like: `chrome-extension://<id>`, or `app://.` of Electron.
_ID = re.compile(r"(?P<host>[a-z0-9._~-]*)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{0,5}))?")
_NOT_IN_ORIGINS = {"@": "user info", "/": "a path", "?": "a query", "#": "a fragment"}
# Anyone can register a name under these, so a wildcard there would allow every site: the second level of country codes, and hosts
# of customers' pages. publicsuffix.org has thousands; these are common.
_SECOND_LEVEL = frozenset({"ac", "co", "com", "edu", "go", "gob", "gov", "gv", "mil", "ne", "net", "or", "org", "plc", "sch"})
_SHARED = frozenset(
    {
        *("amplifyapp.com", "appspot.com", "azurestaticapps.net", "azurewebsites.net", "cloudfront.net", "firebaseapp.com"),
        *("fly.dev", "github.io", "gitlab.io", "glitch.me", "herokuapp.com", "netlify.app", "ngrok-free.app", "ngrok.app"),
        *("ngrok.io", "onrender.com", "pages.dev", "surge.sh", "trycloudflare.com", "vercel.app", "web.app", "workers.dev"),
    }
)


class Origin(NamedTuple):
    """The origin of a page (RFC 6454). As a pattern, its host may begin with `*.`, which stands for exactly one label.

    Attributes:
        scheme: lower case, never ws or wss.
        host: in its single spelling.
        port: the scheme's default if omitted; None for schemes without a default.
    """

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port in (None, DEFAULT_PORTS.get(self.scheme)) else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    def matches(self, other: Origin) -> bool:
        """Return whether another origin equals this one or matches this pattern."""
        return (self.scheme, self.port) == (other.scheme, other.port) and host_matches(self.host, other.host)

    @property
    def is_loopback(self) -> bool:
        """Whether its pages come from this machine."""
        return self.scheme in DEFAULT_PORTS and is_local(self.host)


def parse_origin(text: str) -> Origin:
    """Return an origin: `scheme://host` or `scheme://host:port`, with any scheme. Raises ValueError: with the reason."""
    if text == "null":
        raise ValueError("null is the origin of every sandboxed frame and of local files, whichever site made them")
    given, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(given.lower()):
        raise ValueError("it has no scheme such as https://")
    if faults := [part for character, part in _NOT_IN_ORIGINS.items() if character in rest]:
        raise ValueError(f"it has {' and '.join(faults)}; an origin is scheme://host or scheme://host:port")
    scheme = _PAGE_SCHEMES.get(given.lower(), given.lower())
    if scheme in DEFAULT_PORTS:
        host, port = parse_authority(rest)
    elif match := _ID.fullmatch(rest.lower()):
        host, port = match["host"], None if match["port"] is None else int(match["port"])
    else:
        raise ValueError(f"{rest!r} is not a host")
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"port {port} is not from 1 to 65535")
    return Origin(scheme, host, DEFAULT_PORTS.get(scheme) if port is None else port)


def parse_origin_pattern(text: str) -> Origin:
    """Return an origin whose host may begin with `*.`.

    Raises ValueError: with the reason, also for a wildcard over a domain where anyone can register names.
    """
    scheme, separator, rest = text.partition("://")
    is_wildcard = rest.startswith("*.")
    rest = rest.removeprefix("*.")
    if "*" in rest:
        raise ValueError("* stands for one whole label, the first, as in https://*.example.com")
    origin = parse_origin(f"{scheme}{separator}{rest}")
    return origin._replace(host=_wildcard(origin.host)) if is_wildcard else origin


def parse_host_pattern(text: str) -> str:
    """Return a host that may begin with `*.`, in its single spelling. Raises ValueError: as `parse_origin_pattern`."""
    return _wildcard(parse_host(text[2:])) if text.startswith("*.") else parse_host(text)


def parse_authority(text: str) -> tuple[str, int | None]:
    """Return the host and port of `host` or `host:port`, the form of a Host header. Raises ValueError: with the reason."""
    match = _AUTHORITY.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise ValueError(f"{text[:80]!r} is not host or host:port, with an IPv6 address in brackets")
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        raise ValueError(f"port {port} is not from 1 to 65535")
    return parse_host(match["host"]), port


def parse_host(text: str) -> str:
    """Return a host name or address in its single spelling. An IPv6 address may have brackets.

    Raises ValueError: with the reason.
    """
    host = ascii_host(text)
    if "%" in host:
        raise ValueError("it has a zone, which no other machine knows")
    return host


@lru_cache(maxsize=256)  # a gateway has few; those of strangers are evicted
def origin_in_header(text: str) -> Origin | None:
    """Return the origin in an Origin header, which is ASCII, or None if invalid."""
    try:
        return parse_origin(text) if text.isascii() and len(text) <= 2 * MAX_CHARACTERS else None
    except ValueError:
        return None


@lru_cache(maxsize=256)
def authority_in_header(text: str) -> tuple[str, int | None] | None:
    """Return the host and port in a Host header, which is ASCII, or None if invalid."""
    try:
        return parse_authority(text) if text.isascii() else None
    except ValueError:
        return None


def host_matches(pattern: str, host: str) -> bool:
    """Return whether a host matches a pattern; `*.` is exactly one label."""
    if not pattern.startswith("*."):
        return host == pattern
    label, _, rest = host.partition(".")
    return bool(label) and rest == pattern[2:]


@lru_cache(maxsize=256)  # called for the Host of each request; parsing costs 9 µs of a join
def is_address(host: str) -> bool:
    """Return whether a host is an address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Return whether a host used by a browser is this machine, including names under localhost (RFC 6761 section 6.3)."""
    return is_loopback(host) or host.endswith(".localhost")


@lru_cache(maxsize=256)
def is_loopback(host: str | None) -> bool:
    """Return whether a host, in its single spelling, can mean only this machine."""
    if host is None or not is_address(host):
        return host == "localhost"
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _wildcard(base: str) -> str:
    """Return the pattern for every name one label below `base`.

    Raises ValueError: anyone can register such a name, or `base` is an address.
    """
    labels = base.split(".")
    below_country = len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVEL
    if is_address(base) or not base or (len(labels) < 2 and base != "localhost") or below_country or base in _SHARED:
        raise ValueError(f"*.{base} would stand for names that anyone can have; expected a domain of yours, as in *.example.com")
    return f"*.{base}"
