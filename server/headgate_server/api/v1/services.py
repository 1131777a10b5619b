"""Services: what operations work with. The gate, the settings, and one client of Redis, opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time

from headgate.clients import Clients
from headgate.errors import BusUnavailable
from headgate.publisher import Publisher
from headgate.redis.client import Client, open_client
from headgate.settings import Settings
from headgate_server.gate import Gate

# Operators ask seldom; one that waits for a slow Redis must not keep all others out.
MAX_CONNECTIONS = 4
TIMEOUT_S = 2.0


class Services:
    """See the module.

    Args:
        open_redis: opens the client, in place of one for the settings' Redis.
        clients: asks all gateways about their clients, in place of one for the settings' Redis.
        time_s: seconds since 1970.
    """

    def __init__(
        self,
        gate: Gate,
        settings: Settings,
        open_redis: Callable[[], Client] | None = None,
        time_s: Callable[[], float] = time,
        clients: Clients | None = None,
    ) -> None:
        self.gate, self.settings, self.time_s = gate, settings, time_s
        self._open = open_redis or self._of_settings
        self._client: Client | None = None
        self._clients = clients
        self._publisher: Publisher | None = None

    @property
    def clients(self) -> Clients:
        """Asks all gateways about their clients.

        Raises:
            BusUnavailable: no Redis is set.
        """
        if self._clients is None:
            self._clients = Clients(self._url())
        return self._clients

    @property
    def publisher(self) -> Publisher:
        """Says what has become of receipts.

        Raises:
            BusUnavailable: no Redis is set.
        """
        if self._publisher is None:
            self._publisher = Publisher(self._url(), timeout_s=TIMEOUT_S, schema_check="off")
        return self._publisher

    @property
    def redis(self) -> Client:
        """The client.

        Raises:
            BusUnavailable: no Redis is set.
        """
        if self._client is None:
            self._client = self._open()
        return self._client

    @contextmanager
    def lent_redis(self) -> Iterator[Client]:
        """Lend a client that nobody else has, and close it: for what may leave a command behind that Redis has not answered.

        Raises:
            BusUnavailable: no Redis is set.
        """
        client = self._open()
        try:
            yield client
        finally:
            client.close()

    def _of_settings(self) -> Client:
        return open_client(self._url(), timeout_s=TIMEOUT_S, max_connections=MAX_CONNECTIONS)

    def _url(self) -> str:
        if self.settings.redis_url is None:
            raise BusUnavailable("no Redis is set")
        return self.settings.redis_url
