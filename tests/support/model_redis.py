"""A Redis in the test's own memory: the log of one namespace, and one subscriber connection. No I/O, no clock.

It follows Redis where the feed depends on it: a publish appends and sends in one step; each connection keeps its order; the
copies of one publish come back to back, one through each source; a log may be trimmed, emptied or replaced. One process writes an
epoch, as log.lua says, and the data of an earlier moment may come back, in the same process or in another one. A process may also
be reverted with its memory; publishers report the newest event that they know of before they publish.

It may be a Cluster, too. Then events are sent on sharded channels, if the head says so, and the slot of the namespace may go to
another node, and back.
"""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.errors import BusUnavailable, NotSerializable
from headgate.events.event import Event
from headgate.redis.keys import channel, feed_channel, user_channel
from headgate.redis.lineage import Entry, Head, Lineage, read_lineage

NAMESPACE = "n"
LIBRARY = 5
OLD_LIBRARY = 1
TIME_MS = 1_700_000_000_000


@dataclass(slots=True)
class Logged:
    """One entry of the log: its topic, its data, and whether it can be delivered."""

    topic: str
    data: bytes
    good: bool


@dataclass(frozen=True, slots=True)
class Data:
    """The data of one moment, as a file or a replica has them. `before`: those of the write before.

    `process`: what a snapshot of the machine has beside them: the token of the process, its library, and what it has written.
    """

    epoch: str
    offset: int
    first: int
    epochs: Mapping[str, tuple[int, int]]  # epoch → its first offset, and its number on the line
    log: Mapping[int, Logged]
    before: Data | None
    sharded: bool
    process: tuple[str, int, Mapping[str, int]]


# Moments of which there may be a copy somewhere.
COPIES = 60


class ModelRedis:
    """See the module.

    Attributes:
        sent: replies on their way to the subscriber, in order.
        begun: how many epochs have begun.
        parents: each of them → the one before it on its line, and the newest offset that they share.
        page_events: entries in a page of the log.
        copies: the data after each of the newest writes, the newest last.
        server: the token of the process to which the address leads.
        left_behind: the head of the process that the subscriber's connection leads to, if that is another one.
        sharded: whether the head says that events are published on sharded channels.
        is_older_there: whether an older gateway listens, so that events of users are published on the channels of topics too.
        on_sent: called whenever a reply has been put on its way.
    """

    def __init__(self, *, max_events: int = 1_000_000, page_events: int = 100) -> None:
        self.epoch = ""
        self.offset = 0
        self.begun = 0
        self.parents: dict[str, tuple[str, int]] = {}
        self.library = LIBRARY
        self.max_events, self.page_events = max_events, page_events
        self.log: dict[int, Logged] = {}
        self.sent: deque[list[bytes]] = deque()
        self.connected = False
        self.on_sent: Callable[[], None] = lambda: None
        self.left_behind: Head | None = None
        self.sharded = self.is_older_there = False
        self._node = self._linked_node = 0  # the node that owns the slot, and the one to which the connection leads
        self._former: tuple[int, str, dict[str, int]] | None = None  # the earlier node of the slot, its token, its writes
        self._processes = 0
        self.server = ""
        self._written: dict[str, int] = {}  # the newest offset that this process has written, by epoch
        self._receipts: dict[str, int] = {}  # the newest offset that publishers know of, by epoch
        self._begin_process()
        self._first = 1
        self._epochs: dict[str, tuple[int, int]] = {}
        self.copies: deque[Data] = deque([Data("", 0, 1, {}, {}, None, False, (self.server, LIBRARY, {}))], maxlen=COPIES)
        self._channels: set[bytes] = set()
        self._shards: set[bytes] = set()
        self._globs: list[bytes] = []
        self._sources_of: dict[bytes, list[bytes]] = {}  # channel → the subscriptions that get its messages

    # -- publishers -----------------------------------------------------------------------------------------------

    def publish(self, topic: str, data: bytes = b"1", *, good: bool = True, live: bool = True) -> int:
        """Append an event and publish it; return its offset. `live=False`: append only, past the function library."""
        self._end_reverted(self.epoch, self._receipts.get(self.epoch, 0))
        self._own_epoch()
        self.offset += 1
        self.log[self.offset] = Logged(topic, data, good)
        if len(self.log) > self.max_events:
            self._trim(self.max_events)
        self._wrote()
        self._receipts[self.epoch] = max(self.offset, self._receipts.get(self.epoch, 0))
        if live:
            message = b"hg1 %b %d %d id%d\n%b" % (self.epoch.encode(), self.offset, TIME_MS, self.offset, data)
            sharded = self.publishes_sharded
            send = self._send_on_shard if sharded else self._send_on
            words = topic.split(".", 2)
            within = topic.encode() + b"\n" + message
            is_of_user = self.library > OLD_LIBRARY and words[0] == "users" and len(words) > 1
            if not is_of_user or self.is_older_there:
                send(channel(NAMESPACE, topic).encode(), message)
            if is_of_user:
                send(user_channel(NAMESPACE, words[1]).encode(), within)
            if sharded:
                send(feed_channel(NAMESPACE).encode(), within)
        return self.offset

    @property
    def publishes_sharded(self) -> bool:
        """Whether the library publishes on sharded channels."""
        return self.sharded and self.library >= LIBRARY

    def send(self, topic: str, message: bytes) -> bool:
        """PUBLISH a raw message on the channel of a topic; return whether the subscriber gets it."""
        return self._send_on(channel(NAMESPACE, topic).encode(), message)

    def _send_on_shard(self, name: bytes, message: bytes) -> bool:
        if self.left_behind is not None or name not in self._shards:
            return False
        self.sent.append([b"smessage", name, message])
        self.on_sent()
        return True

    def _send_on(self, name: bytes, message: bytes) -> bool:
        if self.left_behind is not None:
            return False
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
        """The oldest offset still there; offset + 1 when there is none."""
        while self._first not in self.log and self._first <= self.offset:
            self._first += 1
        return self._first

    def head(self, *known: str | int) -> Head:
        for epoch, offset in zip(known[::2], known[1::2], strict=False):
            self._end_reverted(str(epoch), int(offset))
        asked = self.library >= LIBRARY and self.epoch not in ("", *known[:1])
        lineage = self._lineage() if asked else None
        return Head(self.epoch, self.offset, self.first if self.epoch else 1, self.library, lineage, self._token())

    def link_head(self) -> Head:
        """Answer the same on the subscriber's connection.

        Raises:
            BusUnavailable: the slot is on another node.
        """
        if self.left_behind is None:
            self._check_slot()
        return self.left_behind or self.head(self.epoch)

    def _check_slot(self) -> None:
        if self._linked_node != self._node:
            raise BusUnavailable("MOVED")

    def configure(self, *, sharded: bool = False) -> Head:
        """Answer `headgate_configure`, after the gateway has replaced an older library."""
        if self.library < LIBRARY:
            self.library = LIBRARY
            self._begin_process()
        self._own_epoch()
        self.sharded = sharded
        self._wrote()
        return Head(self.epoch, self.offset, self.first, self.library, self._lineage(), self._token())

    def _token(self) -> str:
        return self.server if self.library >= LIBRARY else ""

    def _lineage(self) -> Lineage:
        return read_lineage(self.epoch, [(epoch, *rest) for epoch, rest in self._epochs.items()])

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
        self._trim(keep)
        self._save()

    def _trim(self, keep: int) -> None:
        while len(self.log) > keep:
            del self.log[self.first]

    def delete(self, offset: int) -> None:
        self.log.pop(offset, None)
        self._save()

    def flush(self) -> None:
        self.epoch, self.offset, self._first, self._epochs, self.sharded = "", 0, 1, {}, False
        self.log.clear()
        self._save()

    # -- its data -------------------------------------------------------------------------------------------------

    def restart(self, data: Data | None = None) -> None:
        """Another process goes on with these data, or with the present ones, as after a restart, or a failover to a replica."""
        self.disconnect()
        self._begin_process()
        if data is not None:
            self.put_back(data)

    def move(self, data: Data) -> None:
        """The address leads to another process from now on. The one before lives on, and keeps the subscriber's connection."""
        if self.connected and self.left_behind is None:
            lineage = self._lineage() if self.epoch and self.library >= LIBRARY else None
            self.left_behind = Head(self.epoch, self.offset, self.first, self.library, lineage, self._token())
        self._begin_process()
        self.put_back(data)

    def put_back(self, data: Data) -> None:
        """Other data replace those that were there; the process and its connections stay."""
        self.epoch, self.offset, self._first = data.epoch, data.offset, data.first
        self._epochs, self.log, self.sharded = dict(data.epochs), dict(data.log), data.sharded
        self.copies.append(data)

    def revert(self, data: Data) -> None:
        """Put the machine back to a snapshot from after a write, with the data, and the memory of the process."""
        self.server, self.library, written = data.process
        self._written = dict(written)
        self.put_back(data)

    def ago(self, writes: int) -> Data:
        """Return the data of so many writes ago."""
        data = self.copies[-1]
        for _ in range(writes):
            data = data.before or data
        return data

    def move_slot(self, *, back: bool = False) -> None:
        """The slot goes to another node, with all data; `back`: to the earlier one. Sharded subscriptions end."""
        gone = (self._node, self.server, self._written)
        if back and self._former is not None:
            self._node, self.server, self._written = self._former
        else:
            self._node = max(self._node, self._former[0] if self._former else 0) + 1
            self._begin_process()
        self._former = gone
        self.sent.extend([b"sunsubscribe", name, b"0"] for name in sorted(self._shards))
        self._shards.clear()
        self.on_sent()

    def lose_tail(self, events: int) -> None:
        """A restart from an older file, or a failover to a replica that lagged, so the newest events are gone."""
        data = self.copies[-1]
        while data.before is not None and data.offset > self.offset - events:
            data = data.before
        self.restart(data)

    def forget(self) -> None:
        """The library is loaded again, and the process does not know its writes any more, nor its token."""
        self._begin_process()

    def downgrade(self) -> None:
        """An older library replaces ours, which knows nothing of processes, and goes on in any epoch."""
        self.library = OLD_LIBRARY
        self._begin_process()

    def _begin_process(self) -> None:
        self._processes += 1
        self.server = f"s{self._processes}"
        self._written = {}

    def _save(self) -> None:
        before = self.copies[-1]
        process = (self.server, self.library, dict(self._written))
        epochs, log = dict(self._epochs), dict(self.log)
        self.copies.append(Data(self.epoch, self.offset, self.first, epochs, log, before, self.sharded, process))

    def _wrote(self) -> None:
        self._written[self.epoch] = self.offset
        self._save()

    def _end_reverted(self, epoch: str, offset: int) -> None:
        """Forget an epoch of this process if a client has had an event of it that the process does not remember."""
        if self.library >= LIBRARY and offset > self._written.get(epoch, offset):
            del self._written[epoch]

    def _own_epoch(self) -> None:
        """Begin an epoch, unless this process has written all of the one that there is."""
        before = self.epoch
        if before and (self.library < LIBRARY or self._written.get(before) == self.offset):
            return
        self._written.pop(before, None)
        self.begun += 1
        self.epoch = f"{self.begun:016x}"
        self.parents[self.epoch] = (before, self.offset)
        if not before:
            self.offset, self._first, self._epochs = 0, 1, {}
            number = 0
        else:
            number = self._epochs.setdefault(before, (1, 0))[1] + 1
        if before or self.library >= LIBRARY:
            self._epochs[self.epoch] = (self.offset + 1, number)

    # -- the subscriber connection --------------------------------------------------------------------------------

    def connect(self) -> None:
        self.disconnect()
        self.connected = True
        self._linked_node = self._node

    def disconnect(self) -> None:
        self.connected = False
        self.left_behind = None
        self.sent.clear()
        self._channels.clear()
        self._shards.clear()
        self._globs.clear()
        self._sources_of.clear()

    def run(self, command: Iterable[bytes]) -> None:
        """Run one command of the connection.

        Raises:
            BusUnavailable: the slot is on another node.
        """
        verb, *names = command
        if verb == b"PING":
            self.sent.append([b"pong", names[0]])
            self.on_sent()
            return
        self._sources_of.clear()
        if verb in (b"SSUBSCRIBE", b"SUNSUBSCRIBE") and self.left_behind is None:
            self._check_slot()
        for name in names:
            if verb == b"SSUBSCRIBE":
                self._shards.add(name)
            elif verb == b"SUNSUBSCRIBE":
                self._shards.discard(name)
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
