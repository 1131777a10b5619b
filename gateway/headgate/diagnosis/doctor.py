"""The doctor, which checks everything between a publisher and a page in the order in which an event travels.

In: the addresses of Redis and the public URL, and credentials for a client. Out: findings with their sections, as they appear,
and the times of the probe's hops. A part that cannot be checked is a finding, and the rest is still checked.

`headgate check` is the first section alone; it only reads from Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headgate.auth.identity import ANONYMOUS
from headgate.errors import HeadgateError
from headgate.events.topic import probe_topic
from headgate.redis import loads
from headgate.redis.client import Client, open_client
from headgate.redis.loads import Load
from headgate.runtime.check_result import CheckResult, fault, unknown

from .hops import Hop, Probe
from .machine import check_clocks, check_machine
from .public_url import PublicUrl
from .redis_state import check_redis, check_rights

REDIS, CLOCKS, MACHINE, URL, HOPS = "Redis", "clocks", "machine", "public URL", "one event through every hop"


@dataclass(slots=True)
class Doctor:
    """See the module, and the options of `headgate doctor`. `no_redis` says why `redis_url` is None.

    `hops` are complete when `examine` has ended.
    """

    url: str
    redis_url: str | None
    namespace: str
    token: str | None
    origin: str | None
    idle_s: float
    timeout_s: float
    no_redis: HeadgateError | None = None
    hops: list[Hop] = field(default_factory=list)

    def examine(self) -> Iterator[tuple[str, CheckResult]]:
        """Yield (section, finding). Takes `idle_s` plus a few `timeout_s`."""
        if self.redis_url is None:
            assert self.no_redis is not None
            yield REDIS, _of_error(self.no_redis)
            yield from self._outside(None)
            return
        client = open_client(self.redis_url, timeout_s=self.timeout_s)
        try:
            yield from self._with_redis(client, self.redis_url)
        finally:
            client.close()

    # -- private ------------------------------------------------------------------------------------------------------

    def _with_redis(self, client: Client, redis_url: str) -> Iterator[tuple[str, CheckResult]]:
        rows: Mapping[str, Load] = {}
        try:
            for result in check_redis(client, redis_url):
                yield REDIS, result
            for result in check_rights(client, redis_url):
                yield REDIS, result
            rows = loads.read(client).loads
            for result in check_clocks(loads.clock(client)[1], rows):
                yield CLOCKS, result
        except HeadgateError as error:
            yield REDIS, _of_error(error)
            yield from self._outside(None)
            return
        for result in check_machine(rows):
            yield MACHINE, result
        yield from self._outside(client)

    def _outside(self, client: Client | None) -> Iterator[tuple[str, CheckResult]]:
        """Check from a page's side; with Redis, send the probe too."""
        auth = {} if self.token is None else {"token": self.token}
        outside = PublicUrl(self.url, self.namespace, auth, origin=self.origin, idle_s=self.idle_s, timeout_s=self.timeout_s)
        try:
            for result in outside.check():
                yield URL, result
            if client is None or self.redis_url is None:
                yield HOPS, unknown("probe", "no event was sent, for want of Redis")
                return
            user = outside.welcome.get("user")
            topic = probe_topic(user if isinstance(user, str) and user != ANONYMOUS else None)
            for result in outside.subscribe(topic):
                yield HOPS, result
            probe = Probe(self.redis_url, client, self.namespace, topic, self.timeout_s)
            for result in probe.send(outside.browsers):
                yield HOPS, result
            self.hops = probe.hops
        except HeadgateError as error:
            yield HOPS, _of_error(error)
        finally:
            outside.close()


def _of_error(error: HeadgateError) -> CheckResult:
    message, *fix = error.lines()
    return fault("Redis", message, fix[0] if fix else None)
