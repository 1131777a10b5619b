"""The names of messages, and their encoding as Socket.IO text packets. No I/O.

docs/protocol.md describes every message. web/src/language/protocol.js has the same names, and the tests of both sides read
tests/golden/wire.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

# Server → client.
WELCOME = "welcome"
EVENT = "event"
GAP = "gap"
BACKPRESSURE = "backpressure"
CURSOR = "cursor"
STATUS = "status"
PRESENCE = "presence"  # in both directions
HANDLED = "handled"  # in both directions

# Client → server, each acknowledged with {ok: true, …} or {ok: false, error: {code, message, …}}.
SUBSCRIBE = "subscribe"
UNSUBSCRIBE = "unsubscribe"
REPLAY = "replay"
PUBLISH = "publish"
REFRESH = "refresh"
SEEN = "seen"
INBOX = "inbox"
HISTORY = "history"
REQUEST = "request"  # for a function of the application
CANCEL = "cancel"
VITALS = "vitals"  # only from a console's page


class Overflow(StrEnum):
    """The overflow policy of a subscription, for a full client queue. Stronger ones first."""

    CATCH_UP = "catch_up"
    LATEST = "latest"
    DROP = "drop"


class GapReason(StrEnum):
    """Why events did not reach a client."""

    OVERFLOW = "overflow"  # the client queue was full
    UPSTREAM = "upstream"  # the gateway failed to pass them on
    TRIMMED = "trimmed"  # the log no longer holds them
    ROLLED_BACK = "rolled_back"  # Redis lost the end of the log, which continues in a new epoch
    LOG_LOST = "log_lost"  # another log without a common epoch has replaced the log
    QUARANTINED = "quarantined"  # an event in the log is malformed or above the payload limit


_to_json = msgspec.json.encode


def notice_packet(namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
    """Return the Socket.IO EVENT packet of a message with one JSON argument (welcome, gap, backpressure, cursor, status)."""
    return b"2/%b,[%b,%b]" % (namespace.encode(), _to_json(name), _to_json(body))


def gap_body(
    patterns: Sequence[str],
    first: int | None,
    last: int | None,
    count: int | None,
    size: int,
    reason: GapReason,
    *,
    recoverable: bool,
    epoch: str | None = None,
) -> dict[str, Any]:
    """Return the body of a `gap` of `count` events and `bytes` of payload, in offsets `from`…`to` (inclusive, null if unknown).

    `epoch` is the log's epoch after the gap, if that is a new one.
    """
    body = {
        "patterns": list(patterns),
        "from": first,
        "to": last,
        "count": count,
        "bytes": size,
        "reason": reason.value,
        "recoverable": recoverable,
    }
    return body if epoch is None else {**body, "epoch": epoch}


def ok(**parts: Any) -> dict[str, Any]:
    """Return a positive acknowledgement."""
    return {"ok": True, **parts}


def refused(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return a negative acknowledgement around an error's `to_wire()`."""
    return {"ok": False, "error": dict(error)}
