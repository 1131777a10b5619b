"""The connection of a client, as the client needs it, and the one of a client that has left. No I/O.

In: frames of events and notices from one client (client.py); a connection carries one client per namespace. Out: to the fan-out,
whether it may write to the socket directly. node/connection.py implements it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headgate.protocol.frames import Frame
from headgate.transport.send_queue import ClientQueue

if TYPE_CHECKING:
    from .client import Client


class ClientConnection(Protocol):
    """The connection of a client, as the client needs it.

    `awaits_drain` asks it to call `drained` of its clients, once, when its queue has drained to LOW_WATER.
    """

    queue: ClientQueue
    wire: Any
    ready: bool
    awaits_drain: bool
    closed: bool

    @property
    def idle(self) -> bool:
        """Whether nothing waits to go out."""

    def offer(self, frame: Frame, owner: Client | None = None) -> bool:
        """Queue or send an event frame; False when there is no room."""

    def offer_control(self, frame: Frame) -> None:
        """Send a notice ahead of events."""

    def flush(self) -> None:
        """Let what is queued go out."""

    def written_in_part(self, frames: Sequence[Frame], sent: int) -> int:
        """A direct write was cut after `sent` bytes: finish the frame that it hit; returns how many frames are accounted for."""

    def lost(self, error: OSError) -> None:
        """The socket is broken."""

    def end(self, reason: str) -> None:
        """End the session."""

    def stream(self, frames: Sequence[Frame], owner: Client) -> int:
        """Send consecutive frames of the log, or queue what the socket does not take; returns how many were accepted."""

    def hold_direct(self) -> None:
        """No direct writes by the fan-out until `release_direct`; counted, as several clients may ask for it."""

    def release_direct(self) -> None:
        """Take one `hold_direct` back."""


class _NoConnection:
    """The connection of a client that has left: it takes nothing, and owes nothing."""

    queue = ClientQueue(1, 1)
    wire = None
    ready = False
    awaits_drain = False
    idle = False
    closed = True

    def offer_control(self, frame: Frame) -> None:
        """Nobody is told."""


NO_CONNECTION: Any = _NoConnection()
