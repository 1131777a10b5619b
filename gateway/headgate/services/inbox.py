"""Sends items to inboxes of users, reads inboxes and changes them, from any Python process with a publisher.

In: users, items, changes. Out: events on `users.<user>.inbox.<kind>` and `users.<user>.inbox`. Redis applies them to the inbox in
the step that logs them (redis/inbox.lua), so every change is ordered, has a receipt, and reaches the user's pages as an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from headgate.errors import InvalidEvent, InvalidRequest, InvalidTopic, LimitReached
from headgate.events.json_data import encode_data
from headgate.events.numbers import check_items
from headgate.events.topic import INBOX, check_topic, check_user, user_of, user_topic
from headgate.redis.inbox import CHANNELS, InboxPage
from headgate.services.publisher import Publisher, Receipt

# In one `send`.
MAX_USERS = 1000
Operation: TypeAlias = Literal["read", "unread", "archive"]


class InboxChange(msgspec.Struct, frozen=True):
    """A change of an inbox, as its event reports it, for applications that keep their own rows.

    `op` is `read`, `unread` or `archive` of the items `ids`, `read_all` of items up to the offset `up_to` (None for all),
    `dropped` of `ids` beyond the bounds, or `kept`, which changes nothing. `mute` and `unmute` concern a `pattern`, and `mutes`
    then has all muted channels by pattern. `unread` is the count after the change.
    """

    user: str
    op: Literal["read", "unread", "archive", "read_all", "dropped", "kept", "mute", "unmute"]
    unread: int
    ids: tuple[str, ...] = ()
    up_to: int | None = None
    pattern: str | None = None
    mutes: dict[str, list[str]] | None = None


class Inbox:
    """The inboxes of a namespace's users.

    Args:
        publisher: publishes the events. See `Publisher` for waiting and time limits.
        namespace: None for the publisher's.
    """

    def __init__(self, publisher: Publisher, namespace: str | None = None) -> None:
        if not isinstance(publisher, Publisher):
            raise TypeError(f"publisher: expected a Publisher, got {type(publisher).__name__}")
        self._publisher, self._namespace = publisher, namespace

    def send(self, users: str | Sequence[str], kind: str, data: object, id: str | None = None) -> list[Receipt]:
        """Put an item into the inbox of each user, in one round trip; return a receipt for each, in order.

        Args:
            users: a name, or 1 to MAX_USERS names. A repeated name gets one item and one receipt.
            kind: subject of the item, 1 to 5 words joined by dots, such as `orders.failed`.
            data, id: as of `Publisher.publish`. While the inbox has an item, another with its kind and id is not added.

        Raises:
            LimitReached: more than MAX_USERS users; nothing was sent.
            InvalidRequest: no user, or an invalid name; nothing was sent.
            HeadgateError: as `Publisher.publish`, for several users as `Publisher.publish_many`.
        """
        if not isinstance(kind, str):
            raise InvalidTopic(kind, f"expected a string, got {type(kind).__name__}")
        names = [users] if isinstance(users, str) else list(dict.fromkeys(map(check_user, check_items(users, "users", "names"))))
        if not names:
            raise InvalidRequest(f"users: expected 1 to {MAX_USERS} names, got none")
        if len(names) > MAX_USERS:
            raise LimitReached("inbox_users", MAX_USERS)
        payload = msgspec.Raw(encode_data(data))
        if len(names) == 1:
            return [self._publisher.publish(f"{INBOX}.{kind}", payload, id, self._namespace, user=names[0])]
        events = [(user_topic(name, f"{INBOX}.{kind}"), payload, id) for name in names]
        return self._publisher.publish_many(events, self._namespace)

    def page(
        self,
        user: str,
        before: int | None = None,
        limit: int = 20,
        *,
        archived: bool = False,
        epoch: str | None = None,
        offset: int | None = None,
    ) -> InboxPage:
        """Return a part of a user's inbox, newest first. One round trip; waits for Redis.

        Args:
            before: `before` of the previous page; None for the newest items.
            limit: maximum items, 1 to MAX_PAGE.
            archived: include archived items.
            epoch, offset: of a page, receipt or event that you have. The page is not older, even during a failover.

        Raises:
            InvalidRequest: a name, `before`, `limit` or the position is invalid, or the log no longer knows the epoch.
            BusUnavailable, BusRefused: as `Publisher.check`; BusUnavailable also if Redis has only older pages.
        """
        return self._publisher.inbox_page(
            user, before, limit, archived=archived, epoch=epoch, offset=offset, namespace=self._namespace
        )

    def mark_read(self, user: str, ids: Sequence[str]) -> Receipt:
        """Mark items as read, by their ids (1 to MAX_CHANGED). Idempotent. The later of two changes of an item counts.

        Raises:
            InvalidRequest: a name is invalid, or the inbox has none of these items; nothing has changed.
            HeadgateError: as `Publisher.publish`.
        """
        return self._change_items(user, "read", ids)

    def mark_unread(self, user: str, ids: Sequence[str]) -> Receipt:
        """Mark items as unread, and list archived ones again. Otherwise as `mark_read`."""
        return self._change_items(user, "unread", ids)

    def archive(self, user: str, ids: Sequence[str]) -> Receipt:
        """Archive items, which marks them as read and removes them from the list. Otherwise as `mark_read`."""
        return self._change_items(user, "archive", ids)

    def read_all(self, user: str, up_to: int | None = None, epoch: str | None = None) -> Receipt:
        """Mark every item up to the offset `up_to` (its `at`) as read; every item for None.

        Args:
            epoch: of the page with `up_to`. If Redis has lost the end of its log since, no newer item is marked in place of a
                lost one.

        Raises:
            InvalidRequest: the log no longer knows the epoch; nothing has changed.
            HeadgateError: as `Publisher.publish`.
        """
        limits = {"up_to": up_to, "epoch": epoch}
        return self._change(user, {"op": "read_all"} | {name: value for name, value in limits.items() if value is not None})

    def mute(self, user: str, pattern: str, channels: Sequence[str] = CHANNELS) -> Receipt:
        """Mute a pattern on exactly these channels (alerts in the page, push, mail), on every device. Idempotent.

        Args:
            pattern: for topics as the user sees them, without `users.<user>.` and `inbox.`, such as `orders.#`.
            channels: one or more of CHANNELS.

        Raises:
            InvalidRequest: a name, the pattern or a channel is invalid.
            LimitReached: the user has muted MAX_MUTES other patterns.
            HeadgateError: as `Publisher.publish`.
        """
        return self._change(
            user, {"op": "mute", "pattern": pattern, "channels": list(check_items(channels, "channels", "words"))}
        )

    def unmute(self, user: str, pattern: str) -> Receipt:
        """Unmute a pattern on all channels. Idempotent. Raises as `mute`."""
        return self._change(user, {"op": "unmute", "pattern": pattern})

    def mutes(self, user: str) -> dict[str, list[str]]:
        """Return the muted channels of a user by pattern. Raises as `page`."""
        return self.page(user, limit=1).mutes

    def _change_items(self, user: str, op: Operation, ids: Sequence[str]) -> Receipt:
        return self._change(user, {"op": op, "ids": list(check_items(ids, "ids", "ids of items"))})

    def _change(self, user: str, change: dict[str, object]) -> Receipt:
        return self._publisher.publish(INBOX, change, namespace=self._namespace, user=check_user(user))


def read_change(topic: str, data: bytes | str) -> InboxChange | None:
    """Return the change that an event reports, or None. In a consumer: `read_change(event.topic, event.data)`.

    Args:
        data: the event's payload, as JSON text.

    Raises:
        InvalidTopic: `topic` is invalid.
        InvalidEvent: `data` is not a change.
    """
    user = user_of(check_topic(topic))
    if user is None or topic.split(".", 2)[2] != INBOX:
        return None
    try:
        parts = msgspec.json.decode(data)
        if parts["op"] == "kept":
            return InboxChange(user, "kept", parts["unread"], (parts["id"],))
        return msgspec.convert({"user": user} | parts, InboxChange)
    except (TypeError, ValueError, LookupError) as error:
        raise InvalidEvent("data", f"expected the JSON text of a change of an inbox: {error}") from error
