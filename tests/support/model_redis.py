"""A Redis in the test's own memory: the log of one namespace, and one subscriber connection. No I/O, no clock.

It follows Redis where the feed depends on it: a publish appends and sends in one step; each connection keeps its order; the
copies of one publish come back to back, one through each source; a log may be trimmed, emptied, replaced, or lose its tail.
"""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headgate.errors import BusUnavailable, NotSerializable
from headgate.event import Event
from headgate.redis.entries import Entry, Head
from headgate.redis.keys import channel, user_channel

NAMESPACE = "n"
LIBRARY = 4
OLD_LIBRARY = 1
TIME_MS = 1_700_000_000_000


@dataclass(slots=True)
class Logged:
    """One entry of the log: its topic, its data, and whether it can be delivered."""

    topic: str
    data: bytes
    good: bool


class ModelRedis:
    """See the module.

    Attributes:
        sent: replies on their way to the subscriber, in order.
        epochs: how many epochs have begun.
        page_events: entries in a page of the log.
        on_sent: called whenever a reply has been put on its way.
    """

    def __init__(self, *, max_events: int = 1_000_000, page_events: int = 100) -> None:
        self.epoch = ""
        self.offset = 0
        self.epochs = 0
        self.library = LIBRARY
        self.max_events, self.page_events = max_events, page_events
        self.log: dict[int, Logged] = {}
        self.sent: deque[list[bytes]] = deque()
        self.connected = False
        self.on_sent: Callable[[], None] = lambda: None
        self._first = 1
        self._channels: set[bytes] = set()
        self._globs: list[bytes] = []
        self._sources_of: dict[bytes, list[bytes]] = {}  # channel → the subscriptions that get its messages

    # -- publishers -----------------------------------------------------------------------------------------------

    def publish(self, topic: str, data: bytes = b"1", *, good: bool = True, live: bool = True) -> int:
        """Append an event and publish it; return its offset. `live=False`: append only, past the function library."""
        if not self.epoch:
            self._begin_epoch()
        self.offset += 1
        self.log[self.offset] = Logged(topic, data, good)
        if len(self.log) > self.max_events:
            self.trim(self.max_events)
        if live:
            message = b"hg1 %b %d %d id%d\n%b" % (self.epoch.encode(), self.offset, TIME_MS, self.offset, data)
            self.send(topic, message)
            words = topic.split(".", 2)
            if self.library > OLD_LIBRARY and words[0] == "users" and len(words) > 1:
                self._send_on(user_channel(NAMESPACE, words[1]).encode(), topic.encode() + b"\n" + message)
        return self.offset

    def send(self, topic: str, message: bytes) -> bool:
        """PUBLISH a raw message on the channel of a topic; return whether the subscriber gets it."""
        return self._send_on(channel(NAMESPACE, topic).encode(), message)

    def _send_on(self, name: bytes, message: bytes) -> bool:
        sources = self._sources_of.get(name)
        if sources is None:
            sources = [b""] if name in self._channels else []
            sources += [glob for glob in self._globs if fnmatch.fnmatchcase(name.decode(), glob.decode())]
            self._sources_of[name] = sources
        for source in sources:
            self.sent.append([b"pmessage", source, name, message] if source else [b"message", name, message])
        self.on_sent()
        return bool(sources)

    # -- the log --------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The oldest offset that is still there; offset + 1 when there is none."""
        while self._first not in self.log and self._first <= self.offset:
            self._first += 1
        return self._first

    def head(self) -> Head:
        """Answer `headgate_head`."""
        return Head(self.epoch, self.offset, self.first if self.epoch else 1, self.library)

    def configure(self) -> Head:
        """Answer `headgate_configure`, after the gateway has replaced an older library."""
        self.library = LIBRARY
        if not self.epoch:
            self._begin_epoch()
        return self.head()

    def page(self, after: int, upto: int, epoch: str | None) -> list[Entry]:
        """Answer XRANGE, if the log is still of this epoch.

        Raises:
            BusUnavailable: it is not.
        """
        if epoch != self.epoch:
            raise BusUnavailable("the log has just been replaced by another one")
        entries: list[Entry] = []
        for offset in range(max(after + 1, self.first), min(upto, self.offset) + 1):
            logged = self.log.get(offset)
            if logged is None:
                continue
            if logged.good:
                event = Event(logged.topic, logged.data, f"id{offset}", TIME_MS, None, offset)
                entries.append(Entry(offset, event))
            else:
                entries.append(Entry(offset, None, NotSerializable("bad")))
            if len(entries) == self.page_events:
                break
        return entries

    def trim(self, keep: int) -> None:
        """Keep the newest so many entries."""
        while len(self.log) > keep:
            del self.log[self.first]

    def delete(self, offset: int) -> None:
        """XDEL one entry, if it is there."""
        self.log.pop(offset, None)

    def flush(self) -> None:
        """FLUSHALL. Connections stay."""
        self.epoch, self.offset, self._first = "", 0, 1
        self.log.clear()

    def lose_tail(self, count: int) -> None:
        """A restart from an older file, or a failover to a replica that was behind: the newest entries are gone."""
        for _ in range(min(count, self.offset)):
            self.log.pop(self.offset, None)
            self.offset -= 1
        self._first = min(self._first, self.offset + 1)
        self.disconnect()

    def _begin_epoch(self) -> None:
        self.epochs += 1
        self.epoch, self.offset, self._first = f"{self.epochs:016x}", 0, 1

    # -- the subscriber connection --------------------------------------------------------------------------------

    def connect(self) -> None:
        """Take a new connection."""
        self.disconnect()
        self.connected = True

    def disconnect(self) -> None:
        """Close the connection; the replies on their way are lost."""
        self.connected = False
        self.sent.clear()
        self._channels.clear()
        self._globs.clear()
        self._sources_of.clear()

    def run(self, command: Iterable[bytes]) -> None:
        """Run one command of the connection."""
        verb, *names = command
        if verb == b"PING":
            self.sent.append([b"pong", names[0]])
            self.on_sent()
            return
        self._sources_of.clear()
        for name in names:
            if verb == b"SUBSCRIBE":
                self._channels.add(name)
            elif verb == b"UNSUBSCRIBE":
                self._channels.discard(name)
            elif verb == b"PSUBSCRIBE" and name not in self._globs:
                self._globs.append(name)
            elif verb == b"PUNSUBSCRIBE" and name in self._globs:
                self._globs.remove(name)
            self.sent.append([verb.lower(), name, b"1"])
        self.on_sent()
