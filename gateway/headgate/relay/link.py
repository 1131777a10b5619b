"""The link: many connections of clients over one connection between two gateways, as streams of bytes. No I/O.

In: bytes from the peer, the time, and what the owners of the streams want. Out: events for them, and bytes for the peer
(`outgoing`). The end that has dialed opens streams, the other end takes or resets them. Each direction of a stream has a window:
an end sends at most WINDOW_BYTES that the other has not passed on yet, so a client that does not read stops its own stream and
no other. `TRANSITIONS` is the life of a stream. A peer that breaks a rule, or is silent, raises LinkViolation: the link is over.

A stream that is over is forgotten at once. Frames for it may still be on their way, and are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

import msgspec

from .frames import MAX_PAYLOAD_BYTES, MAX_STREAM, Frame, Kind, LinkViolation, Reader

WINDOW_BYTES = 65536
# Passed on, and not told yet; the peer always has three quarters of its window.
_TELL_BYTES = WINDOW_BYTES // 4
MAX_STREAMS = 1024
PING_EVERY_S = 5.0
# Without a word for so long, the peer or the network is gone.
SILENT_S = 15.0
# An address of a client: its text and its port, or None (a Unix socket has none).
Address: TypeAlias = tuple[str, int] | None
_address = msgspec.json.Decoder[Address](Address)


class State(Enum):
    """The state of a stream."""

    OPENING = auto()
    OPEN = auto()
    WE_ENDED = auto()
    THEY_ENDED = auto()
    OVER = auto()


class Step(Enum):
    """A step of a stream."""

    TAKE = auto()
    WE_END = auto()
    THEY_END = auto()
    RESET = auto()


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.OPENING, Step.TAKE): State.OPEN,
    (State.OPENING, Step.RESET): State.OVER,
    (State.OPEN, Step.WE_END): State.WE_ENDED,
    (State.OPEN, Step.THEY_END): State.THEY_ENDED,
    (State.OPEN, Step.RESET): State.OVER,
    (State.WE_ENDED, Step.THEY_END): State.OVER,
    (State.WE_ENDED, Step.RESET): State.OVER,
    (State.THEY_ENDED, Step.WE_END): State.OVER,
    (State.THEY_ENDED, Step.RESET): State.OVER,
}


class Opened(NamedTuple):
    """The dialer has opened a stream, for a connection from this address: `take` or `reset` it."""

    stream: int
    address: Address


class Taken(NamedTuple):
    """The other end has taken a stream."""

    stream: int


class Data(NamedTuple):
    """Bytes have come. Say with `passed_on` when they have gone on."""

    stream: int
    data: bytes


class Room(NamedTuple):
    """There is room again in the window of a stream."""

    stream: int


class Ended(NamedTuple):
    """The other end sends no more."""

    stream: int


class Reset(NamedTuple):
    """The stream is over at once."""

    stream: int


Event: TypeAlias = Opened | Taken | Data | Room | Ended | Reset


class _Stream:
    __slots__ = ("may_come", "may_send", "state", "untold")

    def __init__(self) -> None:
        self.state = State.OPENING
        self.may_send = self.may_come = WINDOW_BYTES
        self.untold = 0


class Link:
    """See the module. A method for a stream that is over already does nothing: either end may be the first."""

    def __init__(self, now_s: float, *, dials: bool) -> None:
        self._dials = dials
        self._reader = Reader()
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        self._heard_s = self._pinged_s = now_s
        self.outgoing = bytearray()

    def __len__(self) -> int:
        return len(self._streams)

    # -- what the owner of this end wants -------------------------------------------------------------------------------

    def open(self, address: Address) -> int | None:
        """Open a stream for a connection of a client; return it. None: there are too many."""
        if len(self._streams) >= MAX_STREAMS or self._last >= MAX_STREAM:
            return None
        self._last += 1
        self._streams[self._last] = _Stream()
        self._say(Kind.OPEN, self._last, msgspec.json.encode(address))
        return self._last

    def take(self, stream: int) -> None:
        """Take a stream that the dialer has opened."""
        if stream in self._streams:
            self._step(stream, Step.TAKE)
            self._say(Kind.TAKEN, stream)

    def room(self, stream: int) -> int:
        """Return how many bytes may be sent now."""
        found = self._streams.get(stream)
        return found.may_send if found is not None and found.state not in (State.WE_ENDED, State.OVER) else 0

    def send(self, stream: int, data: bytes) -> None:
        """Send bytes, no more than there is room for.

        Raises:
            ValueError: there is less room.
        """
        if stream not in self._streams:
            return
        if len(data) > self.room(stream):
            raise ValueError(f"{len(data)} bytes, and room for {self.room(stream)}")
        self._streams[stream].may_send -= len(data)
        for at in range(0, len(data), MAX_PAYLOAD_BYTES):
            self._say(Kind.DATA, stream, data[at : at + MAX_PAYLOAD_BYTES])

    def passed_on(self, stream: int, size: int) -> None:
        """So many bytes of a stream have gone on: the peer may send as many more."""
        found = self._streams.get(stream)
        if found is None:
            return
        found.untold += size
        if found.untold >= _TELL_BYTES:
            self._say(Kind.CREDIT, stream, found.untold.to_bytes(4, "big"))
            found.may_come += found.untold
            found.untold = 0

    def end(self, stream: int) -> None:
        """Send no more on a stream."""
        found = self._streams.get(stream)
        if found is not None and found.state is not State.WE_ENDED:
            self._step(stream, Step.WE_END)
            self._say(Kind.END, stream)

    def reset(self, stream: int) -> None:
        """End a stream at once."""
        if stream in self._streams:
            self._step(stream, Step.RESET)
            self._say(Kind.RESET, stream)

    # -- what the peer does --------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> Iterator[Event]:
        """Take bytes from the peer; yield what has happened. Go through to the end.

        Raises:
            LinkViolation: end the link.
        """
        self._heard_s = now_s
        for frame in self._reader.feed(data):
            if (event := self._received(frame)) is not None:
                yield event

    def tick(self, now_s: float) -> None:
        """Time goes by: call it every second or so.

        Raises:
            LinkViolation: the peer has been silent for SILENT_S.
        """
        if now_s - self._heard_s >= SILENT_S:
            raise LinkViolation("silent")
        if now_s - max(self._heard_s, self._pinged_s) >= PING_EVERY_S:
            self._pinged_s = now_s
            self._say(Kind.PING, 0)

    # -- private ------------------------------------------------------------------------------------------------------

    def _received(self, frame: Frame) -> Event | None:
        kind, stream, payload = frame
        if kind is Kind.PING:
            self._say(Kind.PONG, 0)
            return None
        if kind is Kind.PONG:
            return None
        if kind is Kind.OPEN:
            return self._opened(stream, payload)
        if not 0 < stream <= self._last:
            raise LinkViolation("a stream that was never opened")
        found = self._streams.get(stream)
        if found is None:
            return None
        if kind is Kind.TAKEN:
            if not self._dials or found.state is not State.OPENING:
                raise LinkViolation("taken out of turn")
            self._step(stream, Step.TAKE)
            return Taken(stream)
        if kind is Kind.DATA:
            return self._data(stream, found, payload)
        if kind is Kind.CREDIT:
            size = int.from_bytes(payload, "big")
            if len(payload) != 4 or found.may_send + size > WINDOW_BYTES:
                raise LinkViolation("more room than there is")
            found.may_send += size
            return Room(stream)
        if kind is Kind.END:
            if (found.state, Step.THEY_END) not in TRANSITIONS:
                raise LinkViolation("ended out of turn")
            self._step(stream, Step.THEY_END)
            return Ended(stream)
        self._step(stream, Step.RESET)
        return Reset(stream)

    def _opened(self, stream: int, payload: bytes) -> Event:
        if self._dials or stream != self._last + 1 or len(self._streams) >= MAX_STREAMS:
            raise LinkViolation("opened out of turn")
        try:
            address = _address.decode(payload)
        except msgspec.DecodeError as error:
            raise LinkViolation("not an address") from error
        self._last = stream
        self._streams[stream] = _Stream()
        return Opened(stream, address)

    def _data(self, stream: int, found: _Stream, payload: bytes) -> Event | None:
        # The dialer need not wait until its stream is taken.
        if found.state is State.THEY_ENDED or (self._dials and found.state is State.OPENING):
            raise LinkViolation("bytes out of turn")
        if len(payload) > found.may_come:
            raise LinkViolation("more bytes than there is room for")
        found.may_come -= len(payload)
        return Data(stream, payload)

    def _step(self, stream: int, step: Step) -> None:
        found = self._streams[stream]
        found.state = TRANSITIONS[found.state, step]
        if found.state is State.OVER:
            del self._streams[stream]

    def _say(self, kind: Kind, stream: int, payload: bytes = b"") -> None:
        self.outgoing += Frame(kind, stream, payload).to_bytes()
