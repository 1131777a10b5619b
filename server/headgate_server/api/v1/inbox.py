"""Reads the inbox of a user in pages, newest first, and changes it.

A user's token reads and changes the user's own inbox. A key names the user, and needs the scope `inbox` or `inbox:write`.
Without it, the answer is the same for every name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from headgate.errors import HeadgateError, InvalidRequest
from headgate.events.topic import check_user, inbox_topic
from headgate.events.wire.requests import DEFAULT_INBOX_ITEMS, MAX_INBOX_ITEMS, MAX_OFFSET
from headgate.redis import inbox
from headgate.redis.inbox import MAX_CHANGED, InboxPage

from .operation import ANY_CALLER, Call, operation
from .publishing import ReceiptShown

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Channel = Literal["page", "push", "mail"]
ItemId = Annotated[str, Meta(min_length=3, max_length=400)]


# Required and optional fields of each operation.
_FIELDS = {"read_all": ((), ("up_to", "epoch")), "mute": (("pattern", "channels"), ()), "unmute": (("pattern",), ())}


# A page before the first event has an empty epoch.
EpochOfPage = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$", description="With `offset`, what the page must include.")]


@operation("GET /inbox", ANY_CALLER, in_namespace=True)
def read_inbox(
    call: Call,
    *,
    user: Annotated[Name | None, Meta(description="The user of the inbox. The caller by default.")] = None,
    before: Annotated[int, Meta(ge=1, le=MAX_OFFSET)] | None = None,
    limit: Annotated[int, Meta(ge=1, le=MAX_INBOX_ITEMS, description="Items at most.")] = DEFAULT_INBOX_ITEMS,
    archived: Annotated[bool, Meta(description="Archived items too.")] = False,
    epoch: EpochOfPage | None = None,
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] | None = None,
) -> InboxPage:
    """Read a part of a user's inbox.

    A user's token reads the user's own inbox. A key names the `user`, and needs the scope `inbox`. With the `epoch` and
    `offset` of the newest receipt, event or page that you have, the page is not older, even during a failover.
    """
    owner = _user(call, user, "inbox")
    if (epoch is None) != (offset is None):
        raise InvalidRequest("epoch, offset: expected both or neither")
    had = (epoch, offset) if epoch and offset is not None else None
    read = inbox.inbox_reader(call.redis, call.namespace, owner, before, limit, archived=archived)
    return call.services.gate.current_inbox(read, had, call.namespace)


@operation("POST /inbox", ANY_CALLER, in_namespace=True, problems=(409, 422))
def change_inbox(
    call: Call,
    *,
    op: Literal["read", "unread", "archive", "read_all", "mute", "unmute"],
    ids: Annotated[list[ItemId], Meta(min_length=1, max_length=MAX_CHANGED)] | None = None,
    up_to: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] | None = None,
    epoch: Annotated[str, Meta(pattern="^[0-9a-f]+$", max_length=64)] | None = None,
    pattern: Annotated[str, Meta(min_length=1, max_length=255)] | None = None,
    channels: Annotated[list[Channel], Meta(min_length=1, max_length=3)] | None = None,
    user: Name | None = None,
) -> ReceiptShown:
    """Mark items as read or unread, archive them, or mute a pattern.

    Changes items by their `ids`, or with `read_all` all up to the offset `up_to` in `epoch` (null for every item). `mute` mutes
    a `pattern` on exactly these `channels`, and `unmute` ends this. A key needs the scope `inbox:write`. The change is an event
    on `users.<user>.inbox`, which the user's pages show.
    """
    owner = _user(call, user, "inbox:write")
    needed, allowed = _FIELDS.get(op, (("ids",), ()))
    parts = {"ids": ids, "up_to": up_to, "epoch": epoch, "pattern": pattern, "channels": channels}
    given = {name: value for name, value in parts.items() if value is not None}
    if not set(needed) <= given.keys() <= {*needed, *allowed}:
        fields = " and ".join(needed) or f"nothing or {allowed[0]}"
        raise InvalidRequest(f"{op}: expected {fields}, got {', '.join(given) or 'nothing'}")
    change = (inbox_topic(owner), {"op": op, **given}, None)
    (receipt,) = call.services.gate.publish_each([change], call.namespace, by=call.identity.user)
    if isinstance(receipt, HeadgateError):
        raise receipt
    return ReceiptShown(receipt.duplicate, receipt.epoch, receipt.id, receipt.offset)


def _user(call: Call, named: str | None, scope: str) -> str:
    """Return the user of the inbox, if the caller may read and change it."""
    identity = call.identity
    own = None if identity.own_topics is None else identity.user
    if named is None and own is None:
        raise InvalidRequest("user: expected a name, because this caller has no inbox")
    if named is None or named == own:
        assert own is not None
        return own
    call.need(scope)
    return check_user(named)
