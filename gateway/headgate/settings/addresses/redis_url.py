"""The URL of a Redis, parsed once at the edge into servers, database, credentials and options. No I/O.

In: `redis://[user:password@]host[:port][/database][?options]`, `rediss://` for TLS, `unix://[user:password@]/path`;
`redis+sentinel://[…@]host[:port][,host[:port]…]/<primary>[/<database>]` and `redis+cluster://[…@]host[:port][,host[:port]…]`,
each also as `rediss+…`. `valkey://` and `valkeys://`, which providers of Valkey show, stand for `redis://` and `rediss://`.
Out: a RedisUrl, or one line that names the fault and what is allowed.

No error and no repr shows any part of the user or password. There, `/ ? # %` must be percent-encoded, and in an option also
`&`. If a URL breaks this rule, part of the password is in another place. So no error repeats an option's value, an invalid port
or database, or an unknown option next to a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from headgate.errors import BusRefused
from headgate.settings import options
from headgate.settings.addresses.origins import ascii_host

Node = tuple[str, int]

FORMS = (
    "redis://host:6379/0, rediss://…, unix:///path, redis+sentinel://host:26379,host:26379/primary/0 or "
    "redis+cluster://host:6379,host:6379"
)
ENCODE = "percent-encode it where it is part of a user, a password or a name: / is %2F, ? is %3F, # is %23, @ is %40, % is %25"
PORT, SENTINEL_PORT = 6379, 26379
MAX_SHOWN = 40


class RedisKind(Enum):
    """The kind of server at the hosts of a URL."""

    SERVER = "server"
    SOCKET = "socket"
    SENTINELS = "sentinels"
    CLUSTER = "cluster"
    NODE = "node"  # of a Cluster, without redirection to others


# From RFC 3986, appendix B. Newer versions of urlsplit refuse an IPv6 address in a list of hosts.
_URL = re.compile(r"([^:/?#]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_SCHEMES = {
    **dict.fromkeys(("redis", "valkey"), (RedisKind.SERVER, False)),
    **dict.fromkeys(("rediss", "valkeys"), (RedisKind.SERVER, True)),
    "unix": (RedisKind.SOCKET, False),
    "redis+sentinel": (RedisKind.SENTINELS, False),
    "rediss+sentinel": (RedisKind.SENTINELS, True),
    "redis+cluster": (RedisKind.CLUSTER, False),
    "rediss+cluster": (RedisKind.CLUSTER, True),
}


_SWITCH, _TEXT = options.SWITCH._replace(expected="yes or no"), options.verbatim("a text")
_WHOLE = options.integer(0, 10**9 - 1)._replace(expected="a whole number")
_SECONDS = options.number(0, 10**9 - 1)._replace(expected="a number of seconds")
_CERTIFICATES = options.one_of("none", "optional", "required")
# The options, each with its reader and expected form.
_COMMON: dict[str, options.Kind] = {
    "client_name": _TEXT,
    "db": _WHOLE,
    "password": _TEXT,
    "socket_keepalive": _SWITCH,
    "username": _TEXT,
}
_TLS: dict[str, options.Kind] = {
    "ssl_ca_certs": _TEXT,
    "ssl_ca_data": _TEXT,
    "ssl_ca_path": _TEXT,
    "ssl_cert_reqs": _CERTIFICATES._replace(read=lambda text: _CERTIFICATES.read(text.lower().removeprefix("cert_"))),
    "ssl_certfile": _TEXT,
    "ssl_check_hostname": _SWITCH,
    "ssl_ciphers": _TEXT,
    "ssl_keyfile": _TEXT,
    "ssl_password": _TEXT,
}
_SENTINEL: dict[str, options.Kind] = {"sentinel_password": _TEXT, "sentinel_tls": _SWITCH, "sentinel_username": _TEXT}
# Options of redis-py for other programs that share the URL. Headgate checks them but sets its own values.
_OVERRULED: dict[str, options.Kind] = {
    "decode_responses": _SWITCH,
    "health_check_interval": _SECONDS,
    "max_connections": _WHOLE,
    "protocol": options.one_of("2", "3"),
    "retry_on_timeout": _SWITCH,
    "socket_connect_timeout": _SECONDS,
    "socket_timeout": _SECONDS,
    "timeout": _SECONDS,
}


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL. `str` is the address without user, password and options, safe for a log or an error.

    `hosts` are (host, port), empty for a socket. `options` are arguments of redis-py's connections.
    """

    kind: RedisKind
    tls: bool
    hosts: tuple[Node, ...]
    path: str = ""
    primary: str = ""
    database: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    sentinel: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        if self.kind is RedisKind.SOCKET:
            return self.path
        shown = ", ".join(map(shown_node, self.hosts))
        if self.kind is RedisKind.SENTINELS:
            return f"{self.primary} of the Sentinels {shown}"
        return f"the Cluster of {shown}" if self.kind is RedisKind.CLUSTER else shown

    def at(self, node: Node) -> RedisUrl:
        """Return the URL of a node of this Cluster with these credentials and options."""
        return replace(self, kind=RedisKind.NODE, hosts=(node,))


def shown_node(node: Node) -> str:
    """Return a server as `host:port`."""
    host, port = node
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=64)
def read_url(url: str) -> RedisUrl:
    """Parse a URL. Raises BusRefused, with no part of the credentials, if it is invalid."""
    text = url.strip() if isinstance(url, str) else ""
    match = _URL.fullmatch(text)
    if match is None or (scheme := match[1].lower()) not in _SCHEMES or re.search(r"[\x00-\x1f\x7f]", text):
        raise _wrong(f"is not of the form {FORMS}")
    kind, tls = _SCHEMES[scheme]
    _, netloc, raw_path, query, fragment = match.groups(default="")
    userinfo, at, places = netloc.rpartition("@")
    if fragment or "@" in (netloc and raw_path):
        raise _wrong(f"has a /, ? or # that is not at its place: {ENCODE}")
    given = _options(query, kind, tls)
    path = _decoded(raw_path)
    primary = path.removeprefix("/").partition("/")[0] if kind is RedisKind.SENTINELS else ""
    sentinel = tuple((name.removeprefix("sentinel_"), value) for name, value in given.items() if name in _SENTINEL)
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise _wrong("has the option ssl_keyfile without ssl_certfile")
    hosts = _hosts(places, raw_path, kind, has_credentials=bool(at))
    if kind is RedisKind.SOCKET and len(path) < 2:
        raise _wrong("names no socket; expected unix:///path")
    if kind is RedisKind.SENTINELS and not primary:
        raise _wrong("names no primary; expected redis+sentinel://host:26379,host:26379/primary/0")
    return RedisUrl(
        kind,
        tls,
        hosts,
        path=path if kind is RedisKind.SOCKET else "",
        primary=primary,
        database=_database(path, kind, given),
        **_credentials(userinfo, given),
        options=tuple(
            (name, value) for name, value in given.items() if name in _TLS or name in ("client_name", "socket_keepalive")
        ),
        sentinel=sentinel,
    )


def _options(query: str, kind: RedisKind, tls: bool) -> dict[str, Any]:
    allowed = dict(_COMMON) | _OVERRULED
    if kind is RedisKind.SENTINELS:
        allowed |= _SENTINEL
    if tls or "sentinel_tls" in query:
        allowed |= _TLS
    values: dict[str, Any] = {}
    for part in query.split("&") if query else []:
        name, _, raw = part.partition("=")
        if name not in allowed:
            if "@" in query:  # then this may be part of a password
                raise _wrong(f"has a ? that is not at its place: {ENCODE}")
            if name in _TLS:
                raise _wrong(f"has the option {name}, which needs TLS: begin it with rediss")
            known = ", ".join(sorted(allowed))
            if "password=" in query and name not in _SENTINEL:  # an unencoded & in the password begins another option
                raise _wrong(f"has an option that is unknown; allowed: {known}; and in a password & is %26")
            raise _wrong(f"has the option {ascii(name)[1:-1][:MAX_SHOWN]}, which is unknown; allowed: {known}")
        if name in values:
            raise _wrong(f"has the option {name} twice")
        read, expected = allowed[name]
        try:
            if not (text := _decoded(raw)).strip():  # otherwise an empty switch would be off
                raise ValueError
            values[name] = read(text)
        except (ValueError, KeyError):
            raise _wrong(f"has a wrong value of the option {name}; expected {expected}") from None
    return values


def _hosts(places: str, path: str, kind: RedisKind, *, has_credentials: bool) -> tuple[Node, ...]:
    if kind is RedisKind.SOCKET:
        if places:
            raise _wrong("names a host before the path of its socket; expected unix:///path")
        return ()
    if not places:
        if kind is RedisKind.SERVER and path.strip("/") and not has_credentials:
            return (("localhost", PORT),)
        raise _wrong(f"names no host; expected {FORMS}")
    if kind is RedisKind.SERVER:
        return (_host(places, PORT),)
    default_port = SENTINEL_PORT if kind is RedisKind.SENTINELS else PORT
    return tuple(_host(place, default_port) for place in places.split(","))


def _host(place: str, default_port: int) -> Node:
    match = re.fullmatch(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::(.*))?", place, re.DOTALL)
    if match is None:
        raise _wrong("has a host that is none; expected a name, an IPv4 address, or an IPv6 address in brackets, and a port")
    host, port = match[1], match[2]
    number = default_port if port is None else int(port) if re.fullmatch(r"\d{1,5}", port, re.ASCII) else 0
    if not 0 < number < 65536:
        raise _wrong(f"has a wrong port; expected a number from 1 to 65535, and before the host no / ? #: {ENCODE}")
    if not host:
        raise _wrong(f"names no host; expected {FORMS}")
    try:
        return ascii_host(host), number
    except ValueError as error:
        raise _wrong(f"has a wrong host: {error}; {ENCODE}") from None


def _database(path: str, kind: RedisKind, given: Mapping[str, Any]) -> int:
    text = path.removeprefix("/")
    if kind is RedisKind.SOCKET:
        text = ""
    elif kind is RedisKind.SENTINELS:
        text = text.partition("/")[2]
    text = text.removesuffix("/")
    if text and not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise _wrong("has a wrong database; expected a whole number, such as /0")
    if text and given.get("db", int(text)) != int(text):
        raise _wrong("names two databases, one in its path and one in the option db")
    database = int(text or given.get("db", 0))
    if kind is RedisKind.CLUSTER and database:
        raise _wrong(f"names database {database}, and a Cluster has only database 0")
    return database


def _credentials(userinfo: str, given: Mapping[str, Any]) -> dict[str, str | None]:
    user, _, password = userinfo.partition(":")
    credentials = {"username": _decoded(user) or None, "password": _decoded(password) or None}
    for name, value in credentials.items():
        if name in given and value is not None:
            raise _wrong(f"has the {name} twice: before the host and as an option")
    return {name: given.get(name, value) for name, value in credentials.items()}


def _decoded(text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _wrong(f"has a % that two hexadecimal digits do not follow: {ENCODE}")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _wrong("has percent-encoded bytes that are not UTF-8") from None


def _wrong(reason: str) -> BusRefused:
    return BusRefused(f"the Redis URL {reason}")
