"""Presence: the users in a topic now, over all gateways, by name, in pages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headgate.events.topic import check_topic

from .grammar import Topic
from .operation import Call, Cost, InNamespace, given, operation

MAX_PAGE = 1000
# All data is read for shown members, only names for the others.
PER_SHOWN = 10
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Member(msgspec.Struct):
    """A user in a topic: the number of connections, the start (ms since 1970), and the data from its page."""

    user: str
    connections: int
    since: int
    meta: Any


class Members(msgspec.Struct):
    """Members by name; `count` is the total. `next` is the `after` of the next page; null: that was the end."""

    namespace: str
    topic: str
    count: int
    members: list[Member]
    next: str | None


class MembersOf(InNamespace, forbid_unknown_fields=True, kw_only=True):
    """The topic, and the selected page of its members."""

    topic: Annotated[Topic, Meta(description="The topic.")]
    after: Annotated[Name | UnsetType, Meta(description="Members behind this user.")] = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Members at most.")] = MAX_PAGE


@operation("GET /presence", "presence", query=MembersOf, pattern="topic", cost=Cost.MEMBERS)
def list_members(call: Call) -> Members:
    """List who is in a topic."""
    asked = call.query
    page = call.services.gate.presence_page(check_topic(asked.topic), given(asked.after), asked.limit, call.namespace)
    shown = [Member(one.user, one.connections, one.since_ms, one.meta) for one in page.members]
    call.charge(max(page.count, PER_SHOWN * len(shown)))
    return Members(call.namespace, asked.topic, page.count, shown, page.after)
