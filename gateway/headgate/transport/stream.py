"""The connection of a client that reads a stream, which is an endless HTTP answer or the answer to one long-poll.

Frames wait as in any outbox (outbox.py) until the greenlet of the request takes them. The request has the cursor, so the next
stream repeats events lost with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.events.wire.frames import Frame
from headgate.runtime.loop import Signal

from .frame_parser import NORMAL
from .limits import TransportLimits
from .outbox import Outbox
from .send_queue import ALL_BYTES, ClientQueue
from .session_state import Reason


class Stream(Outbox):
    """See the module. `reason` is why it ended; None while it is open."""

    __slots__ = ("_wake", "environ", "reason", "sid")
    transport = "stream"

    def __init__(self, sid: str, environ: Mapping[str, Any], limits: TransportLimits) -> None:
        super().__init__(ClientQueue(limits.queue_frames, limits.queue_bytes))
        self.sid, self.environ = sid, environ
        self.reason: str | None = None
        self._wake = Signal()

    def flush(self) -> None:
        self._wake.set()

    def take(self, wait_s: float, is_given_up: Callable[[], bool] = lambda: False) -> list[Frame] | None:
        """Return the next frames; an empty list after `wait_s`; None when the stream is over. Switches greenlets."""
        if not (self.closed or self.has_frames() or is_given_up()):
            self._wake.clear()
            self._wake.wait(wait_s)
        if is_given_up():
            self.end(Reason.TRANSPORT_CLOSE, abort=True)
        if not self.closed:
            return self.take_frames()
        # Notices of the end are sent. The waiting events are in the log.
        final = self.queue.take(ALL_BYTES, data=False)
        self.queue.clear()
        return final or None

    def end(self, reason: str, *, abort: bool = False, code: int = NORMAL, shown: str = "", hard: bool = False) -> None:
        """End the stream after the waiting notices, which `abort` and `hard` drop. The next request gets waiting events.

        `code` and `shown` are unused, because HTTP has no close frame. Idempotent; never waits.
        """
        if self.closed:
            return
        self.closed, self.reason = True, reason
        if abort or hard:
            self.queue.clear()
        self._wake.set()
