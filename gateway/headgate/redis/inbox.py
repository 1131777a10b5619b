"""Reads users' inboxes in Redis. Only inbox.lua writes them, in the same step as the append.

In: a user, a part of the inbox. Out: items, newest first, with the unread count and the log position of both.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headgate.errors import BusUnavailable, InvalidRequest
from headgate.events.topic import user_word

from .client import Client
from .functions import call_function
from .keys import log_key
from .lineage import Lineage

# As in inbox.lua.
MAX_ITEMS, MAX_BYTES, MAX_AGE_S = 1000, 2 * 1024 * 1024, 90 * 86400
MAX_PAGE, MAX_CHANGED, MAX_MUTES = 100, 100, 64
CHANNELS = ("mail", "page", "push")
# The pauses before a page that is too old is read again. The client's other requests wait for them.
READ_AGAIN_S = (0.05, 0.1, 0.2)
_UNREAD, _ARCHIVED = b"u", b"a"


class InboxItem(msgspec.Struct, frozen=True):
    """An item: `id` is `<kind>/<id of the event>`, `at` the event's offset, `time` its time (ms since 1970), `data` its JSON."""

    id: str
    kind: str
    data: msgspec.Raw
    time: int
    at: int
    read: bool
    archived: bool


class InboxPage(msgspec.Struct, frozen=True):
    """A page of an inbox, newest first, as of the event at `offset` in `epoch`.

    `unread` and `total` count the whole inbox. `before` is the argument for the next page; None after the last one. `mutes` are
    the muted channels by pattern.
    """

    epoch: str
    offset: int
    unread: int
    total: int
    items: list[InboxItem]
    before: int | None
    mutes: dict[str, list[str]]


def read_inbox(
    client: Client, namespace: str, user: str, before: int | None = None, limit: int = 20, *, archived: bool = False
) -> InboxPage:
    """Return a page of a user's inbox: at most `limit` items (1 to MAX_PAGE) below the offset `before`. One round trip.

    A page holds at most 64 KiB, or one item.

    Raises:
        InvalidRequest: the user's name, `before` or `limit` is invalid.
        BusUnavailable, BusRefused: as `redis.client.call`.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"limit: expected 1 to {MAX_PAGE} items, got {limit}")
    if before is not None and not 0 <= before < 2**53:
        raise InvalidRequest("before: expected the offset of an event, the `before` of the previous page")
    arguments = (user_word(user), "" if before is None else before, limit, "archived" if archived else "")
    epoch, offset, unread, total, next_, muted, *found = call_function(
        client, "FCALL_RO", "headgate_inbox", 1, log_key(namespace), *arguments
    )
    items = [_item(*each) for each in zip(found[::2], found[1::2], strict=True)]
    mutes = {
        pattern.decode(): channels.decode().split() for pattern, channels in sorted(zip(muted[::2], muted[1::2], strict=True))
    }
    return InboxPage(epoch.decode(), offset, unread, total, items, next_ or None, mutes)


def read_current(read: Callable[[], InboxPage], least: int, line: Lineage, wait: Callable[[float], object]) -> InboxPage:
    """Return a page that has everything up to an offset, as read by `read`, which is called again while it has not.

    During a failover the old primary still answers: as a replica that lags, or as a primary that nobody follows.

    Args:
        least: the newest offset that a client may have had before this call.
        line: that of the feed, before this call. A page of an epoch that is over there is of another server.

    Raises:
        BusUnavailable: the pages stay too old.
        HeadgateError: as `read`.
    """
    for pause_s in (*READ_AGAIN_S, None):
        page = read()
        if page.offset >= least and page.epoch not in line.ends and page.epoch not in line.lost:
            return page
        if pause_s is not None:
            wait(pause_s)
    raise BusUnavailable("Redis answers with an inbox that is older than the events, because a failover is under way")


def _item(item_id: bytes, value: bytes) -> InboxItem:
    state, offset, time, _, data = value.split(b" ", 4)
    name = item_id.decode()
    return InboxItem(
        id=name,
        kind=name.partition("/")[0],
        data=msgspec.Raw(data),
        time=int(time),
        at=int(offset),
        read=state != _UNREAD,
        archived=state == _ARCHIVED,
    )
