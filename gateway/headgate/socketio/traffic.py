"""Packets and bytes of every session, for python-socketio's Admin UI, which expects them in python-engineio's sockets."""

from __future__ import annotations

from typing import Any, Protocol

from socketio.admin import InstrumentedServer


class _Watched(Protocol):
    """A server with traffic."""

    traffic: Traffic | None


class Traffic:
    """Counts packets and bytes."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def received(self, size: int) -> None:
        """Count a message from a client."""
        self._buffer.push("packetsIn")
        self._buffer.push("bytesIn", size)

    def sent(self, packets: int, size: int) -> None:
        """Count messages to one client, or to many."""
        self._buffer.push("packetsOut", packets)
        self._buffer.push("bytesOut", size)


class Instrumented(InstrumentedServer):  # type: ignore[misc]
    """The Admin UI's instruments on one of our servers."""

    def __init__(self, server: Any, *args: object, **options: object) -> None:
        super().__init__(server, *args, **options)
        server.traffic = Traffic(self.event_buffer)

    def uninstrument(self) -> None:
        """Take the instruments off."""
        self.sio.traffic = None
        super().uninstrument()
