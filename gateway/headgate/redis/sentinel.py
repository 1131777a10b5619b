"""Redis behind Sentinels: a URL that names them and the primary, and connections that ask them where it is.

In: `redis+sentinel://[user:password@]host[:port][,host[:port]…]/<primary>[/<database>][?options]`, or `rediss+sentinel://` where
Redis and its Sentinels speak TLS. Out: a pool whose connections ask for the primary each time that they connect. A connection
whose server is the primary no longer is its owner's to notice.

User, password and database are Redis' own. Options: `sentinel_username`, `sentinel_password`, `sentinel_tls` (yes or no; else as
Redis), and those of redis-py for Redis itself (`ssl_ca_certs`, …), which count for TLS to the Sentinels too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from .hosts import read_hosts

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
FORM = "redis+sentinel://host:26379,host:26379/primary/0"
SENTINEL_PORT = 26379
# A Sentinel that does not answer must not use up the time of the others.
ASK_TIMEOUT_S = 0.5
# Sentinels and primary → the newest failover that this process knows of. All pools of a process follow it.
_newest_failover: dict[tuple[tuple[tuple[str, int], ...], str], int] = {}


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """A parsed URL: `url` is that of Redis as a plain one, with the primary's name in place of a host."""

    sentinels: tuple[tuple[str, int], ...]
    primary: str
    url: str
    username: str | None
    password: str | None
    tls: bool

    def __str__(self) -> str:
        return f"{self.primary} of the Sentinels {', '.join(f'{host}:{port}' for host, port in self.sentinels)}"


def is_sentinel(url: str) -> bool:
    """Return whether a URL names Sentinels."""
    return url.partition("://")[0].lower() in SCHEMES


def read_address(url: str) -> SentinelAddress:
    """Return what a URL that names Sentinels says.

    Raises:
        ValueError: it is not of that form.
    """
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    primary, _, database = unquote(parts.path.removeprefix("/")).partition("/")
    if not primary or not re.fullmatch(r"\d*", database):
        raise ValueError(f"expected {FORM}")
    options = dict(parse_qsl(parts.query))
    tls = options.pop("sentinel_tls", "yes" if parts.scheme == "rediss+sentinel" else "no").lower()
    if tls not in ("yes", "no"):
        raise ValueError("sentinel_tls: expected yes or no")
    return SentinelAddress(
        read_hosts(hosts, SENTINEL_PORT),
        primary,
        f"{SCHEMES[parts.scheme]}://{credentials}{at}sentinel:0/{database or 0}{_query(options)}",
        options.get("sentinel_username"),
        options.get("sentinel_password"),
        tls == "yes",
    )


def _query(options: Mapping[str, str]) -> str:
    own = {name: value for name, value in options.items() if not name.startswith("sentinel_")}
    return f"?{urlencode(own)}" if own else ""


class Discovery:
    """Asks the Sentinels where the primary is, each time anew.

    Args:
        address: of the Sentinels.
        options: those of the connections to Redis, of which TLS counts here too.
    """

    def __init__(self, address: SentinelAddress, options: Mapping[str, Any]) -> None:
        self.address = address
        self._options: dict[str, Any] = {
            "socket_timeout": ASK_TIMEOUT_S,
            "socket_connect_timeout": ASK_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
        }
        if address.password is not None:
            self._options |= {"username": address.username, "password": address.password}
        if address.tls:
            self._options |= {"ssl": True, **{name: value for name, value in options.items() if name.startswith("ssl_")}}

    def primary(self) -> tuple[str, int]:
        """Return host and port of the primary. Waits for a Sentinel to answer, at most ASK_TIMEOUT_S for each.

        Raises:
            redis.ConnectionError: none answers, or none knows a primary of that name that is up.
        """
        place = self.address.sentinels, self.address.primary
        known = _newest_failover.get(place, -1)
        sentinels: Any = redis.sentinel.Sentinel(  # type: ignore[no-untyped-call]
            self.address.sentinels, sentinel_kwargs=self._options
        )
        found: Mapping[str, Any] | None = None
        try:
            for sentinel in sentinels.sentinels:
                state = self._asked(sentinels, sentinel)
                if state is not None and (found is None or state["config-epoch"] > found["config-epoch"]):
                    found = state
                if found is not None and found["config-epoch"] >= known:
                    break
        finally:
            for client in sentinels.sentinels:
                with suppress(redis.RedisError, OSError):
                    client.close()
        if found is None:
            raise redis.ConnectionError("none of them answers and knows a primary of that name that is up")
        _newest_failover[place] = max(_newest_failover.get(place, -1), found["config-epoch"])  # others may have asked meanwhile
        return str(found["ip"]), int(found["port"])

    def _asked(self, sentinels: Any, sentinel: Any) -> Mapping[str, Any] | None:
        """Return what a Sentinel knows of the primary; None when it does not answer, or knows none that is up."""
        try:
            state: Mapping[str, Any] | None = sentinel.sentinel_masters().get(self.address.primary)
        except (redis.ConnectionError, redis.TimeoutError):
            return None
        return state if state is not None and sentinels.check_master_state(state, self.address.primary) else None


class _AsksSentinels:
    """Lets a connection ask where the primary is before it connects."""

    def __init__(self, *, discovery: Discovery, **options: Any) -> None:
        super().__init__(**options)
        self._discovery = discovery

    def connect(self) -> None:
        """Connect to the server that is the primary now."""
        connection: Any = self
        if connection._sock is None:
            connection.host, connection.port = self._discovery.primary()
        super().connect()  # type: ignore[misc]


class SentinelConnection(_AsksSentinels, redis.Connection):
    """A connection to the primary."""


class SentinelSSLConnection(_AsksSentinels, redis.SSLConnection):
    """A connection to the primary, over TLS."""


def follow_sentinels(pool: redis.ConnectionPool, address: SentinelAddress) -> None:
    """Have the connections of a pool ask for the primary; the pool was made from `address.url`."""
    secure = issubclass(pool.connection_class, redis.SSLConnection)
    pool.connection_class = SentinelSSLConnection if secure else SentinelConnection
    pool.connection_kwargs["discovery"] = Discovery(address, pool.connection_kwargs)
