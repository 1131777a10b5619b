"""The sending half of a session: frames on their way to the browser, by whichever transport it is on.

In: frames of clients and of the Socket.IO layer (`offer`, `offer_control`, `stream`); from the fan-out, what became of a direct
write (`written_in_part`, `lost`). Out: to the open WebSocket, which asks for `next_chunk` whenever it has room; to the waiting
poll, which asks for `take_frames`; to the clients (`QueueOwner`), that a queue over high water has drained.

The fan-out reads `wire` and `ready` for every client of an event. They are plain attributes, and only these places set them:
`wire` the session's transitions (the open WebSocket, else None); `ready` this class: True when the WebSocket has become idle, and
False as soon as anything is queued, corked, held or half written. A *cork* keeps all data in the queue (the CONNECT packet and
`welcome` go first); a *hold* keeps only the fan-out out (a client of the session reads the log, and its pages go through the
queue). Several clients share a session, so both are counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from headgate.protocol.frames import Frame
from headgate.runtime.loop import in_hub_after

from .long_poll import LongPoll
from .send_queue import LOW_WATER, ClientQueue, Sender
from .session_state import TRANSPORT_ERROR
from .websocket import JOIN_BYTES, WebSocket

# Data that waited for CONNECT follows it by a moment rather than in the same segment: scripts that take one message per turn
# (the official protocol suite is one) would miss it.
CONNECT_HEAD_START_S = 0.005


class QueueOwner(Sender, Protocol):
    """A client of this session that wants to know when its queue has room again."""

    direct: int
    offered: int

    def drained(self) -> None:
        """Called once after `awaits_drain` was set: the queue has drained to its low level, or the session is over."""


class Outbox(ABC):
    """See the module.

    Attributes:
        wire: the open WebSocket; None on polling, and when the session is over.
        ready: whether the fan-out may write to `wire` directly.
        awaits_drain: whether a client wants to hear when the queue, which is over high water, has drained.
        closed: whether the session is over; it then takes nothing and owes nothing.
        corks: connect handlers that run; while there are any, data stays in the queue.
        owners: the clients of the session, one per namespace.
        polls: the HTTP side of a session that polls.
    """

    __slots__ = ("_holds", "awaits_drain", "closed", "corks", "owners", "polls", "queue", "ready", "wire")

    def __init__(self, queue: ClientQueue) -> None:
        self.queue = queue
        self.wire: WebSocket | None = None
        self.ready = self.awaits_drain = self.closed = False
        self.owners: tuple[QueueOwner, ...] = ()
        self.corks = self._holds = 0
        self.polls: LongPoll | None = None

    @abstractmethod
    def end(self, reason: str, *, hard: bool = False) -> None:
        """End the session."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits to go out."""
        return not self.closed and not self.queue and not self.awaits_drain and (self.wire is None or not self.wire.writing)

    # -- frames -------------------------------------------------------------------------------------------------------

    def offer(self, frame: Frame, owner: Sender | None = None) -> bool:
        """Send an event frame, or queue it behind others; False when the queue is full (nothing was taken)."""
        if self.closed:
            return True  # nobody is owed anything any more
        if not self.queue.offer(frame, owner):
            return False
        self.flush()
        return True

    def offer_control(self, frame: Frame, *, flush: bool = True) -> None:
        """Send a control frame ahead of all data; a browser that lets the control lane fill up is disconnected."""
        if self.closed:
            return
        if self.queue.offer_control(frame):
            if flush:
                self.flush()
        else:
            self.end("control lane full", hard=True)

    def stream(self, frames: Sequence[Frame], owner: QueueOwner) -> int:
        """Send consecutive frames of the log in one write, or queue what the socket does not take at once.

        Returns how many were accepted; the others found no room.
        """
        if self.closed:
            return len(frames)
        accepted = 0
        wire = self.wire
        if wire is not None and not wire.writing and not self.queue and not self.corks:
            data = b"".join([frame.wire for frame in frames])
            try:
                sent = wire.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.lost(error)
                return len(frames)
            accepted = len(frames) if sent == len(data) else self.written_in_part(frames, sent)
            owner.direct += accepted
        for frame in frames[accepted:]:
            if not self.queue.offer(frame, owner):
                break
            accepted += 1
            owner.offered += 1
        if self.queue:
            self.flush()
        return accepted

    def flush(self) -> None:
        """Let what is queued go out: to the WebSocket unless it is waiting for room, or to the waiting poll."""
        wire = self.wire
        if wire is not None:
            if not wire.writing:
                if self.queue or self.awaits_drain or not wire.is_clear:
                    wire.flush()
                else:
                    self.all_written()  # what a flush of nothing comes to: most of those of a join have nothing to write
        elif self.polls is not None:
            self.polls.wake()

    # -- direct writes ------------------------------------------------------------------------------------------------

    def written_in_part(self, frames: Sequence[Frame], sent: int) -> int:
        """A direct write of joined frames was cut after `sent` bytes: finish the frame that it hit, before anything else.

        Returns how many frames are accounted for: those sent whole, and the one being finished.
        """
        self.ready = False
        if self.wire is None:
            return len(frames)
        for index, frame in enumerate(frames):
            size = len(frame.wire)
            if sent >= size:
                sent -= size
            elif sent:
                self.wire.finish_frame(frame.wire[sent:])
                return index + 1
            else:
                self.wire.await_room()
                return index
        return len(frames)

    def lost(self, error: OSError) -> None:
        """The fan-out's direct write failed: the session is over."""
        if self.wire is not None:
            self.wire.lose(f"{TRANSPORT_ERROR}: {error.strerror}")

    def hold_direct(self) -> None:
        """No direct writes until as many `release_direct`: a client of this session reads the log."""
        self._holds += 1
        self.ready = False

    def release_direct(self) -> None:
        """Take one `hold_direct` back.

        Raises:
            RuntimeError: there is none.
        """
        if not self._holds:
            raise RuntimeError("release without hold")
        self._holds -= 1
        if not self._holds and not self.closed:
            self.flush()

    def cork(self) -> None:
        """Keep data back until as many `uncork`: the CONNECT packet (control) comes before what a connect handler emits."""
        self.corks += 1
        self.ready = False

    def uncork(self) -> None:
        """Take one `cork` back. Control frames go out now, and data that has waited CONNECT_HEAD_START_S later.

        Raises:
            RuntimeError: there is no cork.
        """
        if self.queue.frames:
            self.flush()
            in_hub_after(CONNECT_HEAD_START_S, self._uncork)
        else:
            self._uncork()

    def _uncork(self) -> None:
        if not self.corks:
            raise RuntimeError("uncork without cork")
        self.corks -= 1
        self.flush()

    # -- what the WebSocket asks --------------------------------------------------------------------------------------

    def next_chunk(self) -> bytes | None:
        """Hand over the next joined frames."""
        self.ready = False
        if not self.queue and not self.awaits_drain:
            return None  # as it is behind nearly every write
        frames = self.take_frames()
        if not frames:
            return None
        return frames[0].wire if len(frames) == 1 else b"".join([frame.wire for frame in frames])

    def all_written(self) -> None:
        """Everything is out: the fan-out may write directly again, unless something is corked, held or half written."""
        wire = self.wire
        self.ready = wire is not None and not (wire.writing or self.corks or self._holds or self.queue)

    # -- what the poll asks -------------------------------------------------------------------------------------------

    def has_frames(self) -> bool:
        """Whether anything may go out; clients that wait for the drained queue may have something."""
        return self.queue.has(data=not self.corks) or (self.awaits_drain and self.queue.level <= LOW_WATER)

    def take_frames(self) -> list[Frame]:
        """Remove and return what goes out next."""
        frames = self.queue.take(JOIN_BYTES, data=not self.corks)
        if self.awaits_drain and self.queue.level <= LOW_WATER:
            self.awaits_drain = False
            for owner in self.owners:
                owner.drained()
            # Newer values may have taken all out of the queue, and come back to it now.
            frames = frames or self.queue.take(JOIN_BYTES, data=not self.corks)
        return frames
