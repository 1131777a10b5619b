"""The gate, the settings, the consumers of each namespace, and connections to Redis, opened on first use, for the operations.

The console borrows a client for each request instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import cached_property

from headgate.consumers.work.groups import Groups, GroupStatus
from headgate.errors import BusUnavailable
from headgate.flask.extension import Headgate
from headgate.redis.client import Client, open_client
from headgate.redis.registry import read_groups
from headgate.services.clients import Clients
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from headgate_server.api.shares import MAX_SEARCHES, Shares

# Connections of reads, and of acts, so that one caller of a slow Redis does not block all others.
MAX_CONNECTIONS = 4
TIMEOUT_S = 2.0


# How often the names of all keys are scanned.
SCAN_EVERY_S = 60.0
MAX_CONSUMERS = 100


class Services:
    """See the module. What needs a Redis raises BusUnavailable if none is set.

    Args:
        open_redis: opens the client, instead of one for the settings' Redis.
        clients: asks all gateways about their clients, instead of one for the settings' Redis.
        time_s: seconds since 1970; now_s: monotonic.
    """

    def __init__(
        self,
        gate: Headgate,
        settings: Settings,
        open_redis: Callable[[], Client] | None = None,
        time_s: Callable[[], float] = time.time,
        clients: Clients | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gate, self.settings, self.time_s, self._now_s = gate, settings, time_s, now_s
        self.searches = Shares("searches", 1, MAX_SEARCHES)
        self._known_consumers: dict[str, tuple[float, set[str]]] = {}
        self._open = open_redis or self._of_settings
        self._clients = clients

    @cached_property
    def acts(self) -> Services:
        """The same with separate connections, so readers that hold all of theirs cannot delay an operator's revocation."""
        return Services(self.gate, self.settings, self._open, self.time_s, self._clients, self._now_s)

    @cached_property
    def redis(self) -> Client:
        return self._open()

    @cached_property
    def clients(self) -> Clients:
        """Asks all gateways about their clients."""
        return self._clients or Clients(self._url())

    @cached_property
    def publisher(self) -> Publisher:
        """Returns the state of receipts."""
        return Publisher(self._url(), timeout_s=TIMEOUT_S, schema_check="off")

    def consumers(self, client: Client, namespace: str) -> list[GroupStatus]:
        """Return the status of each consumer of a namespace, by name, at most MAX_CONSUMERS. Waits for Redis.

        Redis lists the groups that read the log at once. Only a scan of the names of all keys, slow in a large Redis and so
        rare, finds a consumer with only dead letters. Raises BusUnavailable, BusRefused: as `redis.client.call`.
        """
        groups = Groups(client, namespace)
        scanned_s, names = self._known_consumers.get(namespace, (-SCAN_EVERY_S, set()))
        if self._now_s() - scanned_s >= SCAN_EVERY_S:
            names = {status.name for status in groups.statuses()}
            self._known_consumers[namespace] = (self._now_s(), names)
        wanted = sorted(names | read_groups(client, namespace))[:MAX_CONSUMERS]
        shown = [groups.status_of(name) for name in wanted]
        return [status for status in shown if status is not None]

    def lent_redis(self) -> closing[Client]:
        """Lend a client for exclusive use, and close it, as for commands that may end before Redis has answered."""
        return closing(self._open())

    def _of_settings(self) -> Client:
        return open_client(self._url(), timeout_s=TIMEOUT_S, max_connections=MAX_CONNECTIONS)

    def _url(self) -> str:
        if self.settings.redis_url is None:
            raise BusUnavailable("no Redis is set")
        return self.settings.redis_url
