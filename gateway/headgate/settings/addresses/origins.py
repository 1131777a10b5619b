"""Origins and hosts as comparable values. Only this module parses origins. No I/O.

In: text from a setting or a header. Out: an `Origin`, or a host in its single spelling, or a ValueError with the reason.

`ws` and `wss` count as `http` and `https`, because a page of `https://…` opens `wss://…`, and some proxies forward the latter.

A host has one ASCII form for resolving, comparing and showing it. Non-ASCII names follow IDNA 2008 (RFC 5891) after the mapping
of UTS 46, non-transitional, like browsers. Python's own codec `idna`, which `socket`, `ssl` and `http.client` apply to such
names, is IDNA 2003 and may reach another host (`straße.de` → `strasse.de`). So only the result of `ascii_host` may reach them.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from headgate.installation import advice

DEFAULT_PORTS = {"http": 80, "https": 443}
# A host name has at most 253 characters (RFC 1035 section 2.3.4).
MAX_CHARACTERS = 300
_PAGE_SCHEMES = {"ws": "http", "wss": "https"}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,63}", re.ASCII)
# Hosts of other schemes are ids and the like: `chrome-extension://<id>`, or `app://.` of Electron.
_ID = re.compile(r"(?P<host>[a-z0-9._~-]*)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{0,5}))?")
_NOT_IN_ORIGINS = {"@": "user info", "/": "a path", "?": "a query", "#": "a fragment", " ": "a blank", ";": "a semicolon"}
# Anyone can register a name under the second level of a country code or under a host for customers' pages, so a wildcard there
# would allow every site. These are common ones of the thousands at publicsuffix.org.
_SECOND_LEVEL = frozenset({"ac", "co", "com", "edu", "go", "gob", "gov", "gv", "mil", "ne", "net", "or", "org", "plc", "sch"})
_SHARED = frozenset(
    {
        *("amplifyapp.com", "appspot.com", "azurestaticapps.net", "azurewebsites.net", "cloudfront.net", "firebaseapp.com"),
        *("fly.dev", "github.io", "gitlab.io", "glitch.me", "herokuapp.com", "netlify.app", "ngrok-free.app", "ngrok.app"),
        *("ngrok.io", "onrender.com", "pages.dev", "surge.sh", "trycloudflare.com", "vercel.app", "web.app", "workers.dev"),
    }
)


MAX_NAME_CHARACTERS = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# Read as an IPv4 address by every resolver except strict ones: `0x7f.1`, `1270.1`.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_SCOPE = re.compile(r"[A-Za-z0-9._~-]{1,32}", re.ASCII)


def ascii_host(text: str) -> str:
    """Return a host in its single spelling, in lower case and ASCII, without brackets or a final dot.

    An IPv4 address has four decimal numbers. An IPv6 address, with or without brackets, is compressed (RFC 5952). The labels of
    a name have 1 to 63 letters, digits, `-` and `_` (not allowed by RFC 952, but usual on private networks). Raises ValueError
    for anything else. Its text is one sentence with the reason, in printable ASCII.
    """
    if len(text) > MAX_NAME_CHARACTERS + 1:
        raise ValueError(f"the host name is longer than {MAX_NAME_CHARACTERS} characters")
    if ":" in text or text.startswith("["):
        return _ipv6(text)
    name = (text if text.isascii() else _encode(text)).lower().removesuffix(".")
    if not name:
        raise ValueError("the host name is empty")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(f"the host name is longer than {MAX_NAME_CHARACTERS} characters")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise ValueError("the last label of a host name is no number, and an IPv4 address has four from 0 to 255") from None
    if not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(
            "each label of a host name has 1 to 63 letters, digits, - and _, without - at its ends, and a dot before the next one"
        )
    return name


def _encode(text: str) -> str:
    try:
        import idna  # imported here, as a publisher's installation lacks it
    except ModuleNotFoundError as error:
        raise ValueError(f"a host name with other letters than ASCII {advice(error, 'server')}") from error
    try:
        # A separate first step, so that a name that becomes ASCII (full-width letters) keeps an underscore.
        mapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
        labels = (label if label.isascii() else idna.alabel(label).decode("ascii") for label in mapped.split("."))
        return mapped if mapped.isascii() else ".".join(labels)
    except idna.IDNAError:  # its text repeats the name, which in an unencoded URL may be part of a password
        raise ValueError("the host name is not valid under IDNA 2008") from None


def _ipv6(text: str) -> str:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ipaddress.IPv6Address(inner)
    except ValueError:
        raise ValueError("a host with a colon or a bracket is an IPv6 address, such as ::1 or [2001:db8::1]") from None
    if address.scope_id is not None and not _SCOPE.fullmatch(address.scope_id):
        raise ValueError("the zone of an IPv6 address has 1 to 32 letters, digits and . _ ~ -")
    return str(address)


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
    """Parse `scheme://host` or `scheme://host:port`, with any scheme. Raises ValueError with the reason."""
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
    """Parse an origin with a host that may begin with `*.`.

    Raises ValueError with the reason, also for a wildcard over a domain where anyone can register names.
    """
    scheme, separator, rest = text.partition("://")
    is_wildcard = rest.startswith("*.")
    rest = rest.removeprefix("*.")
    if "*" in rest:
        raise ValueError("* stands for one whole label, the first, as in https://*.example.com")
    origin = parse_origin(f"{scheme}{separator}{rest}")
    return origin._replace(host=_wildcard(origin.host)) if is_wildcard else origin


def parse_host_pattern(text: str) -> str:
    """Return a host that may begin with `*.`, in its single spelling. Raises ValueError as `parse_origin_pattern`."""
    return _wildcard(parse_host(text[2:])) if text.startswith("*.") else parse_host(text)


def parse_authority(text: str) -> tuple[str, int | None]:
    """Return the host and port of `host` or `host:port`, the form of a Host header. Raises ValueError with the reason."""
    match = _AUTHORITY.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise ValueError(f"{text[:80]!r} is not host or host:port, with an IPv6 address in brackets")
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        raise ValueError(f"port {port} is not from 1 to 65535")
    return parse_host(match["host"]), port


def parse_host(text: str) -> str:
    """Return a host name or address in its single spelling. An IPv6 address may have brackets.

    Raises ValueError with the reason.
    """
    host = ascii_host(text)
    if "%" in host:
        raise ValueError("it has a zone, which no other machine knows")
    return host


@lru_cache(maxsize=256)  # a gateway's pages have few origins; others are evicted
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
    """Return whether a host matches a pattern. `*.` stands for exactly one label."""
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

    Raises ValueError if anyone can register such a name, or if `base` is an address.
    """
    labels = base.split(".")
    below_country = len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVEL
    if is_address(base) or not base or (len(labels) < 2 and base != "localhost") or below_country or base in _SHARED:
        raise ValueError(f"*.{base} would stand for names that anyone can have; expected a domain of yours, as in *.example.com")
    return f"*.{base}"
