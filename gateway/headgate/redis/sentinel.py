"""Redis behind Sentinels: connections that ask them where the primary is.

In: a RedisUrl that names Sentinels and the primary. Out: connections that ask for the primary each time that they connect. A
connection whose server is the primary no longer is its owner's to notice.

User, password and database are Redis' own. Options: `sentinel_username`, `sentinel_password`, `sentinel_tls` (yes or no; else as
Redis), and those for TLS to Redis itself (`ssl_ca_certs`, …), which count for TLS to the Sentinels too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.redis_url import Node, RedisUrl

from .bounded import Bounded, Connection, TlsConnection
from .budget import left_s

# A Sentinel that does not answer must not use up the time of the others.
ASK_TIMEOUT_S = 0.5
# Sentinels and primary → the newest failover that this process knows of. All pools of a process follow it.
_newest_failover: dict[tuple[tuple[Node, ...], str], int] = {}


class Discovery:
    """Asks the Sentinels where the primary is, each time anew.

    Args:
        address: of the Sentinels.
    """

    def __init__(self, address: RedisUrl) -> None:
        self.address = address
        own = dict(address.sentinel)
        self._kind = TlsConnection if own.get("tls", address.tls) else Connection
        self._options: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
        if "password" in own:
            self._options |= {"username": own.get("username"), "password": own["password"]}
        if self._kind is TlsConnection:
            self._options |= {name: value for name, value in address.options if name.startswith("ssl_")}

    def primary(self) -> Node:
        """Return host and port of the primary. Waits for a Sentinel to answer, at most ASK_TIMEOUT_S for each.

        Raises:
            redis.ConnectionError: none answers, or none knows a primary of that name that is up.
        """
        place = self.address.hosts, self.address.primary
        known = _newest_failover.get(place, -1)
        found: Mapping[str, Any] | None = None
        for index, sentinel in enumerate(self.address.hosts):
            state = self._asked(sentinel, len(self.address.hosts) - index)
            if state is not None and (found is None or state["config-epoch"] > found["config-epoch"]):
                found = state
            if found is not None and found["config-epoch"] >= known:
                break
        if found is None:
            raise redis.ConnectionError("none of them answers and knows a primary of that name that is up")
        _newest_failover[place] = max(_newest_failover.get(place, -1), found["config-epoch"])  # others may have asked meanwhile
        return str(found["ip"]), int(found["port"])

    def _asked(self, sentinel: Node, to_ask: int) -> Mapping[str, Any] | None:
        """Return what a Sentinel knows of the primary; None when it does not answer, or knows none that is up.

        `to_ask`: how many are left with this one, which share the caller's time.
        """
        left = left_s()
        wait_s = ASK_TIMEOUT_S if left is None else min(ASK_TIMEOUT_S, max(left, 0.001) / to_ask)
        kinds: Any = redis.ConnectionPool  # redis-py does not type its constructor
        host, port = sentinel
        pool = kinds(
            connection_class=self._kind,
            host=host,
            port=port,
            socket_timeout=wait_s,
            socket_connect_timeout=wait_s,
            **self._options,
        )
        client: Any = redis.Redis.from_pool(pool)
        try:
            state: Mapping[str, Any] | None = client.sentinel_masters().get(self.address.primary)
        except (redis.ConnectionError, redis.TimeoutError):
            return None
        finally:
            with suppress(redis.RedisError, OSError):
                client.close()
        is_up = state is not None and state["is_master"] and not state["is_sdown"] and not state["is_odown"]
        return state if is_up else None


class _AsksSentinels(Bounded):
    """Lets a connection ask where the primary is before it connects."""

    host: str
    port: int

    def __init__(self, *, discovery: Discovery, **options: Any) -> None:
        super().__init__(**options)
        self._discovery = discovery

    def _find_server(self) -> None:
        self.host, self.port = self._discovery.primary()


class SentinelConnection(_AsksSentinels, Connection):
    """A connection to the primary."""


class SentinelTlsConnection(_AsksSentinels, TlsConnection):
    """A connection to the primary, over TLS."""
