"""A room is one topic with members or watchers of this process. It has all members by name, and the watching pages. No I/O.

In: changes of this process's own members, and the members at other processes (own_members.py, other_members.py). Out: the
members in parts, and to each watcher the difference between two versions: users who came, changed or left. A doubt about the
others has no effect on pages, only the difference after the read has.

Changed entries of a user are merged into a member at once if few wait, otherwise later by `merge` in batches. The time does not
matter, because merging reads the current entries.

Nothing is queued for a page that is too slow. It receives one reset once its connection has room, and then reads the room again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from headgate.events.wire.frames import Frame, message_frame
from headgate.events.wire.packets import PRESENCE, notice_packet
from headgate.redis.presence_entries import Member, merge

from .other_members import OtherMembers
from .own_members import OwnMembers

if TYPE_CHECKING:
    from headgate.transport.outbox import Outbox

MERGED_AT_ONCE = 200  # users, in about 2 ms, before the loop may run
# Members and bytes in one part of a room, because an answer has the size limit of every message.
MAX_PAGE, MAX_PAGE_BYTES = 500, 48 * 1024
MAX_NOTICE_BYTES = 32 * 1024  # text of members in one notice
# Bytes of notices that may wait for a page. The control lane holds four times as many before the gateway closes the connection.
MAX_WAITING_BYTES = 65536
# Pages between two yields to the loop.
_STRIDE = 32
_FIELDS_BYTES = 24  # of a member in JSON, without name and meta


class Room:
    """See the module.

    Args:
        copy: identifies the versions of this room to pages.

    Attributes:
        own, others: the members of this process, and of the others.
        version: number of the last difference.
        was_live: whether it was live once, with all members merged.
        sessions: number of clients with the topic.
        watchers: pages, by session, that receive each difference.
        behind: sessions that need a reset.
    """

    def __init__(self, namespace: str, topic: str, process: str, copy: str) -> None:
        self._namespace, self._topic, self._copy = namespace, topic, copy
        self.own, self.others = OwnMembers(), OtherMembers(process)
        self.version = 0
        self.was_live = False
        self.sessions = 0
        self.watchers: dict[str, Outbox] = {}
        self.behind: dict[str, None] = {}
        self._members: dict[str, Member] = {}
        self._names: list[str] = []
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def member(self, user: str) -> Member | None:
        """Return a user who is present."""
        return self._members.get(user)

    def part(self, after: str | None) -> dict[str, Any]:
        """Return the first members by name, or those after `after`, as an answer to a page."""
        part: list[Member] = []
        size = 0
        more = False
        for at in range(0 if after is None else bisect_right(self._names, after), len(self._names)):
            member = self._members[self._names[at]]
            size += len(member.user) + len(member.meta or "")
            if part and (len(part) >= MAX_PAGE or size > MAX_PAGE_BYTES):
                more = True
                break
            part.append(member)
        return {
            "topic": self._topic,
            "copy": self._copy,
            "version": self.version,
            "count": len(self),
            "members": [list(member) for member in part],
            "next": part[-1].user if more else None,
        }

    # -- what comes in ------------------------------------------------------------------------------------------------

    def own_changed(self, users: Iterable[str]) -> None:
        """Take the changed entries of users at this process."""
        for user in users:
            self._merge(user)

    def take(self, message: bytes) -> bool:
        """Apply a message of the topic's channel; return whether the room must be read again."""
        is_doubted = self.others.take(message)
        if len(self.others.changed) <= MERGED_AT_ONCE:
            self.merge()
        return is_doubted

    def merge(self) -> bool:
        """Merge some changed users of the others; return whether more remain."""
        for user in list(islice(self.others.changed, MERGED_AT_ONCE)):
            self._merge(user)
        if self.others.changed:
            return True
        if not self.was_live and self.others.is_live:
            self.was_live = True
            self._changed.clear()  # no page has seen an earlier version
        return False

    # -- to pages -----------------------------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether there is, or may be, a difference to send."""
        return bool(self._changed or self.others.changed)

    def watch(self, session: str, connection: Outbox) -> dict[str, Any]:
        """Add a page, or let it start over; return the first part."""
        self.end_watch(session)
        self.watchers[session] = connection
        return self.part(None)

    def end_watch(self, session: str) -> None:
        """Remove a page, if it watches."""
        self.behind.pop(session, None)
        self.watchers.pop(session, None)

    def notify(self) -> Iterator[int]:
        """Send differences to the pages that keep up, and resets to slow ones with room again.

        Yields the number of resets, where the loop may run.
        """
        if self.behind:
            yield self._send_resets()
        while self.merge():
            yield 0
        while self._changed:
            base = self.version
            came, left = self.take_changes(MAX_NOTICE_BYTES)
            if self.watchers:
                frame = self._frame({"copy": self._copy, "base": base, "version": self.version, "members": came, "left": left})
                for count, (session, connection) in enumerate(list(self.watchers.items()), 1):
                    # Skip a page added during the iteration, because it has read a later version.
                    if self.watchers.get(session) is connection and session not in self.behind:
                        if _has_room(connection):
                            connection.offer_control(frame)
                        else:
                            self.behind[session] = None
                    if not count % _STRIDE:
                        yield 0
            yield 0

    def take_changes(self, most_bytes: int) -> tuple[list[Member], list[str]]:
        """Return the next difference, up to about `most_bytes`, as new or changed members, and absent users.

        It increments `version`. Users who came and left in between count as absent, because a page may have read them.
        """
        came: list[Member] = []
        left: list[str] = []
        size = 0
        for user in list(self._changed):
            now = self._members.get(user)
            size += len(user) + (0 if now is None else _FIELDS_BYTES + len(now.meta or ""))
            if size > most_bytes and (came or left):
                break
            del self._changed[user]
            if now is None:
                left.append(user)
            else:
                came.append(now)
        self.version += 1
        return came, left

    # -- private ------------------------------------------------------------------------------------------------------

    def _send_resets(self) -> int:
        chosen = [session for session in self.behind if _has_room(self.watchers[session])]
        for session in chosen:
            del self.behind[session]
            self.watchers[session].offer_control(self._frame({"reset": True}))
        return len(chosen)

    def _frame(self, body: Mapping[str, Any]) -> Frame:
        return message_frame(notice_packet(self._namespace, PRESENCE, {"topic": self._topic, **body}))

    def _merge(self, user: str) -> None:
        self.others.changed.pop(user, None)
        entries = self.others.entries(user)
        if (own := self.own.entry(user)) is not None:
            entries.append(own)
        before, now = self._members.get(user), merge(user, entries)
        if now == before:
            return
        self._changed[user] = None
        if now is None:
            del self._members[user]
            del self._names[bisect_left(self._names, user)]
        else:
            self._members[user] = now
            if before is None:
                insort(self._names, user)


def _has_room(connection: Outbox) -> bool:
    return not connection.closed and connection.queue.control_bytes < MAX_WAITING_BYTES
