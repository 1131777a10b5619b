"""The rooms of one namespace in this process: who is in them, who watches them, what there is to tell. No I/O.

In: requests of clients (`enter`, `watch`, `page`, `leave`), the ends of their connections, the clock; messages and readings from
Redis for each room. Out: what is to be written (`telling`), which rooms are to be read, frames for the pages that watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic, time
from typing import Any

import msgspec

from headgate.auth.identity import ANONYMOUS
from headgate.errors import InvalidRequest, LimitReached, PayloadTooLarge
from headgate.presence.write_batches import Telling
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import PRESENCE, notice_packet
from headgate.redis.presence_entries import Entry, Member, Written

from .own_members import OwnMembers
from .room import Room
from .watchers import Connection, Watchers

# Members in one part of a room, and how much text of theirs there may be: an answer is a message like any other.
MAX_PAGE, MAX_PAGE_BYTES = 500, 48 * 1024
# Text of members in one notice.
MAX_NOTICE_BYTES = 32 * 1024
# After a time without Redis every process has told its members again.
SETTLE_S = 3.0
# A member may leave at any time: a refused one asks again at this pace.
MEMBERS_RETRY_S = 10

_encode = msgspec.json.Encoder().encode


class Limits(msgspec.Struct, frozen=True):
    """The limits of presence: topics of one client, members of one topic, bytes of one meta."""

    max_topics: int
    max_members: int
    max_meta_bytes: int


class _Open:
    """A topic with members or watchers of this process."""

    __slots__ = ("copy", "own", "room", "sessions", "watchers")

    def __init__(self, process: str, nth: int) -> None:
        self.room, self.own, self.watchers = Room(process), OwnMembers(), Watchers()
        self.sessions = 0  # clients that have the topic
        self.copy = f"{process}.{nth}"  # a name for the versions of this room


class Rooms:
    """See the module. `now_s` is monotonic, `now_ms` since 1970.

    Args:
        process: the id of this process.
        opened, closed: a topic is to be listened to, or no longer. Must not wait.
        wanted: there is something to write or to tell. Must not wait.
    """

    def __init__(
        self,
        namespace: str,
        process: str,
        limits: Limits,
        *,
        opened: Callable[[str], object] = lambda topic: None,
        closed: Callable[[str], object] = lambda topic: None,
        wanted: Callable[[], object] = lambda: None,
        now_s: Callable[[], float] = monotonic,
        now_ms: Callable[[], int] = lambda: int(time() * 1000),
    ) -> None:
        self._namespace, self._process, self._limits = namespace, process, limits
        self._opened, self._closed, self._wanted = opened, closed, wanted
        self._now_s, self._now_ms = now_s, now_ms
        self._open: dict[str, _Open] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        self._copies = 0
        self._ending: dict[str, None] = {}  # topics with places of broken connections
        self._untold: dict[str, None] = {}  # topics with differences to tell, or pages that are behind
        self.telling = Telling(process, self._entry, self._users)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def topics(self) -> list[str]:
        """Return the topics with members or watchers of this process."""
        return list(self._open)

    @property
    def members(self) -> int:
        """Return how many members this process has, over all topics."""
        return sum(len(each.own) for each in self._open.values())

    def room(self, topic: str) -> Room | None:
        """Return this process's copy of a topic, if there is one."""
        found = self._open.get(topic)
        return None if found is None else found.room

    # -- requests -----------------------------------------------------------------------------------------------------

    def prepare(self, session: str, topic: str) -> Room:
        """Let a client have a topic, and return its room, which may have to be read first.

        Raises:
            LimitReached: `presence_topics`.
        """
        topics = self._topics_of.setdefault(session, {})
        if topic not in topics and len(topics) >= self._limits.max_topics:
            if not topics:
                del self._topics_of[session]
            raise LimitReached("presence_topics", self._limits.max_topics)
        if topic not in self._open:
            self._copies += 1
            self._open[topic] = _Open(self._process, self._copies)
            self._opened(topic)
        if topic not in topics:
            topics[topic] = None
            self._open[topic].sessions += 1
        return self._open[topic].room

    def watch(self, session: str, topic: str, connection: Connection) -> dict[str, Any]:
        """Let a client that has been prepared watch a topic, and be no member; return the first part of its members."""
        found = self._open[topic]
        user = found.own.leave(session)
        if user is not None:
            self._own_changed(topic, [user])
        return self._watched(session, topic, connection)

    def enter(self, session: str, topic: str, connection: Connection, user: str, meta: str | None) -> dict[str, Any]:
        """Let a client that has been prepared be a member and watch; return the first part of the members.

        Raises:
            LimitReached: `presence_members`.
        """
        found = self._open[topic]
        known = found.room.member(user)
        if known is None and len(found.room) >= self._limits.max_members:
            raise LimitReached("presence_members", self._limits.max_members, MEMBERS_RETRY_S)
        found.own.enter(session, user, meta, self._now_ms(), None if known is None else known.since_ms)
        self._own_changed(topic, [user])
        return self._watched(session, topic, connection)

    def page(self, session: str, topic: str, after: str) -> dict[str, Any]:
        """Return the members behind `after`, by name, of a topic that a client watches.

        Raises:
            InvalidRequest: it does not.
        """
        found = self._open.get(topic)
        if found is None or session not in found.watchers:
            raise InvalidRequest("page: this client does not watch the topic; expected `enter` or `watch` first")
        return self._part(topic, after)

    def leave(self, session: str, topic: str) -> None:
        """A client leaves a topic in good order, and watches it no longer. Idempotent."""
        topics = self._topics_of.get(session, {})
        if topic in topics:
            del topics[topic]
            self._part_with(session, topic, in_order=True)
        if not topics:
            self._topics_of.pop(session, None)

    def leave_unless_in(self, session: str, topic: str) -> None:
        """Take a `prepare` back, of a client that was neither a member nor a watcher before."""
        found = self._open[topic]
        if session not in found.watchers and not found.own.has(session):
            self.leave(session, topic)

    def gone(self, session: str, *, in_order: bool) -> None:
        """A client's connection has ended: in good order, or it broke, and may be back soon. Idempotent."""
        for topic in self._topics_of.pop(session, {}):
            self._part_with(session, topic, in_order=in_order)

    def topics_of(self, session: str) -> list[str]:
        """Return the topics of a client."""
        return list(self._topics_of.get(session, {}))

    # -- the clock ----------------------------------------------------------------------------------------------------

    def expire(self, in_touch_since_s: float | None) -> None:
        """End the places of broken connections whose time is over.

        Not before this process has heard of all others for SETTLE_S, without a break: a client may be back at another one.

        Args:
            in_touch_since_s: since when it has; None: it does not.
        """
        now_s = self._now_s()
        if in_touch_since_s is None or now_s < in_touch_since_s + SETTLE_S:
            return
        for topic in list(self._ending):
            found = self._open[topic]
            users = found.own.expire(now_s)
            if found.own.next_end_s() is None:
                self._ending.pop(topic, None)
            if users:
                self._own_changed(topic, users)
                self._close_if_unused(topic)

    def next_end_s(self, in_touch_since_s: float | None) -> float | None:
        """Return when `expire` has something to do, if nothing else comes."""
        ends = [end_s for topic in self._ending if (end_s := self._open[topic].own.next_end_s()) is not None]
        return None if in_touch_since_s is None or not ends else max(min(ends), in_touch_since_s + SETTLE_S)

    # -- from Redis ---------------------------------------------------------------------------------------------------

    def take(self, topic: str, message: bytes) -> bool:
        """Take a message of a topic's channel; return whether its room must be read again."""
        found = self._open.get(topic)
        if found is None:
            return False
        doubtful = found.room.take(message)
        if found.room.has_changes or found.room.has_unmerged:
            self._untold[topic] = None
            self._wanted()
        return doubtful

    def loaded(self, topic: str, nth: int, last: Mapping[str, Written]) -> bool:
        """A reading of a topic is at its end (`Room.loaded`); return whether its room is live, or closed. Then `merge` it."""
        found = self._open.get(topic)
        return found is None or found.room.loaded(nth, last, self._now_s())

    def dead(self, process: str) -> None:
        """A process is dead, and its members are gone with it."""
        for topic, found in self._open.items():
            found.room.dead(process)
            if found.room.has_unmerged:
                self._untold[topic] = None
                self._wanted()

    def merge(self, topic: str) -> bool:
        """Merge some of what was read (`Room.merge`); return whether there is more."""
        found = self._open.get(topic)
        if found is None:
            return False
        more = found.room.merge()
        if found.room.has_changes:
            self._untold[topic] = None
            self._wanted()
        return more

    # -- to pages -----------------------------------------------------------------------------------------------------

    def tell(self) -> Iterator[int]:
        """Tell pages what has changed, and those that have missed something to read anew. Let the loop run wherever this yields.

        Yields how many pages were told to read anew.
        """
        for topic in list(self._untold):
            del self._untold[topic]
            found = self._open.get(topic)
            if found is None:
                continue
            if found.watchers.any_behind:
                yield found.watchers.tell_reset(message_frame(self._packet({"topic": topic, "reset": True})))
            while found.room.merge():
                yield 0
            while found.room.has_changes:
                base = found.room.version
                came, left = found.room.take_changes(MAX_NOTICE_BYTES)
                if len(found.watchers):
                    body = {"topic": topic, "copy": found.copy, "base": base, "version": found.room.version}
                    for _ in found.watchers.tell(message_frame(self._packet({**body, "members": came, "left": left}))):
                        yield 0
                yield 0
            if found.watchers.any_behind and self._open.get(topic) is found:
                self._untold[topic] = None

    @property
    def any_behind(self) -> bool:
        """Whether some page waits to be told that it must read anew."""
        return any(self._open[topic].watchers.any_behind for topic in self._untold)

    # -- private ------------------------------------------------------------------------------------------------------

    def _watched(self, session: str, topic: str, connection: Connection) -> dict[str, Any]:
        self._open[topic].watchers.add(session, connection)
        return self._part(topic, None)

    def _part(self, topic: str, after: str | None) -> dict[str, Any]:
        found = self._open[topic]
        part: list[Member] = []
        size = 0
        more = False
        for member in found.room.after(after):
            size += len(member.user) + len(member.meta or "")
            if part and (len(part) >= MAX_PAGE or size > MAX_PAGE_BYTES):
                more = True
                break
            part.append(member)
        return {
            "topic": topic,
            "copy": found.copy,
            "version": found.room.version,
            "count": len(found.room),
            "members": [list(member) for member in part],
            "next": part[-1].user if more else None,
        }

    def _packet(self, body: Mapping[str, Any]) -> bytes:
        return notice_packet(self._namespace, PRESENCE, body)

    def _own_changed(self, topic: str, users: Iterable[str]) -> None:
        found = self._open[topic]
        for user in users:
            found.room.own_changed(user, found.own.entry(user))
        self.telling.changed(topic, users)
        self._untold[topic] = None
        self._wanted()

    def _part_with(self, session: str, topic: str, *, in_order: bool) -> None:
        found = self._open[topic]
        found.sessions -= 1
        found.watchers.remove(session)
        if in_order:
            user = found.own.leave(session)
            if user is not None:
                self._own_changed(topic, [user])
        else:
            found.own.break_off(session, self._now_s())
            if found.own.next_end_s() is not None:
                self._ending[topic] = None
            self._wanted()
        self._close_if_unused(topic)

    def _close_if_unused(self, topic: str) -> None:
        found = self._open[topic]
        if not found.sessions and not len(found.own):
            del self._open[topic]
            self._ending.pop(topic, None)
            self._untold.pop(topic, None)
            self._closed(topic)

    def _entry(self, topic: str, user: str) -> Entry | None:
        found = self._open.get(topic)
        return None if found is None else found.own.entry(user)

    def _users(self, topic: str) -> list[str]:
        found = self._open.get(topic)
        return [] if found is None else found.own.users()


def read_meta(meta: object, user: str, max_bytes: int) -> str | None:
    """Return what a page says about its user, as JSON text; None: nothing, as all of the anonymous, who have one name.

    Raises:
        PayloadTooLarge: where = `presence`.
        InvalidRequest: it is no JSON.
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
