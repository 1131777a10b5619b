"""The direct-write gate of a session: may the fan-out write to the WebSocket directly? No I/O.

In: counted reasons to wait. A *cork* keeps all data in the queue (the CONNECT packet and `welcome` go first); a *hold* keeps
only the fan-out out (a client of the session reads the log, and its pages go through the queue). Several clients share a
session, so both are counted. Out: one answer, `lets_through`, which the session keeps in its plain attribute `ready` for the
fan-out to read: it asks once per WebSocket that has become idle, not once per event.
"""

from __future__ import annotations

from typing import Protocol


class GatedSocket(Protocol):
    """The WebSocket behind the gate."""

    writing: bool


class WriteGate:
    """Counts what keeps the fan-out from writing directly."""

    __slots__ = ("_corks", "_holds")

    def __init__(self) -> None:
        self._corks = self._holds = 0

    @property
    def corked(self) -> bool:
        """Whether data has to stay in the queue; control frames go out nevertheless."""
        return self._corks > 0

    def cork(self) -> None:
        """Keep data in the queue until as many `uncork`."""
        self._corks += 1

    def uncork(self) -> None:
        """Take one `cork` back.

        Raises:
            RuntimeError: there is none.
        """
        if not self._corks:
            raise RuntimeError("uncork without cork")
        self._corks -= 1

    def hold(self) -> None:
        """Keep the fan-out out until as many `release`."""
        self._holds += 1

    def release(self) -> bool:
        """Take one `hold` back; return whether it was the last.

        Raises:
            RuntimeError: there is none.
        """
        if not self._holds:
            raise RuntimeError("release without hold")
        self._holds -= 1
        return not self._holds

    def lets_through(self, socket: GatedSocket | None, waiting: bool) -> bool:
        """Answer whether the fan-out may write to this WebSocket directly: nothing is corked, held, waiting or half written."""
        return socket is not None and not waiting and not socket.writing and not self._corks and not self._holds
