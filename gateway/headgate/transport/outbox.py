"""The sending half of a session. It takes frames to the browser by the current transport.

In: frames (`offer`, `offer_control`, `stream`), and the outcome of the fan-out's direct writes (`written_in_part`). Out: bytes
for the open WebSocket, which calls `next_chunk` when it has room, or frames for the waiting poll (`take_frames`).

The fan-out reads `wire` and `ready` for every client of an event. The session's transitions set `wire`. This class sets
`ready`, which is True while the WebSocket is idle, and False while anything is queued, corked, held or half written. A *cork*
keeps all data in the queue while the CONNECT packet and `welcome` go first. A *hold* stops only the fan-out, while a client of
the session reads the log through the queue. Several clients share a session, so both are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from headgate.events.wire.frames import Frame
from headgate.runtime.loop import in_hub_after

from .long_poll import LongPoll
from .send_queue import LOW_WATER, ClientQueue, FrameOwner
from .session_state import Reason
from .websocket import JOIN_BYTES, WebSocket

# Data that waited for CONNECT follows in a separate segment. A script that takes one message per turn, like the official
# protocol suite, would miss it in the same one.
CONNECT_HEAD_START_S = 0.005


class QueueOwner(FrameOwner, Protocol):
    """A client of this session."""

    direct: int
    offered: int

    def drained(self) -> None:
        """Called once after `awaits_drain` was set, when the queue has drained to LOW_WATER or the session is over."""


class Outbox:
    """See the module.

    Attributes:
        wire: the open WebSocket; None on polling and after the end of the session.
        awaits_drain: whether a client waits for the queue to drain.
        closed: whether the session is over. It then drops every frame.
        corks: how many connect handlers run. Until there are none, data stays in the queue.
        owners: the clients of the session, one per namespace.
        polls: the HTTP side of a polling session.
    """

    __slots__ = ("_holds", "awaits_drain", "closed", "corks", "owners", "polls", "queue", "ready", "wire")

    def __init__(self, queue: ClientQueue) -> None:
        self.queue = queue
        self.wire: WebSocket | None = None
        self.ready = self.awaits_drain = self.closed = False
        self.owners: tuple[QueueOwner, ...] = ()
        self.corks = self._holds = 0
        self.polls: LongPoll | None = None

    def end(self, reason: str, *, hard: bool = False) -> None:
        """End the session."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self.closed and not self.queue and not self.awaits_drain and (self.wire is None or not self.wire.writing)

    # -- frames -------------------------------------------------------------------------------------------------------

    def offer(self, frame: Frame, owner: FrameOwner | None = None) -> bool:
        """Send an event frame, or queue it. Returns False when the queue is full."""
        if self.closed:
            return True
        if not self.queue.offer(frame, owner):
            return False
        self.flush()
        return True

    def offer_control(self, frame: Frame, *, flush: bool = True) -> None:
        """Send a control frame ahead of all data. A full control lane ends the session."""
        if self.closed:
            return
        if self.queue.offer_control(frame):
            if flush:
                self.flush()
        else:
            self.end(Reason.SLOW_CONSUMER, hard=True)

    def stream(self, frames: Sequence[Frame], owner: QueueOwner) -> int:
        """Send consecutive frames of the log in one write, and queue those that the socket does not take.

        Returns how many were accepted.
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
                wire.lose(error)
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
        """Send queued frames, unless the WebSocket is waiting for room."""
        if (wire := self.wire) is not None:
            if not wire.writing:
                if self.queue.frames or self.queue.control_bytes or self.awaits_drain or not wire.is_clear:
                    wire.flush()
                else:
                    self.all_written()  # as an empty flush would; most flushes of a join are empty
        elif self.polls is not None:
            self.polls.wake()

    # -- direct writes ------------------------------------------------------------------------------------------------

    def written_in_part(self, frames: Sequence[Frame], sent: int) -> int:
        """Write the rest of the frame in which a direct write of joined frames stopped, before anything else.

        Returns how many frames were sent whole, plus that one.
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

    def hold_direct(self, is_held: bool) -> None:
        """Stop direct writes until as many calls with False. Raises RuntimeError for a False without a hold."""
        if is_held:
            self._holds += 1
            self.ready = False
            return
        if not self._holds:
            raise RuntimeError("release without hold")
        self._holds -= 1
        if not self._holds and not self.closed:
            self.flush()

    def cork(self) -> None:
        """Keep data in the queue until as many calls of `uncork`."""
        self.corks += 1
        self.ready = False

    def uncork(self, *, at_once: bool = False) -> None:
        """Undo one `cork`. Control frames go out now, and waiting data CONNECT_HEAD_START_S later, or with them if `at_once`.

        Raises RuntimeError without a cork.
        """
        if self.queue.frames and not at_once:
            self.flush()
            in_hub_after(CONNECT_HEAD_START_S, partial(self.uncork, at_once=True))
            return
        if not self.corks:
            raise RuntimeError("uncork without cork")
        self.corks -= 1
        self.flush()

    # -- what the WebSocket asks --------------------------------------------------------------------------------------

    def next_chunk(self) -> bytes | None:
        """Return the next frames, joined; None when nothing waits."""
        self.ready = False
        if not (self.queue.frames or self.queue.control_bytes or self.awaits_drain):
            return None  # the usual end of a write
        if not (frames := self.take_frames()):
            return None
        return frames[0].wire if len(frames) == 1 else b"".join([frame.wire for frame in frames])

    def all_written(self) -> None:
        """Let the fan-out write directly again, unless something is corked, held or half written."""
        wire, queue = self.wire, self.queue
        self.ready = wire is not None and not (wire.writing or self.corks or self._holds or queue.frames or queue.control_bytes)

    # -- what the poll asks -------------------------------------------------------------------------------------------

    def has_frames(self) -> bool:
        """Return whether there may be frames. A client that waits for the queue to drain may add some."""
        waiting = self.queue.control_bytes if self.corks else self.queue
        return bool(waiting) or (self.awaits_drain and self.queue.level <= LOW_WATER)

    def take_frames(self) -> list[Frame]:
        """Remove and return the next frames."""
        frames = self.queue.take(JOIN_BYTES, data=not self.corks)
        if self.awaits_drain and self.queue.level <= LOW_WATER:
            self.awaits_drain = False
            for owner in self.owners:
                owner.drained()
            # `drained` queues the latest values, for which older ones were removed.
            frames = frames or self.queue.take(JOIN_BYTES, data=not self.corks)
        return frames
