"""Reads and checks requests of clients. No I/O.

In: the JSON of a request. Out: small typed values, or one error with the field and its allowed values. The error is
InvalidPattern, InvalidTopic or InvalidEvent for these parts, and InvalidRequest for others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from headgate.errors import InvalidRequest
from headgate.events.event import check_event_id
from headgate.events.json_data import is_unicode
from headgate.events.numbers import check_whole
from headgate.events.topic import check_pattern, check_topic

from .packets import Overflow

# The most events that one subscription may request with `since: {last: n}`.
MAX_LAST = 1000
# Items of an inbox in one request. inbox.lua has the same limit.
MAX_INBOX_ITEMS, DEFAULT_INBOX_ITEMS = 100, 20
# Past events in one request.
MAX_HISTORY, DEFAULT_HISTORY = 100, 50
# Shown events that one request may report.
MAX_SEEN_IDS = 100
MAX_OFFSET = 2**53 - 1  # the largest safe integer of JavaScript
# What a client requests about a topic's presence.
PresenceAct: TypeAlias = Literal["enter", "watch", "page", "leave"]
_EPOCH = re.compile(r"[0-9a-f]{16}")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Since:
    """The start of a subscription, after an offset, at a time (ms since 1970), or with the `last` events. One is set.

    `epoch` is the offset's; None for the log's current one.
    """

    offset: int | None = None
    time_ms: int | None = None
    last: int | None = None
    epoch: str | None = None


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """A requested subscription. It cannot be part of a cycle, so it is not tracked by the garbage collector."""

    pattern: str
    overflow: Overflow
    since: Since | None

    @property
    def answer(self) -> dict[str, Any]:
        """The fields of its acknowledgement: the pattern, and `after`, the offset after which its past begins."""
        return {"pattern": self.pattern} if self.since is None else {"pattern": self.pattern, "after": self.since.offset}


class Handled(NamedTuple):
    """A page's report on whether its handlers have had an event, which it knows above the offset `since`, and its position."""

    ask: int
    handled: bool
    since: int
    epoch: str | None
    offset: int


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the log, after everything up to `offset` on the line to `epoch`.

    Its text is the cursor `<epoch>:<offset>`.
    """

    epoch: str
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.offset}"


def check_text(request: object) -> None:
    """Check that every text in a request's JSON can be written as UTF-8, without half of a surrogate pair.

    JSON can spell one (`"\\ud800"`), and a browser does, but Redis, the log, an authenticator and our answer cannot take it. So
    this check comes first.
    """
    try:
        _encode(request)  # in C. It can only fail for this on decoded JSON, or for numbers beyond its range
    except (TypeError, ValueError, OverflowError, RecursionError):
        left = [request]
        while left:
            value = left.pop()
            if isinstance(value, Mapping):
                left += (*value, *value.values())
            elif isinstance(value, list):
                left += value
            elif isinstance(value, str) and not is_unicode(value):
                raise InvalidRequest("text with half of a surrogate pair (U+D800 to U+DFFF); expected Unicode") from None


def read_subscription(request: object) -> Subscription:
    """Read `{pattern, overflow?, since?}`."""
    body = _object(request, {"pattern", "overflow", "since"}, "{pattern: 'orders.*'}")
    pattern = check_pattern(body.get("pattern"))
    overflow = Overflow.CATCH_UP
    if "overflow" in body:
        try:
            overflow = Overflow(body["overflow"])
        except ValueError:
            raise InvalidRequest(f"overflow: expected one of {', '.join(Overflow)}") from None
    since = body.get("since")
    return Subscription(pattern, overflow, None if since is None else _since(since))


def read_resume(request: object) -> Position | None:
    """Read `{epoch, offset}`; None stays None."""
    if request is None:
        return None
    body = _object(request, {"epoch", "offset"}, "{epoch, offset}")
    return Position(
        check_epoch(body.get("epoch"), "resume.epoch"), check_whole(body.get("offset"), "resume.offset", 0, MAX_OFFSET)
    )


def read_replay(request: object) -> tuple[str, int, int, str | None]:
    """Read `{pattern, from, to, epoch?}`. Without an epoch, the offsets are in the log's current one."""
    body = _object(request, {"pattern", "from", "to", "epoch"}, "{pattern, from, to}")
    epoch = check_epoch(body["epoch"], "epoch") if body.get("epoch") is not None else None
    first = check_whole(body.get("from"), "from", 1, MAX_OFFSET)
    return check_pattern(body.get("pattern")), first, check_whole(body.get("to"), "to", first, MAX_OFFSET), epoch


def read_history(request: object) -> tuple[str, int | None, str | None, int]:
    """Read `{pattern, before?: {offset, epoch?}, limit?}`; return the pattern, the offset, its epoch, and the limit.

    Without an offset it requests the newest events. Without an epoch, the offset is in the log's current one.
    """
    body = _object(request, {"pattern", "before", "limit"}, "{pattern: 'chat.7', limit: 50}")
    before = {} if body.get("before") is None else _object(body["before"], {"offset", "epoch"}, "{offset, epoch}")
    return (
        check_pattern(body.get("pattern")),
        check_whole(before.get("offset"), "before.offset", 1, MAX_OFFSET) if before else None,
        None if before.get("epoch") is None else check_epoch(before["epoch"], "before.epoch"),
        check_whole(body.get("limit", DEFAULT_HISTORY), "limit", 1, MAX_HISTORY),
    )


def read_refresh(request: object) -> str:
    """Read `{token}`, for the authenticator to check."""
    token = _object(request, {"token"}, "{token}").get("token")
    if not isinstance(token, str):
        raise InvalidRequest("token: expected text")
    return token


def read_seen(request: object) -> list[str]:
    """Read `{ids}`, a list of 1 to MAX_SEEN_IDS event ids."""
    ids = _object(request, {"ids"}, "{ids: ['…']}").get("ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_SEEN_IDS:
        raise InvalidRequest(f"ids: expected a list of 1 to {MAX_SEEN_IDS} event ids")
    return [check_event_id(event_id) for event_id in ids]


def read_inbox_part(request: object) -> tuple[int | None, int, tuple[str, int] | None]:
    """Read `{before?, limit?, epoch?, offset?}`; return the offset above the items, their number, and a position or None."""
    body = _object(request, {"before", "limit", "epoch", "offset"}, "{before, limit: 20}")
    before = None if body.get("before") is None else check_whole(body["before"], "before", 1, MAX_OFFSET)
    limit, epoch = check_whole(body.get("limit", DEFAULT_INBOX_ITEMS), "limit", 1, MAX_INBOX_ITEMS), body.get("epoch")
    if not isinstance(epoch, str | None) or (epoch is None) != (body.get("offset") is None):
        raise InvalidRequest("epoch, offset: expected both of a position, or neither")
    return before, limit, None if not epoch else (epoch, check_whole(body["offset"], "offset", 0, MAX_OFFSET))


def read_handled(request: object) -> Handled:
    """Read `{ask, handled, since, epoch?, offset?}`. A page without a position omits the last two."""
    body = _object(request, {"ask", "handled", "since", "epoch", "offset"}, "{ask: 1, handled: true, since: 0, …}")
    ask, handled, epoch = body.get("ask"), body.get("handled"), body.get("epoch")
    numbers = [ask, body.get("since", -1), body.get("offset", -1)]
    if not isinstance(handled, bool) or not (epoch is None or isinstance(epoch, str)):
        raise InvalidRequest("handled: expected true or false, with the epoch of a position")
    if not all(isinstance(number, int) and -1 <= number <= MAX_OFFSET for number in numbers):
        raise InvalidRequest("ask, since, offset: expected whole numbers")
    ask, since, offset = numbers
    return Handled(ask, handled, since, epoch, offset)


def read_asked(request: object) -> tuple[str, object, str | None, float]:
    """Read `{name, data, id?, timeout_ms?}`; return name, data, id, and the timeout in seconds, which may be infinite.

    Raises InvalidRequest, InvalidTopic for a name outside the grammar of topics, and InvalidEvent for an invalid id.
    """
    body = _object(request, {"name", "data", "id", "timeout_ms"}, "{name: 'orders.price', data: …}")
    if "data" not in body:
        raise InvalidRequest("data: expected JSON, null too")
    event_id, timeout_ms = body.get("id"), body.get("timeout_ms")
    timeout_s = math.inf if timeout_ms is None else check_whole(timeout_ms, "timeout_ms", 1, MAX_OFFSET) / 1000
    return check_topic(body.get("name")), body["data"], None if event_id is None else check_event_id(event_id), timeout_s


def read_cancel(request: object) -> str:
    """Read `{id}`. Raises InvalidRequest, InvalidEvent."""
    return check_event_id(_object(request, {"id"}, "{id}").get("id"))


def read_presence(request: object) -> tuple[PresenceAct, str, Any, str]:
    """Read `{topic, act, meta?}` for `enter`, `{topic, act, after}` for `page`, and `{topic, act}` for `watch` and `leave`.

    Returns the act, the topic, `meta` (UNSET if absent), and `after`.
    """
    body = _object(request, {"topic", "act", "meta", "after"}, "{topic: 'rooms.7', act: 'enter'}")
    act: Any = body.get("act")
    if act not in get_args(PresenceAct):
        raise InvalidRequest(f"act: expected one of {', '.join(get_args(PresenceAct))}")
    if "meta" in body and act != "enter":
        raise InvalidRequest("meta: expected only with `enter`")
    after = body.get("after", "")
    if ("after" in body) != (act == "page") or not isinstance(after, str):
        raise InvalidRequest("after: expected a user's name, only with `page`")
    return act, check_topic(body.get("topic")), body.get("meta", msgspec.UNSET), after


def _since(request: object) -> Since:
    body = _object(request, {"offset", "time", "last", "epoch"}, "{offset, epoch}, {time} or {last}")
    if len(set(body) - {"epoch"}) != 1:
        raise InvalidRequest("since: expected exactly one of offset, time, last")
    if "offset" in body:
        epoch = check_epoch(body["epoch"], "since.epoch") if body.get("epoch") is not None else None
        return Since(offset=check_whole(body["offset"], "since.offset", 0, MAX_OFFSET), epoch=epoch)
    if "epoch" in body:
        raise InvalidRequest("since: expected an epoch only with an offset")
    if "time" in body:
        return Since(time_ms=check_whole(body["time"], "since.time", 0, MAX_OFFSET))
    return Since(last=check_whole(body["last"], "since.last", 1, MAX_LAST))


def check_epoch(value: object, name: str) -> str:
    """Return the name of an epoch. Raises InvalidRequest for an invalid one."""
    if not isinstance(value, str) or not _EPOCH.fullmatch(value):
        raise InvalidRequest(f"{name}: expected the epoch of a welcome, a cursor or an acknowledgement")
    return value


def _object(request: object, known: set[str], example: str) -> Mapping[str, Any]:
    if not isinstance(request, Mapping):
        raise InvalidRequest(f"expected an object such as {example}")
    if not request.keys() <= known:
        unknown = sorted(str(name) for name in set(request) - known)
        raise InvalidRequest(f"unknown field {unknown[0][:40]!r}; known: {', '.join(sorted(known))}")
    return request
