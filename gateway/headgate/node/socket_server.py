"""python-socketio's server as the gateway uses it: with hooks before a session, behind the CONNECT packet, and after a session.

In: an HTTP request for a session, a CONNECT that was accepted, a session that is over, from the transport. Out: the same, to
the functions that the gateway has set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.socketio import Server
from headgate.transport.server import OneTooMany


class SocketServer(Server):
    """python-socketio with hooks: what comes before a session, follows the CONNECT packet, and comes after."""

    accept_binary = False
    acknowledges_ahead = True  # a client that is behind must hear that it has subscribed; what it misses, it is told
    on_opening: Callable[[str, Mapping[str, Any]], OneTooMany | None]
    on_joined: Callable[[str, str, str], None]
    on_over: Callable[[str], None]

    def opening(self, eio_sid: str, environ: Mapping[str, Any]) -> OneTooMany | None:
        return self.on_opening(eio_sid, environ)

    def joined(self, eio_sid: str, namespace: str, sid: str) -> None:
        self.on_joined(eio_sid, namespace, sid)

    def over(self, eio_sid: str) -> None:
        self.on_over(eio_sid)
