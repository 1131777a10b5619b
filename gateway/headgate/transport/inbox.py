"""The inbox of one session: messages on their way to the application, in order, one at a time, and not too many.

In: complete messages from the WebSocket or from POST bodies (`put`). Out: `InboxOwner.deliver`, in a greenlet that exists only
while messages wait; `pause` when too much waits (the owner then stops reading, and the browser's sends back up into its own
socket), `resume` when it may go on; `emptied` when nothing waits any more: the inbox can be forgotten, and usually is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from headgate.runtime.loop import sleep

# So much may wait for the application before we stop reading; at the lower level we go on.
FULL_MESSAGES, LOW_MESSAGES = 64, 16
FULL_BYTES, LOW_BYTES = 1024 * 1024, 256 * 1024
# How long the messages of one session are worked on before everybody else has a turn: 64 costly joins are 100 ms.
SLICE_S = 0.005


class InboxOwner(Protocol):
    """The receiver of the session."""

    def start(self, work: Callable[[], None]) -> None:
        """Run this in a greenlet, starting in the next turn of the loop."""

    def deliver(self, message: str | bytes) -> None:
        """Hand one message to the application. May wait; the owner handles what it raises."""

    def pause(self) -> None:
        """Too much waits: take nothing more from the browser."""

    def resume(self) -> None:
        """There is room again."""

    def emptied(self) -> None:
        """Everything was delivered, or discarded; called in the inbox's greenlet, its last act."""


class Inbox:
    """See the module. Made for a first message; of no use after `emptied`."""

    __slots__ = ("_bytes", "_messages", "_owner", "_working", "paused")

    def __init__(self, owner: InboxOwner) -> None:
        self._owner = owner
        self._messages: deque[str | bytes] = deque()
        self._bytes = 0
        self._working = False
        self.paused = False

    def put(self, message: str | bytes) -> None:
        """Append a message. Never waits, never refuses: an owner that has been paused does not call it."""
        self._messages.append(message)
        self._bytes += len(message)
        if not self.paused and (len(self._messages) >= FULL_MESSAGES or self._bytes >= FULL_BYTES):
            self.paused = True
            self._owner.pause()
        if not self._working:
            self._working = True
            self._owner.start(self._work)

    def discard(self) -> None:
        """Forget the messages that wait: the server has ended the session."""
        self._messages.clear()
        self._bytes = 0

    def _work(self) -> None:
        since_s = monotonic()
        try:
            while self._messages:
                message = self._messages.popleft()
                self._bytes -= len(message)
                if self.paused and len(self._messages) <= LOW_MESSAGES and self._bytes <= LOW_BYTES:
                    self.paused = False
                    self._owner.resume()
                self._owner.deliver(message)
                if self._messages and monotonic() - since_s > SLICE_S:
                    sleep()
                    since_s = monotonic()
        finally:
            self._owner.emptied()
