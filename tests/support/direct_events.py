"""Events as Redis brings them, and as a direct writer has written them: both ends of _native.c. No I/O."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from headgate.delivery.state import STATES, Phase, Pressure
from headgate.events.event import Event
from headgate.events.sender import sender_word
from headgate.redis.keys import channel
from tests.support.websocket_codec import TEXT, frames_in


def message_of(namespace: str, event: Event) -> list[bytes]:
    """Return the reply that brings an event on the channel of its topic; a plain PUBLISH, if it has no offset."""
    message = event.data
    if event.offset is not None:
        words = ["hg1", event.epoch or "", str(event.offset), str(event.time_ms), event.id or ""]
        words += [event.traceparent or "-"] if event.traceparent or event.by else []
        words += [sender_word(event.by, shown=True)] if event.by else []
        message = " ".join(words).encode() + b"\n" + message
    return [b"message", channel(namespace, event.topic).encode(), message]


class Wire:
    """A client's socket that takes all, or `room` bytes, or breaks. `data` is the taken part."""

    def __init__(self, room: int | None = None, error: OSError | None = None) -> None:
        self.room, self.error = room, error
        self.data = b""

    def send(self, data: bytes) -> int:
        if self.error is not None:
            raise self.error
        if self.room == 0:
            raise BlockingIOError
        sent = len(data) if self.room is None else min(self.room, len(data))
        if self.room is not None:
            self.room -= sent
        self.data += data[:sent]
        return sent


class WrittenTo:
    """As much of a client as a direct writer asks for. `direct` is a slot, as in a client; the connection's own is none."""

    __slots__ = ("connection", "direct", "left_to_log", "state")

    def __init__(self, wire: Any, *, ready: bool = True, phase: Phase = Phase.LIVE) -> None:
        self.connection = SimpleNamespace(wire=wire, ready=ready, closed=False)
        self.state = STATES[phase, Pressure.OK]
        self.direct = self.left_to_log = 0


def events_in(data: bytes, namespace: str, epoch: str) -> Iterator[Event]:
    """Read frames of logged events back into events of an epoch."""
    begin = f'42/{namespace},["event","'.encode()
    frames, rest_of_data = frames_in(data)
    assert not rest_of_data
    for opcode, packet in frames:
        assert (opcode, packet[: len(begin)]) == (TEXT, begin)
        topic, _, rest = packet[len(begin) :].partition(b'",')
        body, _, meta = rest.rpartition(b',{"id":"')
        event_id, time_ms, offset = meta.removesuffix(b"}]").replace(b'","time":', b" ").replace(b',"offset":', b" ").split(b" ")
        yield Event(topic.decode(), body, event_id.decode(), int(time_ms), epoch, int(offset))
