"""Reads a namespace's log: its head, and pages of events. Only log.lua writes it.

In: a command client from redis/client.py. Out: `Head`, and pages of `Entry`: an event, or the error that prevents its delivery.
Offsets are contiguous, so a missing offset inside a page is gone.
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
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

from .client import Client, call, call_all, call_at, call_many, check_primary, database_number, drop_idle, place_of
from .connections import Command
from .faults import reading
from .functions import VERSION, call_function, ensure_loaded
from .keys import head_key, log_key
from .lineage import Entry, Extent, Head, Lineage, read_lineage
from .registry import count_elsewhere

# A page is large enough for cheap round trips per event, and small enough to hold (100 × 64 KiB at the default limit).
PAGE_EVENTS = 100
# An entry as Redis returns it: `<offset>-0`, and its fields, names and values by turns.
RawEntry: TypeAlias = list[Any]
# Whether a reader wants the events of a topic. None: of every topic.
Wanted: TypeAlias = Callable[[str], bool] | None
# The limit of a log by default, as in log.lua.
DEFAULT_MAX_BYTES = 256 * 1024 * 1024
LEAST_MAX_BYTES = 1024 * 1024
# The policy of a Redis that refuses writes when it is full.
NO_EVICTION = "noeviction"
# The time in which a client reconnects after a lost connection. A log should hold more.
RECONNECT_S = 5.0
# The time over which `events_per_s` measures.
RATE_WINDOW_S = 10.0
# The argument of processes that read users' events only on the users' channels, as in log.lua.
KNOWS_USERS = "users"
# The size of an entry without its topic and payload, as in log.lua.
ENTRY_BYTES = 128
_EXTENT_FIELDS = ("sum", "first_sum", "first_time", "offset", "max_events", "max_bytes", "max_age_ms", "ids_most", "ids_hold")


class EventLog:
    """One namespace's log. Methods wait for Redis. Give each greenlet its own EventLog and client.

    Args:
        namespace, client, max_payload_bytes: the log, the connection to use, and the largest payload.
        reached: returns the epoch and the newest offset known to be in the log, for `page`.

    Attributes:
        eviction_policy: by which a full Redis drops keys of ours; "" if it does not, or is not known to.

    Raises (all methods): BusUnavailable, BusRefused: as `redis.client.call`.
    """

    def __init__(
        self,
        namespace: str,
        client: Client,
        max_payload_bytes: int = HARD_MAX_PAYLOAD_BYTES,
        reached: Callable[[], tuple[str | None, int]] | None = None,
    ) -> None:
        self._namespace, self._key, self._head_key = namespace, log_key(namespace), head_key(namespace)
        self._client = client
        self.database = database_number(client)
        self.max_payload_bytes = max_payload_bytes
        self.eviction_policy = ""
        self._reached = reached

    def drop_idle(self) -> None:
        """Use a new connection for the next read, because after a fault the old one may be dead without a sign."""
        drop_idle(self._client)

    def consumers_elsewhere(self) -> int:
        """Return how many instances of consumers are at another Redis server (instances.py). Raises as `redis.client.call`."""
        return count_elsewhere(self._client, self._namespace)

    def check_primary(self) -> None:
        """Ask where the address leads, if the last answer is too old. Raises as `redis.client.check_primary`."""
        check_primary(self._client)

    def configure(self, max_events: int, max_age_s: int, max_bytes: int | None = None, *, sharded: bool = False) -> Head:
        """Store the retention in Redis, where it applies to the appends of every publisher, and make sure that the log has an
        epoch.

        A `max_bytes` of None keeps the present limit. `sharded`: publish events on sharded channels. If another Redis process
        wrote the last event, a new epoch begins. The head has its lineage. Replaces an older function library if this user may.
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
        with suppress(InvalidRequest):
            return self.read_head(call_function(self._client, *command, *more))
        # The library of 0.2 takes neither database nor users.
        oldest = more[:2] if sharded else () if max_bytes is None else more[:1]
        return self.read_head(call_function(self._client, *command, *oldest))

    def share_of_memory(self, namespaces: int) -> int:
        """Return the bytes that each of that many logs may take, together half of Redis' `maxmemory`.

        Also reads `eviction_policy`. Returns DEFAULT_MAX_BYTES without a `maxmemory`, or without the right to read it. Raises
        BusUnavailable: as `redis.client.call`.
        """
        try:
            info = call_at(self._client, self._key, "INFO", "memory")
        except BusRefused:
            return DEFAULT_MAX_BYTES
        if not isinstance(info, dict):
            return DEFAULT_MAX_BYTES
        policy, maxmemory = str(info.get("maxmemory_policy", NO_EVICTION)), int(info.get("maxmemory", 0))
        self.eviction_policy = "" if policy == NO_EVICTION else policy
        return max(maxmemory // 2 // namespaces, LEAST_MAX_BYTES) if maxmemory else DEFAULT_MAX_BYTES

    def tick(self, *last_reading: str | int) -> tuple[str, int]:
        """Report the previous reading of the log's clock and its age. Return the epoch ("": there is none) and the new reading.

        Ages in the log are right while a process calls this every few seconds (time_watch.py has the arguments). Raises as
        `redis.client.call`; BusRefused also if Redis is full; call `trim` then.
        """
        epoch, clock, _ = call_function(self._client, "FCALL", "headgate_tick", 1, self._key, *last_reading)
        return epoch.decode(), clock

    def trim(self, *last_reading: str | int) -> tuple[str, int, int]:
        """Do what `tick` does, in a full Redis too. Trim some of the expired events, and return how many."""
        epoch, clock, trimmed = call_function(self._client, "FCALL", "headgate_trim", 1, self._key, *last_reading)
        return epoch.decode(), clock, trimmed

    def extent(self) -> Extent:
        """Return the size of the log and its limits. Two round trips."""
        fields = call(self._client, "HMGET", self._head_key, *_EXTENT_FIELDS)
        numbers = (int(each) if each and each.isdigit() else 0 for each in fields)
        sum_, below, first_ms, offset, max_events, max_bytes, max_age_ms, most_ids, hold_ms = numbers
        ends: list[Command] = [("XRANGE", self._key, begin, "+", "COUNT", 1) for begin in ("-", f"{offset}-0")]
        event_bytes = _mean_bytes([entry for reply in call_all(self._client, ends) for entry in reply])
        hold_s = hold_ms / 1000 if most_ids else ID_COUNTS_S
        age_s, most_id_bytes = max_age_ms // 1000, 2 * most_ids  # there are two hashes of ids
        return Extent(max(0, sum_ - below), first_ms, offset, event_bytes, max_events, age_s, max_bytes, hold_s, most_id_bytes)

    def head(self, *known: str | int) -> Head:
        """Return the head of the log, with its lineage if its epoch differs from the known one.

        `known` is that epoch, optionally with the newest offset in it that this process knows, and further epochs with theirs.
        Never pass values that a client claims. If Redis does not remember such an event, its memory was reverted, and its next
        append begins another epoch.
        """
        return self.read_head(call_function(self._client, *self.head_command(), *known, *([KNOWS_USERS] if known else [])))

    def head_command(self) -> tuple[str | int, ...]:
        """Return the command that asks for the head, for a connection of another kind. `read_head` reads the reply."""
        return ("FCALL_RO", "headgate_head", 1, self._key)

    def read_head(self, reply: list[Any]) -> Head:
        """Decode the head in a reply of the function library. Raises BusRefused: it has what Headgate does not write."""
        with reading(place_of(self._client, self._key), self._head_key):
            return decode_head(reply)

    def page(
        self, after: int, upto: int | None, limit: int = PAGE_EVENTS, *, epoch: str | None = None, wanted: Wanted = None
    ) -> list[Entry]:
        """Return the entries of `raw_page` decoded: an event, or the error that prevents its delivery.

        With `wanted`, an entry of another topic has neither, which takes half of the time.
        """
        return [self.read(raw, wanted) for raw in self.raw_page(after, upto, limit, epoch=epoch)]

    def read(self, raw: RawEntry, wanted: Wanted = None) -> Entry:
        """Decode an entry of `raw_page`."""
        place, fields = raw
        by_name = dict(zip(fields[::2], fields[1::2], strict=True))
        return read_entry(int(place.partition(b"-")[0]), by_name, self.max_payload_bytes, wanted)

    def raw_page(self, after: int, upto: int | None, limit: int, *, epoch: str | None = None) -> list[RawEntry]:
        """Return the entries with `after` < offset ≤ `upto` (None: all) that the log still holds, at most `limit`, in order.

        Raises BusUnavailable, BusRefused: as `redis.client.call`; BusUnavailable also if the log has another epoch by now, or
        lacks known events of `epoch`.

        Args:
            epoch: the epoch that the log must have, if the caller would mistake the offsets of another one.
        """
        last = "+" if upto is None else f"{upto}-0"
        known_epoch, known = (None, 0) if self._reached is None else self._reached()
        commands: list[Command] = [
            ("XRANGE", self._key, f"{after + 1}-0", last, "COUNT", limit),
            ("HGET", self._head_key, "epoch"),
        ]
        if known_epoch is not None:  # before the range, so that the server has at least as much by then
            commands.insert(0, ("HMGET", self._head_key, "offset"))
        *newest, raw, now = replies = call_many(self._client, commands, shaped=False)
        for reply in replies:
            if isinstance(reply, HeadgateError):
                raise reply
        # Epochs never return. If the log has this one after the read, it had it during the read.
        if epoch is not None and now != epoch.encode():
            raise BusUnavailable("the log has just been replaced by another one")
        # After a failover the old primary may continue as a replica that lags far. A connection that stayed there reads too
        # little.
        if epoch is not None and epoch == known_epoch and int(newest[0][0] or 0) < known:
            self.drop_idle()
            raise BusUnavailable("the Redis server lacks events that this process knows")
        entries: list[RawEntry] = raw
        return entries

    def topics(self, after: int, upto: int) -> list[tuple[int, str, int]]:
        """Return (offset, topic, time) of the entries with `after` < offset ≤ `upto` that the log still holds, in order.

        Includes entries that cannot be delivered. An invalid time is 0.
        """
        entries = call(self._client, "XRANGE", self._key, f"{after + 1}-0", f"{upto}-0")
        return [
            (int(entry_id.partition(b"-")[0]), fields.get(b"topic", b"").decode("ascii", "replace"), time_in(fields))
            for entry_id, fields in entries
        ]

    # -- for people and their programs ----------------------------------------------------------------------------

    def end(self) -> tuple[str, int]:
        """Return the epoch and the newest offset (0: nothing was ever published), by a plain command."""
        epoch, offset = call(self._client, "HMGET", self._head_key, "epoch", "offset")
        with reading(place_of(self._client, self._key), self._head_key):
            return (epoch or b"").decode(), int(offset or 0)

    def first_since(self, time_ms: int, *, by_clock: bool = False) -> int:
        """Return the offset of the first kept event at or after a time; newest offset + 1 if all are older.

        `by_clock` compares by the log's own clock. Neither time decreases within an epoch, so a bisection finds it in about
        twenty round trips at most.
        """
        low, high = self._oldest(), self.end()[1] + 1
        while low < high:
            middle = (low + high) // 2
            entries = call(self._client, "XRANGE", self._key, f"{middle}-0", "+", "COUNT", 1)
            if entries and (clock_in if by_clock else time_in)(entries[0][1]) < time_ms:
                low = int(entries[0][0].partition(b"-")[0]) + 1
            else:
                high = middle
        return low

    def clock_ms(self, wall_ms: int) -> int:
        """Return the time by the log's own clock (clock.lua) at a time of Redis, both in milliseconds since 1970."""
        clock, shift = call(self._client, "HMGET", self._head_key, "clock", "shift")
        with reading(place_of(self._client, self._key), self._head_key):
            return max(int(clock or 0), wall_ms - int(shift or 0))

    def events_per_s(self, clock_ms: int) -> float:
        """Return the recent rate of events: over the last RATE_WINDOW_S, or over the log's whole time if it is shorter."""
        begin_ms = clock_ms - int(RATE_WINDOW_S * 1000)
        first = self.first_since(begin_ms, by_clock=True)
        entries = call(self._client, "XRANGE", self._key, f"{first}-0", "+", "COUNT", 1)
        if not entries:
            return 0.0
        is_cut = first > 1 and first == self._oldest()
        since_ms = clock_in(entries[0][1]) if is_cut else begin_ms
        return (self.end()[1] - first + 1) / max((clock_ms - since_ms) / 1000, 0.001)

    def _oldest(self) -> int:
        entries = call(self._client, "XRANGE", self._key, "-", "+", "COUNT", 1)
        return int(entries[0][0].partition(b"-")[0]) if entries else self.end()[1] + 1


def _mean_bytes(ends: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> float:
    """Return the average bytes of an event, from the running sums in the oldest and the newest entry."""
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


def read_entry(offset: int, fields: Mapping[bytes, bytes], max_payload_bytes: int, wanted: Wanted = None) -> Entry:
    """Decode the `fields` that a log holds at `offset`: the event, or the error that prevents its delivery."""
    try:
        topic = check_topic(fields.get(b"topic", b"").decode("ascii", "replace"))
        if wanted is not None and not wanted(topic):
            return Entry(offset, None)
        data = fields.get(b"data", b"")
        if len(data) > max_payload_bytes:
            raise PayloadTooLarge(len(data), max_payload_bytes, "bus")
        check_json(data)
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
    """Return the time of an entry in milliseconds; 0 if it is invalid."""
    try:
        return _time(text)
    except InvalidEvent:
        return 0


def time_in(fields: Mapping[bytes, bytes]) -> int:
    """Return the time of an entry; 0 if it is invalid."""
    return time_or_zero(fields.get(b"time", b""))


def clock_in(fields: Mapping[bytes, bytes]) -> int:
    """Return the time of an entry by the log's own clock; 0 if it is invalid."""
    return time_or_zero(fields.get(b"clock") or fields.get(b"time", b""))


def decode_head(reply: list[Any]) -> Head:
    """Decode the head in a reply of the function library."""
    epoch, offset, first, _, library, epochs, server, replica, *more = reply
    name = epoch.decode() if isinstance(epoch, bytes) else str(epoch)
    lineage = None if epochs is None else _lineage(name, epochs)
    # The library of 0.2 publishes on the channels of database 0 in every database.
    database = (None if more[0] == b"-" else int(more[0])) if more else 0
    return Head(name, int(offset), int(first), int(library), lineage, server.decode(), bool(replica), database)


def _lineage(epoch: str, flat: Sequence[bytes]) -> Lineage:
    epochs = []
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        first, _, number = value.partition(b" ")
        if first.isdigit() and number.isdigit():  # ignores values written by hand
            epochs.append((name.decode("ascii", "replace"), int(first), int(number)))
    return read_lineage(epoch, epochs)
