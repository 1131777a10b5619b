"""The doctor, which checks everything between a publisher and a page in the order in which an event travels.

In: the addresses of Redis and the public URL, and credentials for a client. Out: results with their sections, as they appear,
and the times of the probe's hops. A part that cannot be checked gives a result, too, and the rest is still checked.

`headgate check` is the first section alone; it only reads from Redis.
"""

from __future__ import annotations

import resource
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue

from headgate.auth.identity import ANONYMOUS
from headgate.consumers.work.groups import QUIET_S, Groups
from headgate.consumers.work.store import GROUP_LIBRARY, read_position
from headgate.errors import HeadgateError
from headgate.events.event import decode_message
from headgate.events.topic import probe_topic
from headgate.redis import loads
from headgate.redis.client import Client, open_client
from headgate.redis.loads import Load
from headgate.runtime.check_result import CheckResult, fault, ok, unknown, warning
from headgate.services.publisher import Publisher
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

from .browser import Browser
from .live_events import LiveEvents
from .public_url import PublicUrl
from .redis_state import check_redis, check_rights

REDIS, CLOCKS, MACHINE, URL, HOPS = "Redis", "clocks", "machine", "public URL", "one event through every hop"


# Slower hops are reported; a page shows events this late.
SLOW_S = 1.0
_POLL_S = 0.02
DATA = {"probe": True, "by": "headgate doctor"}


@dataclass(slots=True)
class Doctor:
    """See the module, and the options of `headgate doctor`. `no_redis` is the reason if `redis_url` is None.

    `hops` holds the hops measured so far, in milliseconds after the publish, or None if the event has not come.
    """

    url: str
    redis_url: str | None
    namespace: str
    token: str | None
    origin: str | None
    idle_s: float
    timeout_s: float
    no_redis: HeadgateError | None = None
    hops: dict[str, float | None] = field(default_factory=dict)

    def examine(self) -> Iterator[tuple[str, CheckResult]]:
        """Yield (section, result). Takes `idle_s` plus a few `timeout_s`."""
        if self.redis_url is None:
            assert self.no_redis is not None
            yield REDIS, _of_error(self.no_redis)
            yield from self._outside(None)
            return
        with closing(open_client(self.redis_url, timeout_s=self.timeout_s)) as client:
            try:
                yield from _in(REDIS, check_redis(client, self.redis_url))
                yield from _in(REDIS, check_rights(client, self.redis_url))
                rows = loads.read(client).loads
                yield from _in(CLOCKS, check_clocks(loads.clock(client)[1], rows))
            except HeadgateError as error:
                yield REDIS, _of_error(error)
                yield from self._outside(None)
                return
            yield from _in(MACHINE, check_machine(rows))
            yield from self._outside(client)

    def _outside(self, client: Client | None) -> Iterator[tuple[str, CheckResult]]:
        """Check from a page's side; with Redis, send the probe too."""
        auth = {} if self.token is None else {"token": self.token}
        outside = PublicUrl(self.url, self.namespace, auth, origin=self.origin, idle_s=self.idle_s, timeout_s=self.timeout_s)
        try:
            yield from _in(URL, outside.check())
            if client is None or self.redis_url is None:
                yield HOPS, unknown("probe", "no event was sent, for want of Redis")
                return
            user = outside.welcome.get("user")
            topic = probe_topic(user if isinstance(user, str) and user != ANONYMOUS else None)
            yield from _in(HOPS, outside.subscribe(topic))
            yield from _in(HOPS, self.send(client, self.redis_url, topic, outside.browsers))
        except HeadgateError as error:
            yield HOPS, _of_error(error)
        finally:
            outside.close()

    def send(self, client: Client, redis_url: str, topic: str, browsers: Mapping[str, Browser]) -> Iterator[CheckResult]:
        """Publish one event, and yield the results. Takes at most `timeout_s` per hop."""
        event_id, arrived = f"headgate-doctor-{secrets.token_hex(8)}", SimpleQueue[float]()
        try:
            listener = LiveEvents(redis_url, self.namespace, topic)
            listener.listen(self.timeout_s)
        except HeadgateError as error:
            yield fault("bus", f"this Redis user cannot listen: {error.message}", "allow it the channels &hg:* and +psubscribe")
            return
        thread = threading.Thread(target=_receive, args=(listener, event_id, arrived), daemon=True)
        thread.start()
        try:
            with Publisher(redis_url, namespace=self.namespace, timeout_s=self.timeout_s) as publisher:
                began_s, at_s = time.monotonic(), None
                receipt = publisher.publish(topic, DATA, id=event_id)
                yield self.hop("publish", time.monotonic(), began_s, "in the log of Redis")
            with suppress(Empty):
                at_s = arrived.get(timeout=self.timeout_s)
            yield self.hop("bus", at_s, began_s, "received on its channel in Redis")
            for name, browser in browsers.items():
                at_s = browser.wait_for(event_id, self.timeout_s)
                yield self.hop(f"gateway → {name}", at_s, began_s, "at the client's socket")
            yield from self._consumers(client, receipt.offset, began_s)
        except HeadgateError as error:
            yield fault("publish", error.message, next(iter(error.lines()[1:]), None))
        finally:
            listener.close()
            thread.join(self.timeout_s)

    def hop(self, name: str, at_s: float | None, began_s: float, where: str) -> CheckResult:
        """Note the time of a hop, and return its result."""
        if at_s is None:
            self.hops[name] = None
            return fault(name, f"the event did not come within {self.timeout_s:g} s")
        ms = (at_s - began_s) * 1000
        self.hops[name] = round(ms, 3)
        text = f"{ms:.1f} ms: {where}"
        if ms < SLOW_S * 1000:
            return ok(name, text)
        fix = "set proxy_buffering off (nginx): an answer may wait in the proxy" if name.endswith("long poll") else None
        return warning(name, text, fix)

    def _consumers(self, client: Client, offset: int, began_s: float) -> Iterator[CheckResult]:
        if GROUP_LIBRARY.loaded_version(client) is None:
            return  # no consumer has ever run here
        for status in Groups(client, self.namespace).statuses():
            name = f"consumer {status.name}"
            if status.idle_s is None or status.idle_s > QUIET_S:
                text = "has never been at work" if status.idle_s is None else f"was last at work {status.idle_s:.0f} s ago"
                yield unknown(
                    name, text, f"start `headgate consume`, or take it out with `headgate consumers remove {status.name}`"
                )
                continue
            give_up_s = time.monotonic() + self.timeout_s
            while (position := read_position(client, self.namespace, status.name)) < offset and time.monotonic() < give_up_s:
                time.sleep(_POLL_S)
            if position < offset:
                self.hops[name] = None
                yield warning(
                    name, f"{offset - position} events behind after {self.timeout_s:g} s", "see its dead letters, lag and log"
                )
            else:
                yield self.hop(name, time.monotonic(), began_s, "taken from the log, and not worked on")


def _receive(listener: LiveEvents, event_id: str, arrived: SimpleQueue[float]) -> None:
    with suppress(HeadgateError):  # closed or broken; the hop reports whether the event arrived
        for topic, message in chain.from_iterable(listener.read()):
            if decode_message(topic, message, HARD_MAX_PAYLOAD_BYTES, 0).id == event_id:
                arrived.put(time.monotonic())
                return


# A gateway for a thousand clients needs twice as many descriptors.
FEW_FILES = 4096
# The kernel caps the backlog that gateways request (transport/http_limits.py) at this setting. Linux has 4,096 since 5.4.
FEW_WAITING = 4096
_FILES_FIX = "set LimitNOFILE=65536 in its unit, or ulimit -n 65536 before it starts"
_PROC = Path("/proc")
# Above the first, histograms across two clocks are meaningless. Above the second, tokens are refused (their leeway is 5 s).
NOTICED_S, REFUSED_S = 0.25, 4.0
_CLOCK_FIX = "run chrony or systemd-timesyncd on both machines"


def check_clocks(skew_s: float, loads: Mapping[str, Load]) -> Iterator[CheckResult]:
    """Yield a result for this machine's clock, which is `skew_s` ahead of Redis', and for each gateway that reports its own."""
    yield _clock("clock of this machine", skew_s)
    for load in sorted(loads.values(), key=lambda load: load.name):
        if load.skew_ms is not None:
            yield _clock(f"clock of gateway {load.name}", load.skew_ms / 1000)


def check_machine(loads: Mapping[str, Load], proc: Path = _PROC) -> Iterator[CheckResult]:
    """Yield results about this machine, and about the descriptors of each gateway."""
    yield _somaxconn(proc)
    gateways = sorted(loads.values(), key=lambda load: load.name)
    for load in gateways:
        if load.max_files:
            yield _files(f"open files of gateway {load.name}", load.max_files, load.sessions)
    if not any(load.name.startswith(f"{socket.gethostname()}/") for load in gateways):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            yield ok("open files", "no limit for a gateway that is started from this shell")
        else:
            yield _files("open files of a gateway that is started from this shell", limit, 0)


def _clock(name: str, skew_s: float) -> CheckResult:
    text = f"{abs(skew_s) * 1000:.0f} ms {'ahead of' if skew_s > 0 else 'behind'} Redis"
    if abs(skew_s) > REFUSED_S:
        return fault(name, f"{text}; tokens are refused as expired, or as not valid yet", _CLOCK_FIX)
    if abs(skew_s) > NOTICED_S:
        return warning(name, f"{text}; times from publish to socket have this in them", _CLOCK_FIX)
    return ok(name, text)


def _files(name: str, limit: int, sessions: int) -> CheckResult:
    text = f"{limit:,} at most" + (f", {sessions:,} of them for clients now" if sessions else "")
    if sessions * 4 > limit * 3:
        return fault(name, text, _FILES_FIX)
    return ok(name, text) if limit >= FEW_FILES else warning(name, text, _FILES_FIX)


def _somaxconn(proc: Path) -> CheckResult:
    name = "net.core.somaxconn"
    try:
        waiting = int((proc / "sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return unknown(name, "not to be read here")
    text = f"{waiting} new connections may wait"
    if waiting < FEW_WAITING:
        text = f"{text}; more that come at once try again after 1 s, 3 s, 7 s"
        return warning(name, text, "sysctl -w net.core.somaxconn=65535")
    return ok(name, text)


def _in(section: str, results: Iterable[CheckResult]) -> Iterator[tuple[str, CheckResult]]:
    return ((section, result) for result in results)


def _of_error(error: HeadgateError) -> CheckResult:
    message, *fix = error.lines()
    return fault("Redis", message, fix[0] if fix else None)
