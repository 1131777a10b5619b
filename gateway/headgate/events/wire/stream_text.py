"""Writes the events and notices of a stream as Server-Sent Events, or as the answer to a long-poll. No I/O.

In: frames of a client's queue. Out: `data:` lines (WHATWG HTML, section 9.2.6), or a JSON object, with the cursor after them.
Any gateway can continue from this cursor, `<epoch>:<offset>`. docs/protocol.md, "Keep one position", has the rules for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headgate.errors import InvalidRequest

from .frames import Frame
from .packets import CURSOR, GAP, HANDLED, WELCOME, GapReason
from .requests import MAX_OFFSET, Position, read_resume

EVENT_STREAM, JSON = "text/event-stream", "application/json"
HEARTBEAT = b": \n\n"
_EVENT_HEAD_BYTES = len('["event","",')
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_read_notice = msgspec.json.Decoder(tuple[str, dict[str, Any]]).decode
_to_json = msgspec.json.encode


def read_cursor(text: str) -> Position:
    """Return the position of a cursor. Raises InvalidRequest if it is not `<epoch>:<offset>`."""
    epoch, colon, offset = text.partition(":")
    if not colon or not offset.isascii() or not offset.isdigit() or len(offset) > len(str(MAX_OFFSET)):
        raise InvalidRequest("cursor: expected <epoch>:<offset>, as the stream gave it")
    point = read_resume({"epoch": epoch, "offset": int(offset)})
    assert point is not None
    return point


class StreamText:
    """One stream, as text.

    Args:
        point: the position to continue from; None for a new stream.
    """

    def __init__(self, point: Position | None = None) -> None:
        self._place = point
        # The position after a gap with a new epoch. It counts once the gap is written, because a stream cut before must
        # get the gap again.
        self._next: Position | None = None
        self._starts_again = False

    @property
    def cursor(self) -> str | None:
        """The cursor after everything written so far."""
        return None if self._place is None else str(self._place)

    def events(self, frames: Iterable[Frame]) -> bytes:
        """Return frames as Server-Sent Events. An event of a topic has the default type, and a notice its name as type."""
        parts = []
        for frame in frames:
            if frame.topic is not None:
                line = b"id: %b\n" % (self.cursor or "").encode() if self._move(frame) else b""
                parts.append(b"%bdata: %b\n\n" % (line, event_text(frame)))
            elif (notice := _notice(frame))[0] != HANDLED:  # a stream cannot answer this question
                name, body = notice
                line = b"id: %b\n" % (self.cursor or "").encode() if self._note(name, body) else b""
                parts.append(b"%bevent: %b\ndata: %b\n\n" % (line, name.encode(), _to_json(body)))
        return b"".join(parts)

    def answer(self, frames: Iterable[Frame], *, welcomes: bool) -> bytes:
        """Return frames as the answer to a long-poll: `{cursor, events: [event…], notices: [{type, before, body}…]}`.

        `before` is how many of the events come before the notice. With `welcomes` the welcome is included.
        """
        events: list[bytes] = []
        notices = []
        for frame in frames:
            if frame.topic is not None:
                self._move(frame)
                events.append(event_text(frame))
            else:
                name, body = _notice(frame)
                self._note(name, body)
                if name != HANDLED and (welcomes or name != WELCOME):
                    notices.append({"type": name, "before": len(events), "body": body})
        return b'{"cursor":%b,"events":[%b],"notices":%b}\n' % (_to_json(self.cursor), b",".join(events), _to_json(notices))

    def _move(self, frame: Frame) -> bool:
        """Move to an event; return whether the cursor has moved, which it does not for a plain publish."""
        if self._place is None or frame.offset is None or frame.offset <= self._place.offset:
            return False
        self._place = Position(self._place.epoch, frame.offset)
        return True

    def _note(self, name: str, body: dict[str, Any]) -> bool:
        """Apply a notice to the cursor; return whether to write the cursor. A welcome always needs it, for its epoch."""
        before = self._place
        if name == WELCOME:
            place = body["from"] or body
            there = Position(place["epoch"], place["offset"])
            if before is None or (body["from"] and there.offset == before.offset):
                self._place = there
            else:
                self._next = there
        elif name == CURSOR:
            least = 0 if before is None or self._starts_again else before.offset
            self._place, self._starts_again = Position(body["epoch"], max(body["offset"], least)), False
        elif name == GAP and before is not None:
            if body["reason"] == GapReason.TRIMMED:
                self._place = Position(before.epoch, max(before.offset, body["to"] or 0))
            elif body["reason"] == GapReason.ROLLED_BACK:
                self._place, self._next = Position(body["epoch"], min(before.offset, body["from"] - 1)), None
            elif body["reason"] == GapReason.LOG_LOST:
                self._place, self._next, self._starts_again = self._next or before, None, self._next is None
        return name == WELCOME or before != self._place


def event_text(frame: Frame) -> bytes:
    """Return an event as a JSON object `{topic, data, id, time, offset?, …}` in one line, made once for all streams."""
    try:
        return frame.text
    except AttributeError:
        packet = frame.packet
        topic = (frame.topic or "").encode()
        start = packet.index(b",") + 1 + _EVENT_HEAD_BYTES + len(topic)
        end = start + frame.payload_bytes
        frame.text = text = (
            b'{"topic":"%b","data":%b,%b'
            % (
                topic,
                packet[start:end].translate(_LINE_ENDS),  # in JSON, line ends occur only between tokens
                packet[end + 2 : -1],
            )
        )
        return text


def is_notice(frame: Frame, name: str) -> bool:
    """Return whether a frame is a notice with this name."""
    return frame.topic is None and _notice(frame)[0] == name


def _notice(frame: Frame) -> tuple[str, dict[str, Any]]:
    packet = frame.packet
    return _read_notice(packet[packet.index(b",") + 1 :])
