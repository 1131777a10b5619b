"""The rooms of one namespace in this process, with their members, their watchers, and pending notices. No I/O.

In: clients' requests (`enter`, `watch`, `page`, `leave`), the ends of their connections, the clock, and messages and reads from
Redis. Out: pending writes (`writes`), the rooms to read, and frames for watching pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from secrets import token_hex
from time import monotonic, time
from typing import Any, Protocol

import msgspec

from headgate.auth.identity import ANONYMOUS
from headgate.errors import InvalidRequest, LimitReached, PayloadTooLarge
from headgate.events.wire.frames import Frame, message_frame
from headgate.events.wire.packets import PRESENCE, notice_packet
from headgate.node.presence.write_batches import WriteBatches
from headgate.redis.presence_entries import Member, Written
from headgate.settings.settings import Settings

from .own_members import OwnMembers
from .room import Room

# Members and bytes in one part of a room, because an answer has the size limit of every message.
MAX_PAGE, MAX_PAGE_BYTES = 500, 48 * 1024
MAX_NOTICE_BYTES = 32 * 1024  # text of members in one notice
# Bytes of notices that may wait for a page. The control lane holds four times as many before the gateway closes the connection.
MAX_WAITING_BYTES = 65536
# Pages between two yields to the loop.
_STRIDE = 32
# After an outage of Redis, every process has written its members again within this.
SETTLE_S = 3.0
MEMBERS_RETRY_S = 10  # of a refused member, as it is unpredictable when another leaves

_encode = msgspec.json.Encoder().encode


class Connection(Protocol):
    """The connection of a page, as watchers see it."""

    closed: bool

    @property
    def queue(self) -> Any:
        """The send queue, with `control_bytes` of notices."""

    def offer_control(self, frame: Frame) -> None:
        """Send a notice ahead of events."""


class _OpenRoom:
    """A topic with members or watchers of this process.

    A watcher is a page that receives each difference. Nothing is queued for a lagging one. It receives one reset once its
    connection has room, and then reads the room again.
    """

    __slots__ = ("behind", "copy", "own", "room", "sessions", "watchers")

    def __init__(self, process: str, nth: int) -> None:
        self.own = OwnMembers()
        self.room = Room(process, self.own)
        self.watchers: dict[str, Connection] = {}  # by session
        self.behind: dict[str, None] = {}  # sessions that need a reset
        self.sessions = 0  # clients with the topic
        self.copy = f"{process}.{nth}"  # identifies the versions of this room

    def watch(self, session: str, connection: Connection) -> None:
        """Add a page with the current version, or one that reads the room from its beginning."""
        self.end_watch(session)
        self.watchers[session] = connection

    def end_watch(self, session: str) -> None:
        """Remove a page, if it watches."""
        self.behind.pop(session, None)
        self.watchers.pop(session, None)

    def send(self, frame: Frame) -> Iterator[None]:
        """Send a difference to every page that keeps up; yields where the loop may run."""
        for count, (session, connection) in enumerate(list(self.watchers.items()), 1):
            # Skip a page added during the iteration, because it has read a later version.
            if self.watchers.get(session) is connection and session not in self.behind:
                if _has_room(connection):
                    connection.offer_control(frame)
                else:
                    self.behind[session] = None
            if not count % _STRIDE:
                yield

    def send_reset(self, frame: Frame) -> int:
        """Send a reset to lagging pages with room again; return their number."""
        chosen = [session for session in self.behind if _has_room(self.watchers[session])]
        for session in chosen:
            del self.behind[session]
            self.watchers[session].offer_control(frame)
        return len(chosen)


def _has_room(connection: Connection) -> bool:
    return not connection.closed and connection.queue.control_bytes < MAX_WAITING_BYTES


class Rooms:
    """See the module. `now_s` is monotonic, `now_ms` since 1970.

    Calls `opened` and `closed` to subscribe to a topic and to end that, and `wanted` when there is something to write or send.
    None of them may wait.
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
        self._open: dict[str, _OpenRoom] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._copies = 0
        self._ending: dict[str, None] = {}  # topics with places of broken connections
        self._unsent: dict[str, None] = {}  # topics with unsent differences or lagging pages
        self.writes = WriteBatches(lambda: self.process, self._own)

    @cached_property
    def process(self) -> str:
        """The id of this process, drawn at its first use, after any fork."""
        return token_hex(8)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def topics(self) -> list[str]:
        """The topics with members or watchers of this process."""
        return list(self._open)

    @property
    def members(self) -> int:
        """How many members this process has, over all topics."""
        return sum(len(each.own) for each in self._open.values())

    def room(self, topic: str) -> Room | None:
        """Return this process's copy of a topic, if any."""
        open_room = self._open.get(topic)
        return None if open_room is None else open_room.room

    def copies(self) -> list[tuple[str, Room]]:
        """Return the topics with this process's copies."""
        return [(topic, open_room.room) for topic, open_room in self._open.items()]

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
        if topic not in self._open:
            self._copies += 1
            self._open[topic] = _OpenRoom(self.process, self._copies)
            self._opened(topic)
        if topic not in topics:
            topics[topic] = None
            self._open[topic].sessions += 1
        return self._open[topic].room

    def watch(self, session: str, topic: str, connection: Connection) -> dict[str, Any]:
        """Let a prepared client watch a topic without being a member; return the first part of the members."""
        open_room = self._open[topic]
        if (user := open_room.own.leave(session)) is not None:
            self._own_changed(topic, [user])
        return self._watched(session, topic, connection)

    def enter(self, session: str, topic: str, connection: Connection, user: str, meta: str | None) -> dict[str, Any]:
        """Make a prepared client a member that watches; return the first part of the members.

        Raises LimitReached: `presence_members`.
        """
        open_room = self._open[topic]
        known = open_room.room.member(user)
        if known is None and len(open_room.room) >= self._settings.max_presence_members:
            raise LimitReached("presence_members", self._settings.max_presence_members, MEMBERS_RETRY_S)
        open_room.own.enter(session, user, meta, self._now_ms(), None if known is None else known.since_ms)
        self._own_changed(topic, [user])
        return self._watched(session, topic, connection)

    def page(self, session: str, topic: str, after: str) -> dict[str, Any]:
        """Return the members after `after`, by name, of a topic that a client watches.

        Raises InvalidRequest if the client does not watch it.
        """
        open_room = self._open.get(topic)
        if open_room is None or session not in open_room.watchers:
            raise InvalidRequest("page: this client does not watch the topic; expected `enter` or `watch` first")
        return self._part(topic, after)

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
        open_room = self._open[topic]
        if session not in open_room.watchers and not open_room.own.has(session):
            self.leave(session, topic)

    def gone(self, session: str, *, in_order: bool) -> None:
        """Handle the end of a connection. If not `in_order`, it broke and the client may be back soon. Idempotent."""
        for topic in self._topics_of.pop(session, {}):
            self._part_with(session, topic, in_order=in_order)

    def topics_of(self, session: str) -> list[str]:
        """Return the topics of a client."""
        return list(self._topics_of.get(session, {}))

    # -- the clock ----------------------------------------------------------------------------------------------------

    def expire(self, in_touch_since_s: float | None) -> None:
        """End the expired places of broken connections, once this process has been in touch with all others for SETTLE_S.

        A client may be back at another one. `in_touch_since_s` is the beginning of that time, or None while out of touch.
        """
        now_s = self._now_s()
        if in_touch_since_s is None or now_s < in_touch_since_s + SETTLE_S:
            return
        for topic in list(self._ending):
            open_room = self._open[topic]
            users = open_room.own.expire(now_s)
            if open_room.own.next_end_s() is None:
                self._ending.pop(topic, None)
            if users:
                self._own_changed(topic, users)
                self._close_if_unused(topic)

    def next_end_s(self, in_touch_since_s: float | None) -> float | None:
        """Return when `expire` is next due if nothing else happens."""
        ends = [end_s for topic in self._ending if (end_s := self._open[topic].own.next_end_s()) is not None]
        return None if in_touch_since_s is None or not ends else max(min(ends), in_touch_since_s + SETTLE_S)

    # -- from Redis ---------------------------------------------------------------------------------------------------

    def take(self, topic: str, message: bytes) -> bool:
        """Apply a message of a topic's channel; return whether its room must be read again."""
        room = self.room(topic)
        if room is None:
            return False
        doubtful = room.take(message)
        if room.has_changes or room.has_unmerged:
            self._notify_later(topic)
        return doubtful

    def loaded(self, topic: str, nth: int, last: Mapping[str, Written], in_touch_since_s: float | None) -> bool:
        """End a read of a topic (`Room.loaded`); return whether its room is live or closed. Then call `merge`."""
        room = self.room(topic)
        return room is None or room.loaded(nth, last, self._now_s(), in_touch_since_s)

    def dead(self, process: str) -> None:
        """Remove a dead process and its members."""
        for topic, open_room in self._open.items():
            open_room.room.dead(process)
            if open_room.room.has_unmerged:
                self._notify_later(topic)

    def merge(self, topic: str) -> bool:
        """Merge part of a read (`Room.merge`); return whether more remains."""
        room = self.room(topic)
        if room is None:
            return False
        more = room.merge()
        if room.has_changes:
            self._notify_later(topic)
        return more

    # -- to pages -----------------------------------------------------------------------------------------------------

    def notify(self) -> Iterator[int]:
        """Report changes to pages, and ask pages that missed one to read again; yield how many, where the loop may run."""
        for topic in list(self._unsent):
            self._unsent.pop(topic, None)  # missing if the room was closed while the loop ran
            open_room = self._open.get(topic)
            if open_room is None:
                continue
            if open_room.behind:
                yield open_room.send_reset(message_frame(self._packet({"topic": topic, "reset": True})))
            while open_room.room.merge():
                yield 0
            while open_room.room.has_changes:
                base = open_room.room.version
                came, left = open_room.room.take_changes(MAX_NOTICE_BYTES)
                if open_room.watchers:
                    body = {"topic": topic, "copy": open_room.copy, "base": base, "version": open_room.room.version}
                    for _ in open_room.send(message_frame(self._packet({**body, "members": came, "left": left}))):
                        yield 0
                yield 0
            if open_room.behind and self._open.get(topic) is open_room:
                self._unsent[topic] = None

    @property
    def any_behind(self) -> bool:
        """Whether a page waits for a notice to read again."""
        return any(self._open[topic].behind for topic in self._unsent)

    # -- private ------------------------------------------------------------------------------------------------------

    def _watched(self, session: str, topic: str, connection: Connection) -> dict[str, Any]:
        self._open[topic].watch(session, connection)
        return self._part(topic, None)

    def _part(self, topic: str, after: str | None) -> dict[str, Any]:
        open_room = self._open[topic]
        part: list[Member] = []
        size = 0
        more = False
        for member in open_room.room.after(after):
            size += len(member.user) + len(member.meta or "")
            if part and (len(part) >= MAX_PAGE or size > MAX_PAGE_BYTES):
                more = True
                break
            part.append(member)
        return {
            "topic": topic,
            "copy": open_room.copy,
            "version": open_room.room.version,
            "count": len(open_room.room),
            "members": [list(member) for member in part],
            "next": part[-1].user if more else None,
        }

    def _packet(self, body: Mapping[str, Any]) -> bytes:
        return notice_packet(self._namespace, PRESENCE, body)

    def _own_changed(self, topic: str, users: Iterable[str]) -> None:
        open_room = self._open[topic]
        for user in users:
            open_room.room.own_changed(user)
        self.writes.changed(topic, users)
        self._notify_later(topic)

    def _notify_later(self, topic: str) -> None:
        self._unsent[topic] = None
        self._wanted()

    def _part_with(self, session: str, topic: str, *, in_order: bool) -> None:
        open_room = self._open[topic]
        open_room.sessions -= 1
        open_room.end_watch(session)
        if in_order:
            if (user := open_room.own.leave(session)) is not None:
                self._own_changed(topic, [user])
        else:
            open_room.own.break_off(session, self._now_s())
            if open_room.own.next_end_s() is not None:
                self._ending[topic] = None
            self._wanted()
        self._close_if_unused(topic)

    def _close_if_unused(self, topic: str) -> None:
        open_room = self._open[topic]
        if not open_room.sessions and not len(open_room.own):
            del self._open[topic]
            self._ending.pop(topic, None)
            self._unsent.pop(topic, None)
            self._closed(topic)

    def _own(self, topic: str) -> OwnMembers:
        return self._open[topic].own if topic in self._open else OwnMembers()


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
