"""Reading a namespace's log: its head, and pages of events. Writing is log.lua's business alone.

In: a command client from redis/client.py. Out: `Head`, and pages of `Entry`: an event, or the error of one that cannot be
delivered. Offsets are contiguous, so whatever is not in a page between its ends is known to be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidEvent, InvalidRequest, PayloadTooLarge
from headgate.events.event import ID_COUNTS_S, Event, check_event_id, check_json
from headgate.events.sender import read_sender
from headgate.events.topic import check_topic
from headgate.events.traceparent import read_traceparent

from .client import Client, call, call_all, call_at, call_many, check_primary, database_number, drop_idle
from .connections import Command
from .entries import Entry as Entry
from .entries import Extent as Extent
from .entries import Head as Head
from .functions import VERSION, call_function, ensure_loaded
from .instances import count_elsewhere
from .keys import head_key, log_key
from .lineage import Lineage, read_lineage

# A page: enough that a round trip is cheap per event, small enough to hold (100 × 64 KiB at the most usual limit).
PAGE_EVENTS = 100
# An entry as Redis answers it: `<offset>-0`, and its fields, name after value.
RawEntry: TypeAlias = list[Any]
# Of a log, where nothing else is known; log.lua has the same.
DEFAULT_MAX_BYTES = 256 * 1024 * 1024
LEAST_MAX_BYTES = 1024 * 1024
# The time that a client takes to come back after a lost connection: a log should hold more.
RECONNECT_S = 5.0
# The word of those who find events of users on the channels of users alone; log.lua has the same.
KNOWS_USERS = "users"
# What an entry counts beside its topic and payload; log.lua has the same.
ENTRY_BYTES = 128
_EXTENT_FIELDS = ("sum", "first_sum", "first_time", "offset", "max_events", "max_bytes", "max_age_ms", "ids_most", "ids_hold")


class EventLog:
    """One namespace's log. Methods wait for Redis; give every greenlet an EventLog with a client of its own.

    Args:
        namespace, client, max_payload_bytes: of which log, over which connection, with events of which size.
        reached: says the epoch and the newest offset that are known to be in the log, for `page`.
    """

    def __init__(
        self,
        namespace: str,
        client: Client,
        max_payload_bytes: int,
        reached: Callable[[], tuple[str | None, int]] | None = None,
    ) -> None:
        self._namespace, self._key, self._head_key = namespace, log_key(namespace), head_key(namespace)
        self._client = client
        self.database = database_number(client)
        self.max_payload_bytes = max_payload_bytes
        self._reached = reached
        self._measured: tuple[bytes | None, ...] = ()  # what `extent` found last
        self._event_bytes = 0.0

    def drop_idle(self) -> None:
        """Read over a new connection next time: there has been a fault, and the old one may be dead without a sign of it."""
        drop_idle(self._client)

    def consumers_elsewhere(self) -> int:
        """Return how many instances of consumers are on another Redis server (instances.py). Raises as `redis.client.call`."""
        return count_elsewhere(self._client, self._namespace)

    def check_primary(self) -> None:
        """Ask where the address leads, if it is time. Raises as `redis.client.check_primary`."""
        check_primary(self._client)

    def configure(self, max_events: int, max_age_s: int, max_bytes: int | None = None, *, sharded: bool = False) -> Head:
        """Store the retention in Redis, where every publisher's appends obey it, and make sure the log has an epoch.

        `max_bytes` of None leaves that limit as it is. `sharded`: events are to be published on sharded channels. If another
        Redis process than this one has written the last event, a new epoch begins. The head comes with its lineage. An older
        function library is replaced by ours, where this user may.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        limits = (max_events, max_age_s * 1000, self.max_payload_bytes)
        head = self._configured(limits, max_bytes, sharded)
        if head.library < VERSION:
            with suppress(BusRefused):
                ensure_loaded(self._client, self._key)
                return self._configured(limits, max_bytes, sharded)
        return head

    def _configured(self, limits: tuple[int, ...], max_bytes: int | None, sharded: bool) -> Head:
        command: Command = ("FCALL", "headgate_configure", 1, self._key, *limits)
        more: Command = ("" if max_bytes is None else max_bytes, "sharded" if sharded else "", self.database, KNOWS_USERS)
        # A library before version 14 knows of no users, and one before 13 of no databases.
        *newer, oldest = more, more[:3], more[:2] if sharded else () if max_bytes is None else more[:1]
        for words in newer:
            with suppress(InvalidRequest):
                return read_head(call_function(self._client, *command, *words))
        return read_head(call_function(self._client, *command, *oldest))

    def share_of_memory(self, namespaces: int) -> int:
        """Return the bytes that each of so many logs may take, together half of Redis' `maxmemory`.

        Without a `maxmemory`, or the right to ask for it, that is DEFAULT_MAX_BYTES.

        Raises:
            BusUnavailable: as `redis.client.call`.
        """
        try:
            found = call_at(self._client, self._key, "INFO", "memory")
        except BusRefused:
            return DEFAULT_MAX_BYTES
        maxmemory = int(found.get("maxmemory", 0)) if isinstance(found, dict) else 0
        return max(maxmemory // 2 // namespaces, LEAST_MAX_BYTES) if maxmemory else DEFAULT_MAX_BYTES

    def tick(self, *told: str | int) -> tuple[str, int]:
        """Say which time was told before, and how long ago; return the epoch and time that are told now ("": there is none).

        Ages in the log are right while somebody does this every few seconds (time_watch.py has the words).

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; BusRefused also when Redis is full, and `trim` helps.
        """
        epoch, clock, _ = call_function(self._client, "FCALL", "headgate_tick", 1, self._key, *told)
        return epoch.decode(), clock

    def trim(self, *told: str | int) -> tuple[str, int, int]:
        """Do as `tick`, in a Redis that is full as well; trim some of what the log holds too long, and return how many events.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        epoch, clock, trimmed = call_function(self._client, "FCALL", "headgate_trim", 1, self._key, *told)
        return epoch.decode(), clock, trimmed

    def extent(self) -> Extent:
        """Return how much the log holds and may hold. Two round trips; one if nothing has changed.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        found = tuple(call(self._client, "HMGET", self._head_key, *_EXTENT_FIELDS))
        numbers = (int(each) if each and each.isdigit() else 0 for each in found)
        sum_, below, first_ms, offset, max_events, max_bytes, max_age_ms, most_ids, hold_ms = numbers
        if found != self._measured:
            ends: list[Command] = [("XRANGE", self._key, begin, "+", "COUNT", 1) for begin in ("-", f"{offset}-0")]
            self._event_bytes = _mean_bytes([entry for reply in call_all(self._client, ends) for entry in reply])
            self._measured = found
        hold_s = hold_ms / 1000 if most_ids else ID_COUNTS_S
        # There are two hashes of ids.
        return Extent(
            max(0, sum_ - below), first_ms, offset, self._event_bytes,
            max_events, max_age_ms // 1000, max_bytes, hold_s, 2 * most_ids,
        )  # fmt: skip

    def head(self, *known: str | int) -> Head:
        """Return where the log stands; with its lineage, if that is another epoch than a known one.

        `known` is that epoch, perhaps with the newest offset in it that this process knows, and further epochs with theirs. Never
        pass what a client claims. A Redis that does not remember such an event was reverted with its memory, and its next append
        begins another epoch.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        return read_head(call_function(self._client, *self.head_command(), *known, *([KNOWS_USERS] if known else [])))

    def head_command(self) -> tuple[str | int, ...]:
        """Return the command that asks for the head, for a connection of another kind; `read_head` reads its reply."""
        return ("FCALL_RO", "headgate_head", 1, self._key)

    def page(self, after: int, upto: int | None, limit: int = PAGE_EVENTS, *, epoch: str | None = None) -> list[Entry]:
        """Return the entries that `raw_page` returns, each read: an event, or the error that keeps it from being delivered."""
        return [self.read(raw) for raw in self.raw_page(after, upto, limit, epoch=epoch)]

    def read(self, raw: RawEntry) -> Entry:
        """Return what an entry of `raw_page` is."""
        place, fields = raw
        by_name = dict(zip(fields[::2], fields[1::2], strict=True))
        return read_entry(int(place.partition(b"-")[0]), by_name, self.max_payload_bytes)

    def raw_page(self, after: int, upto: int | None, limit: int, *, epoch: str | None = None) -> list[RawEntry]:
        """Return the entries with `after` < offset ≤ `upto` (None: all) that the log still holds, at most `limit`, in order.

        Args:
            after, upto, limit: as above.
            epoch: the log that they must be from, where offsets of another would be taken for its own.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`; BusUnavailable also when the log is not `epoch` any more, or lacks
                events of it that are known.
        """
        last = "+" if upto is None else f"{upto}-0"
        known_epoch, known = (None, 0) if self._reached is None else self._reached()
        commands: list[Command] = [
            ("XRANGE", self._key, f"{after + 1}-0", last, "COUNT", limit),
            ("HGET", self._head_key, "epoch"),
        ]
        if known_epoch is not None:  # before the range: the server has at least as much when it reads that
            commands.insert(0, ("HMGET", self._head_key, "offset"))
        *newest, found, now = replies = call_many(self._client, commands, shaped=False)
        for reply in replies:
            if isinstance(reply, HeadgateError):
                raise reply
        # Epochs do not come back: if it is this one after the read, it was during the read.
        if epoch is not None and now != epoch.encode():
            raise BusUnavailable("the log has just been replaced by another one")
        # The old primary of a failover may live on as a replica, far behind. A connection that has stayed there shows it.
        if epoch is not None and epoch == known_epoch and int(newest[0][0] or 0) < known:
            self.drop_idle()
            raise BusUnavailable("the Redis server lacks events that this gateway has had")
        entries: list[RawEntry] = found
        return entries

    def topics(self, after: int, upto: int) -> list[tuple[int, str, int]]:
        """Return (offset, topic, time) of the entries with `after` < offset ≤ `upto` that the log still holds, in order.

        As they are, deliverable or not; a time that is none is 0.

        Raises:
            BusUnavailable, BusRefused: as `redis.client.call`.
        """
        found = call(self._client, "XRANGE", self._key, f"{after + 1}-0", f"{upto}-0")
        return [
            (
                int(entry_id.partition(b"-")[0]),
                fields.get(b"topic", b"").decode("ascii", "replace"),
                time_or_zero(fields.get(b"time", b"")),
            )
            for entry_id, fields in found
        ]


def _mean_bytes(ends: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> float:
    """Return the bytes of an event on average, by the oldest and the newest entry, which say how many came up to them."""
    counted = [
        (int(place.partition(b"-")[0]), int(fields[b"sum"])) for place, fields in ends if fields.get(b"sum", b"").isdigit()
    ]
    if len(counted) < 2:
        return 0.0
    (first, first_sum), (last, last_sum) = counted
    if last > first:
        return (last_sum - first_sum) / (last - first)
    fields = ends[0][1]
    return float(len(fields.get(b"topic", b"")) + len(fields.get(b"data", b"")) + ENTRY_BYTES)


def read_entry(offset: int, fields: Mapping[bytes, bytes], max_payload_bytes: int) -> Entry:
    """Return the entry that a log holds at `offset` as `fields`: the event, or the error that keeps it from being delivered."""
    try:
        data = fields.get(b"data", b"")
        if len(data) > max_payload_bytes:
            raise PayloadTooLarge(len(data), max_payload_bytes, "bus")
        check_json(data)
        topic = check_topic(fields.get(b"topic", b"").decode("ascii", "replace"))
        event_id = check_event_id(fields.get(b"id", b"").decode("ascii", "replace"))
        time_ms = _time(fields.get(b"time", b""))
        parent = fields.get(b"traceparent")
        traceparent = None if parent is None else read_traceparent(parent.decode("ascii", "replace"), "log")
        by = read_sender(fields.get(b"publisher", b"").decode("ascii", "replace"))
    except HeadgateError as error:
        return Entry(offset, None, error)
    return Entry(offset, Event(topic, data, event_id, time_ms, None, offset, traceparent, by))


def _time(text: bytes) -> int:
    if not text.isdigit() or len(text) > 16:
        raise InvalidEvent("time", "expected milliseconds since 1970")
    return int(text)


def time_or_zero(text: bytes) -> int:
    """Return the time of an entry in milliseconds; 0: it is none."""
    try:
        return _time(text)
    except InvalidEvent:
        return 0


def read_head(reply: list[Any]) -> Head:
    """Return the head that a reply of the function library says."""
    epoch, offset, first, _, *more = reply
    # Version 1 does not say so.
    library = int(more[0]) if more else 1
    name = epoch.decode() if isinstance(epoch, bytes) else str(epoch)
    lineage = _lineage(name, more[1]) if len(more) > 1 and more[1] is not None else None
    server, replica = (more[2].decode(), bool(more[3])) if len(more) > 3 else ("", False)
    # A library before version 13 publishes on the channels of database 0, whichever it is.
    database = (None if more[4] == b"-" else int(more[4])) if len(more) > 4 else 0
    return Head(name, int(offset), int(first), library, lineage, server, replica, database)


def _lineage(epoch: str, flat: Sequence[bytes]) -> Lineage:
    found = []
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        first, _, number = value.partition(b" ")
        if first.isdigit() and number.isdigit():  # else it was put there by hand, and counts as not there
            found.append((name.decode("ascii", "replace"), int(first), int(number)))
    return read_lineage(epoch, found)
