"""Fan-out: a batch of matched events to many clients. The hot path: it never waits, logs, or encodes per client.

In: from the router, a slice of events, each encoded and framed once, with its audience. Out: one write per client for
everything in the slice that the client gets, straight to its non-blocking socket when nothing is pending for it, else into its
queue. Frames are joined by concatenation; clients that get the same events share the joined bytes.

A `Pass` is resumable: `advance` works for a few milliseconds and returns, and its caller (the bus greenlet) lets the loop
run in between. `advance` itself contains no greenlet switch. Each pass starts at another client, so that nobody is always
last (with 1,000 clients the last one waits 8 ms longer than the first).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from .client import Client
from .transport.frames import Frame
from .trie import Audience

# One slice's frames joined: about what a socket buffer takes at once.
MAX_SLICE_BYTES = 65536
# How long a pass works before others get a turn: pings, handshakes, slow clients' drains.
BUDGET_S = 0.004
# perf_counter costs 60 ns, a write 7 µs: look at the clock every so many clients.
_CLOCK_EVERY = 16


@dataclass(frozen=True, slots=True)
class Matched:
    """One event, framed once, and who gets it."""

    frame: Frame
    audience: Audience[Client]


class Pass:
    """One slice of events on its way to its clients."""

    __slots__ = ("_clients", "_frames_of", "_index", "_joined", "writes")

    def __init__(self, slice_: Sequence[Matched], start: int = 0) -> None:
        self._index = 0
        self._joined: dict[tuple[int, ...], tuple[tuple[Frame, ...], bytes]] = {}
        self.writes = 0
        first = slice_[0].audience
        if all(matched.audience is first for matched in slice_):
            # The common case: everyone gets everything. No per-client bookkeeping at all.
            frames = tuple(matched.frame for matched in slice_)
            whole = (frames, b"".join([frame.wire for frame in frames]))
            clients = first.clients
            self._clients: Sequence[Client] = _rotated(clients, start)
            self._frames_of: Sequence[tuple[tuple[Frame, ...], bytes]] | None = None
            self._joined[()] = whole
        else:
            wanted: dict[Client, list[int]] = {}
            for index, matched in enumerate(slice_):
                for client in matched.audience.clients:
                    wanted.setdefault(client, []).append(index)
            self._clients = _rotated(tuple(wanted), start)
            self._frames_of = [self._join(slice_, tuple(wanted[client])) for client in self._clients]

    def advance(self, budget_s: float = BUDGET_S) -> bool:
        """Write to the next clients until done or out of budget; True when done. Contains no greenlet switch."""
        clients, frames_of = self._clients, self._frames_of
        index, count = self._index, len(self._clients)
        if frames_of is None:
            frames, data = self._joined[()]
            size, events = len(data), len(frames)
        stop_s = perf_counter() + budget_s
        while index < count:
            client = clients[index]
            if frames_of is not None:
                frames, data = frames_of[index]
                size, events = len(data), len(frames)
            index += 1
            connection = client.connection
            if connection.ready:
                try:
                    sent = connection.wire.send(data)
                except BlockingIOError:
                    sent = 0
                except OSError as error:
                    connection.lost(error)
                    continue
                if sent == size:
                    client.direct += events
                else:
                    _in_part(client, frames, sent)
            else:
                for frame in frames:
                    client.offer(frame)
            if not index % _CLOCK_EVERY and perf_counter() > stop_s:
                break
        self.writes += index - self._index
        self._index = index
        return index >= count

    def _join(self, slice_: Sequence[Matched], indexes: tuple[int, ...]) -> tuple[tuple[Frame, ...], bytes]:
        joined = self._joined.get(indexes)
        if joined is None:
            frames = tuple(slice_[index].frame for index in indexes)
            joined = self._joined[indexes] = (frames, b"".join([frame.wire for frame in frames]))
        return joined


def _in_part(client: Client, frames: Sequence[Frame], sent: int) -> None:
    """The kernel took only the first `sent` bytes: the frame that it cut is finished, those that it did not touch queue up."""
    accounted = client.connection.written_in_part(frames, sent)
    client.direct += accounted
    for frame in frames[accounted:]:
        client.offer(frame)


def _rotated(clients: Sequence[Client], start: int) -> Sequence[Client]:
    if not clients:
        return clients
    start %= len(clients)
    return (*clients[start:], *clients[:start]) if start else clients
