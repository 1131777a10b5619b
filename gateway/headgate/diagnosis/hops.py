"""The probe: one event through every hop, with the time of each.

In: a publisher's Redis, and the connected clients of public_url.py. Out: a `Hop` for each part of the way: from this process to
Redis' log, over Redis' channel to a listener here, to each client, and to each consumer's position in the log. All times use
the clock of this process.

The event's topic is `probe_topic` (events/topic.py), one of the user's own topics if there is a user. It stays in the log as
any other event does, and consumers ignore it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headgate.consumers.work.groups import QUIET_S, Groups
from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.errors import HeadgateError
from headgate.events.event import decode_message
from headgate.redis.client import Client, call
from headgate.redis.keys import group_key
from headgate.runtime.check_result import CheckResult, fault, ok, unknown, warning
from headgate.services.publisher import Publisher
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

from .browser import Browser
from .live_events import LiveEvents

# Slower hops are reported; a page shows events this late.
SLOW_S = 1.0
_POLL_S = 0.02
DATA = {"probe": True, "by": "headgate doctor"}


@dataclass(frozen=True, slots=True)
class Hop:
    """A part of the way, in milliseconds since the publish; None if the event has not come so far."""

    name: str
    ms: float | None


class Probe:
    """See the module. `hops` holds those measured so far."""

    def __init__(self, redis_url: str, client: Client, namespace: str, topic: str, within_s: float) -> None:
        self._redis_url, self._client, self._namespace, self._topic = redis_url, client, namespace, topic
        self._within_s = within_s
        self._id = f"headgate-doctor-{secrets.token_hex(8)}"
        self._arrived_s: float | None = None
        self._arrived = threading.Event()
        self.hops: list[Hop] = []

    def send(self, browsers: Mapping[str, Browser]) -> Iterator[CheckResult]:
        """Publish, and yield the results. Takes at most `within_s` per hop."""
        try:
            listener = LiveEvents(self._redis_url, self._namespace, self._topic)
            listener.listen(self._within_s)
        except HeadgateError as error:
            yield fault("bus", f"this Redis user cannot listen: {error.message}", "allow it the channels &hg:* and +psubscribe")
            return
        thread = threading.Thread(target=self._receive, args=(listener,), daemon=True)
        thread.start()
        try:
            with Publisher(self._redis_url, namespace=self._namespace, timeout_s=self._within_s) as publisher:
                began_s = time.monotonic()
                receipt = publisher.publish(self._topic, DATA, id=self._id)
                yield self._hop("publish", time.monotonic(), began_s, "in the log of Redis")
            self._arrived.wait(self._within_s)
            yield self._hop("bus", self._arrived_s, began_s, "heard on its channel in Redis")
            for name, browser in browsers.items():
                arrived = browser.wait_for(self._id, self._within_s)
                at_s = None if arrived is None else arrived.at_s
                yield self._hop(f"gateway → {name}", at_s, began_s, "at the client's socket")
            yield from self._consumers(receipt.offset, began_s)
        except HeadgateError as error:
            yield fault("publish", error.message, next(iter(error.lines()[1:]), None))
        finally:
            listener.close()
            thread.join(self._within_s)

    # -- private ------------------------------------------------------------------------------------------------------

    def _receive(self, listener: LiveEvents) -> None:
        with suppress(HeadgateError):  # closed or broken; the event has arrived by then, or not
            for topic, message in listener.read():
                if decode_message(topic, message, HARD_MAX_PAYLOAD_BYTES, 0).id == self._id:
                    self._arrived_s = time.monotonic()
                    self._arrived.set()
                    return

    def _hop(self, name: str, at_s: float | None, began_s: float, where: str) -> CheckResult:
        if at_s is None:
            self.hops.append(Hop(name, None))
            return fault(name, f"the event did not come within {self._within_s:g} s")
        ms = (at_s - began_s) * 1000
        self.hops.append(Hop(name, round(ms, 3)))
        text = f"{ms:.1f} ms: {where}"
        if ms < SLOW_S * 1000:
            return ok(name, text)
        fix = "set proxy_buffering off (nginx): an answer may wait in the proxy" if name.endswith("long poll") else None
        return warning(name, text, fix)

    def _consumers(self, offset: int, began_s: float) -> Iterator[CheckResult]:
        if GROUP_LIBRARY.loaded_version(self._client) is None:
            return  # no consumer has ever run here
        for status in Groups(self._client, self._namespace).statuses():
            name = f"consumer {status.name}"
            if status.idle_s is None or status.idle_s > QUIET_S:
                text = "has never been at work" if status.idle_s is None else f"was last at work {status.idle_s:.0f} s ago"
                yield unknown(
                    name, text, f"start `headgate consume`, or take it out with `headgate consumers remove {status.name}`"
                )
                continue
            key, give_up_s = group_key(self._namespace, status.name), time.monotonic() + self._within_s
            while (position := self._position(key)) < offset and time.monotonic() < give_up_s:
                time.sleep(_POLL_S)
            if position < offset:
                self.hops.append(Hop(name, None))
                yield warning(
                    name, f"{offset - position} events behind after {self._within_s:g} s", "see its dead letters, lag and log"
                )
            else:
                yield self._hop(name, time.monotonic(), began_s, "taken from the log, and not worked on")

    def _position(self, key: str) -> int:
        [position] = call(self._client, "HMGET", key, "position")
        return int(position) if position is not None and position.isdigit() else 0
