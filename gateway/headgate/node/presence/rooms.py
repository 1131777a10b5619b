"""The rooms of one namespace in this process, by topic, and the topics of each client. No I/O.

In: clients' requests (`enter`, `watch`, `page`, `leave`), the ends of their connections, the clock, the outcomes of writes, and
messages of other processes. Out: pending writes, and frames for watching pages. A room is open while it has clients or members
of this process, and until Redis has confirmed that it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import count
from secrets import token_hex
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.auth.identity import ANONYMOUS
from headgate.errors import InvalidRequest, LimitReached, PayloadTooLarge
from headgate.redis.presence_entries import TopicWrite
from headgate.settings.settings import Settings

from .room import Room

if TYPE_CHECKING:
    from headgate.transport.outbox import Outbox

# Most changes in the writes of one command.
MAX_IN_ALL = 2000
# After an outage of Redis, every process has written its members again within this.
SETTLE_S = 3.0
MEMBERS_RETRY_S = 10  # of a refused member, as it is unpredictable when another leaves

_encode = msgspec.json.Encoder().encode


class Rooms:
    """See the module. `now_s` is monotonic, `now_ms` since 1970.

    Calls `opened` and `closed` to subscribe to a topic and to end that, and `wanted` when there is something to write or send.
    None of them may wait.

    Attributes:
        open: the rooms by topic. Only this module changes it.
    """

    def __init__(
        self,
        namespace: str,
        settings: Settings,
        *,
        opened: Callable[[str], object] = lambda topic: None,
        closed: Callable[[str], object] = lambda topic: None,
        wanted: Callable[[], object] = lambda: None,
        now_s: Callable[[], float] = monotonic,
        now_ms: Callable[[], int] = lambda: int(time() * 1000),
    ) -> None:
        self._namespace, self._settings = namespace, settings
        self._opened, self._closed, self._wanted = opened, closed, wanted
        self._now_s, self._now_ms = now_s, now_ms
        self.open: dict[str, Room] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._copies, self._numbers = count(1), count(1)
        self._ending: dict[str, None] = {}  # topics with places of broken connections
        self._unwritten: dict[str, None] = {}  # topics with changes to write
        self._unsent: dict[str, None] = {}  # topics with unsent differences or lagging pages

    @cached_property
    def process(self) -> str:
        """The id of this process, drawn at its first use, after any fork."""
        return token_hex(8)

    @property
    def members(self) -> int:
        """How many members this process has, over all topics."""
        return sum(len(each.own) for each in self.open.values())

    def topics_of(self, session: str) -> list[str]:
        """Return the topics of a client."""
        return list(self._topics_of.get(session, {}))

    # -- requests -----------------------------------------------------------------------------------------------------

    def prepare(self, session: str, topic: str) -> Room:
        """Give a client a topic and return its room, which may have to be read first.

        Raises LimitReached: `presence_topics`.
        """
        topics = self._topics_of.setdefault(session, {})
        if topic not in topics and len(topics) >= self._settings.max_presence_topics:
            if not topics:
                del self._topics_of[session]
            raise LimitReached("presence_topics", self._settings.max_presence_topics)
        if topic not in self.open:
            self.open[topic] = Room(self._namespace, topic, self.process, f"{self.process}.{next(self._copies)}")
            self._opened(topic)
        if topic not in topics:
            topics[topic] = None
            self.open[topic].sessions += 1
        return self.open[topic]

    def watch(self, session: str, topic: str, connection: Outbox) -> dict[str, Any]:
        """Let a prepared client watch a topic without being a member; return the first part of the members."""
        room = self.open[topic]
        if (user := room.own.leave(session)) is not None:
            self._own_changed(topic, [user])
        return room.watch(session, connection)

    def enter(self, session: str, topic: str, connection: Outbox, user: str, meta: str | None) -> dict[str, Any]:
        """Make a prepared client a member that watches; return the first part of the members. A refusal changes nothing.

        Raises LimitReached: `presence_members`.
        """
        room = self.open[topic]
        known = room.member(user)
        if known is None and len(room) >= self._settings.max_presence_members:
            self.leave_unless_in(session, topic)
            raise LimitReached("presence_members", self._settings.max_presence_members, MEMBERS_RETRY_S)
        room.own.enter(session, user, meta, self._now_ms(), None if known is None else known.since_ms)
        self._own_changed(topic, [user])
        return room.watch(session, connection)

    def page(self, session: str, topic: str, after: str) -> dict[str, Any]:
        """Return the members after `after`, by name, of a topic that a client watches.

        Raises InvalidRequest if the client does not watch it.
        """
        room = self.open.get(topic)
        if room is None or session not in room.watchers:
            raise InvalidRequest("page: this client does not watch the topic; expected `enter` or `watch` first")
        return room.part(after)

    def leave(self, session: str, topic: str) -> None:
        """End the membership and watching of a client that leaves. Idempotent."""
        topics = self._topics_of.get(session, {})
        if topic in topics:
            del topics[topic]
            self._part_with(session, topic, in_order=True)
        if not topics:
            self._topics_of.pop(session, None)

    def leave_unless_in(self, session: str, topic: str) -> None:
        """Undo `prepare` for a client unless it is a member or a watcher."""
        room = self.open[topic]
        if session not in room.watchers and not room.own.has(session):
            self.leave(session, topic)

    def gone(self, session: str, *, in_order: bool) -> None:
        """Handle the end of a connection. If not `in_order`, it broke and the client may be back soon. Idempotent."""
        for topic in self._topics_of.pop(session, {}):
            self._part_with(session, topic, in_order=in_order)

    # -- the clock ----------------------------------------------------------------------------------------------------

    def expire(self, in_touch_since_s: float | None) -> None:
        """End the expired places of broken connections, once this process has been in touch with all others for SETTLE_S.

        A client may be back at another one. `in_touch_since_s` is the beginning of that time, or None while out of touch.
        """
        now_s = self._now_s()
        if in_touch_since_s is None or now_s < in_touch_since_s + SETTLE_S:
            return
        for topic in list(self._ending):
            own = self.open[topic].own
            users = own.expire(now_s)
            if own.next_end_s() is None:
                del self._ending[topic]
            if users:
                self._own_changed(topic, users)

    def next_end_s(self, in_touch_since_s: float | None) -> float | None:
        """Return when `expire` is next due if nothing else happens."""
        ends = [end_s for topic in self._ending if (end_s := self.open[topic].own.next_end_s()) is not None]
        return None if in_touch_since_s is None or not ends else max(min(ends), in_touch_since_s + SETTLE_S)

    # -- to and from Redis --------------------------------------------------------------------------------------------

    @property
    def has_writes(self) -> bool:
        """Whether there is something to write."""
        return bool(self._unwritten)

    def next_writes(self) -> list[TopicWrite]:
        """Return the writes to send now, perhaps none. `written` must follow."""
        writes: list[TopicWrite] = []
        left = MAX_IN_ALL
        for topic in list(self._unwritten):
            own = self.open[topic].own
            left -= own.pending
            if writes and left < 0:
                break
            if (write := own.next_write(topic, self.process, next(self._numbers))) is not None:
                writes.append(write)
            if not own.pending:
                del self._unwritten[topic]
            self._close_if_unused(topic)
        return writes

    def written(self, writes: Iterable[TopicWrite], *, accepted: bool) -> None:
        """Record the outcome of writes. Failed ones, and those with an unknown outcome, are repeated as a whole."""
        for each in writes:
            self.open[each.topic].own.written(each, accepted=accepted)
            if not accepted:
                self._unwritten[each.topic] = None
            self._close_if_unused(each.topic)

    def write_all(self) -> None:
        """Write everything again, because Redis may have lost it."""
        for topic, room in self.open.items():
            room.own.write_again()
            if room.own.pending:
                self._unwritten[topic] = None

    def take(self, topic: str, message: bytes) -> bool:
        """Apply a message of a topic's channel; return whether its room must be read again."""
        room = self.open.get(topic)
        if room is None:
            return False
        is_doubted = room.take(message)
        self.notify_soon(topic)
        return is_doubted

    def dead(self, process: str) -> None:
        """Remove a dead process and its members."""
        for topic, room in self.open.items():
            room.others.dead(process)
            self.notify_soon(topic)

    # -- to pages -----------------------------------------------------------------------------------------------------

    def notify_soon(self, topic: str) -> None:
        """Report the changes of a room to its pages soon, if there are any."""
        if self.open[topic].has_changes:
            self._unsent[topic] = None
            self._wanted()

    def notify(self) -> Iterator[int]:
        """Report changes to pages, and ask pages that missed one to read again; yield how many, where the loop may run."""
        for topic in list(self._unsent):
            self._unsent.pop(topic, None)  # missing if the room was closed while the loop ran
            room = self.open.get(topic)
            if room is None:
                continue
            yield from room.notify()
            if room.behind and self.open.get(topic) is room:
                self._unsent[topic] = None

    @property
    def any_behind(self) -> bool:
        """Whether a page waits for a notice to read again."""
        return any(self.open[topic].behind for topic in self._unsent)

    # -- private ------------------------------------------------------------------------------------------------------

    def _own_changed(self, topic: str, users: Iterable[str]) -> None:
        self.open[topic].own_changed(users)
        self._unwritten[topic] = self._unsent[topic] = None
        self._wanted()

    def _part_with(self, session: str, topic: str, *, in_order: bool) -> None:
        room = self.open[topic]
        room.sessions -= 1
        room.end_watch(session)
        if in_order:
            if (user := room.own.leave(session)) is not None:
                self._own_changed(topic, [user])
        else:
            room.own.break_off(session, self._now_s())
            if room.own.next_end_s() is not None:
                self._ending[topic] = None
            self._wanted()
        self._close_if_unused(topic)

    def _close_if_unused(self, topic: str) -> None:
        room = self.open[topic]
        if not room.sessions and room.own.is_gone:
            del self.open[topic]
            for each in (self._ending, self._unwritten, self._unsent):
                each.pop(topic, None)
            self._closed(topic)


def read_meta(meta: object, user: str, max_bytes: int) -> str | None:
    """Return the meta of a page as JSON text, or None if it sets none. Anonymous clients share one name and set none.

    Raises:
        PayloadTooLarge: where = `presence`.
        InvalidRequest: it is not JSON.
    """
    if meta is msgspec.UNSET or user == ANONYMOUS:
        return None
    if meta is None:
        return "null"
    try:
        text = _encode(meta)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("meta: expected JSON") from error
    if len(text) > max_bytes:
        raise PayloadTooLarge(len(text), max_bytes, "presence")
    return text.decode()
