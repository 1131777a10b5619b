"""One HTTP connection, from its first byte to its last: its requests are read one after the other, and answered in order.

In: a socket that the server has accepted. It waits for its first request in the loop, without a greenlet; a route that never
waits (http_routes.NeverWaits), as the one for WebSockets, answers it there. Anything else has a greenlet, `serve`, until the
connection is over.

`take_socket` gives the socket away: to a WebSocket (detach.py). A request that names the session of another process that shares
the port goes there, with its connection and the bytes that have been read of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import structlog

from headgate.metrics import HTTP_ENDED
from headgate.runtime.loop import READ, Watcher, io_watcher, spawn, unwatch

from .http_answers import LATE_HEADERS, Answer, error_answer, http_error
from .http_channel import LINGER_S, Channel, TooSlow
from .http_incoming import READ_BYTES, Incoming
from .http_limits import HttpLimits, Part
from .http_parser import Bad, ParserState, Request, RequestParser
from .http_responder import FAILED, AnsweringServer, Asked, Responder, route_for
from .http_routes import NeverWaits, Routed
from .peer_socket import PeerSocket, TlsPeer

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

log = structlog.get_logger("headgate.wsgi")

# A request that names its session, which may be another process's where several share the port.
NAMES_SESSION = "sid="
_LATE = "408 Request Timeout", LATE_HEADERS


class ConnectionServer(AnsweringServer, Protocol):
    """The server that accepted the connection (http_server.py)."""

    @property
    def limits(self) -> HttpLimits:
        """The limits in force."""

    to_owner: Callable[[bytes, int], bool] | None
    """Takes a connection whose session is another process's; None where this process has the port for itself."""

    def silent(self, connection: HttpConnection) -> None:
        """A connection waits in the hub for its first byte: `read_first` is to be called when it comes."""

    def speaks(self, connection: HttpConnection) -> None:
        """It does so no more."""

    def waits(self, connection: HttpConnection) -> None:
        """A connection waits for its peer from now on."""

    def works(self, connection: HttpConnection) -> None:
        """A request is being answered from now on."""

    def between_requests(self, connection: HttpConnection) -> None:
        """A connection waits for its next request."""

    def has_reserved_place(self, connection: HttpConnection) -> bool:
        """Return whether a connection has a place of those for health pages: for one request."""

    def refusal(self, connection: HttpConnection, environ: WSGIEnvironment) -> Answer | None:
        """Let a request count; return the answer that refuses it if there is no room for it."""

    def over(self, connection: HttpConnection) -> None:
        """A connection is over, or another's. Idempotent."""


class HttpConnection:
    """See the module.

    Attributes:
        is_taken: whether the socket is another's.
        waits_since_s: when it began to wait for its first byte, on the monotonic clock; 0 where that was there.
    """

    __slots__ = (
        *("_address", "_asked", "_channel", "_is_adopted", "_parser", "_peer", "_pending", "_server", "_watcher"),
        *("is_taken", "waits_since_s"),
    )

    def __init__(
        self, server: ConnectionServer, peer: PeerSocket, address: object, received: bytes = b"", *, is_adopted: bool = False
    ) -> None:
        """`received` is what another process, which has accepted the connection (`is_adopted`), has read of it."""
        self._server, self._peer, self._address, self._is_adopted = server, peer, address, is_adopted
        self._parser = RequestParser(received)
        self._channel: Channel | None = None
        self._pending: Request | Bad | None = None
        self._asked: Asked | None = None
        self._watcher: Watcher | None = None
        self.waits_since_s = 0.0
        self.is_taken = False

    # -- in the hub, before there is a greenlet -------------------------------------------------------------------------

    def read_first(self) -> None:
        """Read what there is, and see to it; wait for the first byte when there is nothing yet. In the hub."""
        try:
            received = self._peer.recv(READ_BYTES)
        except BlockingIOError:
            if self._watcher is None:
                self.waits_since_s = time.monotonic()
                self._watcher = io_watcher(self.fileno(), READ)
                self._watcher.start(self.read_first)
                self._server.silent(self)
            return
        except OSError:
            received = b""
        waited_s = time.monotonic() - self.waits_since_s if self.waits_since_s else 0.0
        self._stop_watcher()
        if not received:
            self.close()
            return
        self._parser.feed(received)
        event = self._parser.next_event()
        if isinstance(event, Request | Bad):
            self._pending = event
            if isinstance(event, Request) and not event.body_bytes and not self.is_foreign(event):
                route = route_for(self._server, event)
                if isinstance(route, NeverWaits):
                    self._ask_in_hub(event, route)
                    return
        spawn(self.serve, waited_s)

    def _ask_in_hub(self, request: Request, route: NeverWaits) -> None:
        environ = request.environ(self._server.environ(), self._address)
        environ["headgate.handler"] = self
        self._server.works(self)  # or it would be ended itself, for one too many of its address
        try:
            self._asked = Asked(self.refusal(environ) or route(Routed(bytes, request, route, environ)))
        except OSError:
            pass  # of the connection: nobody is there to be answered
        except Exception:
            log.exception("route failed", path=request.path)
            if not self.is_taken:  # or it is the route's
                with suppress(OSError):
                    self._peer.send(error_answer(*FAILED).to_bytes(time.time(), close=True))
        if self.is_taken or self._asked is None:
            self.close()
        else:
            spawn(self.serve)

    def _stop_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
            self._server.speaks(self)

    # -- in a greenlet --------------------------------------------------------------------------------------------------

    def serve(self, waited_s: float = 0.0) -> None:
        """Answer the requests of the connection until it is over. Switches greenlets.

        Args:
            waited_s: for how long its peer has kept us waiting already.
        """
        server, peer = self._server, self._peer
        self._stop_watcher()
        channel = self._channel = Channel(peer, server.limits, lambda: server.waits(self), waited_s)
        incoming = Incoming(channel, self._parser, server.limits.max_chunked_bytes)
        responder = Responder(self, server, channel, incoming, self._address)
        try:
            with suppress(OSError):
                if isinstance(peer, TlsPeer):
                    peer.shake_hands(server.limits.header_deadline_s)
                peer.set_options(server.limits.send_buffer_bytes)
                while self._serve_next(channel, incoming, responder):
                    pass
                if not self.is_taken:
                    channel.linger_if_unread()
            if self._is_adopted and not self.is_taken:
                # The process that accepted it may be too busy to have closed it: we close ours first.
                peer.stop()
                unwatch(peer.fileno(), LINGER_S)
        finally:
            self._channel = self._pending = None
            self.close()

    def close(self) -> None:
        """End the connection, unless it is another's; it counts no more. Idempotent."""
        self._stop_watcher()
        if not self.is_taken or isinstance(self._peer, TlsPeer):
            self._peer.close()
        self._server.over(self)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._peer.fileno()

    def refusal(self, environ: WSGIEnvironment) -> Answer | None:
        """Let a request count; return the answer that refuses it if there is no room for it."""
        return self._server.refusal(self, environ)

    def has_reserved_place(self) -> bool:
        """Return whether it has a place of those for health pages: for one request."""
        return self._server.has_reserved_place(self)

    def count_as_client(self) -> None:
        """Count it no more among the HTTP connections: its answer is a client's events, and ends with the connection."""
        self._server.over(self)

    def is_foreign(self, request: Request) -> bool:
        """Return whether a request may name the session of another process."""
        return self._server.to_owner is not None and NAMES_SESSION in request.query and self._peer.is_plain

    def take_socket(self, first_bytes: bytes, *, takes_unsent: bool = False) -> tuple[PeerSocket, bytes, bytes]:
        """Give the socket away: write `first_bytes`, and read, write and close it no more. May switch greenlets.

        Returns:
            The socket, the bytes that have come behind the request, and what the caller has to write before anything else: the
            first bytes, where there is no greenlet yet and it `takes_unsent`.

        Raises:
            OSError: the client is gone, or the socket is another's already.
        """
        if self.is_taken:
            raise ConnectionResetError("this connection has been taken")
        unsent = b""
        if self._channel is not None:
            self._channel.send(first_bytes)
            self._channel.begin(Part.DETACHED)
        elif takes_unsent:
            unsent = first_bytes
        elif self._peer.send(first_bytes) < len(first_bytes):
            raise ConnectionResetError("no room for the first answer of a connection")
        self._peer.stop()
        self.is_taken = True
        self._server.over(self)
        return self._peer, self._parser.leave(), unsent

    def _serve_next(self, channel: Channel, incoming: Incoming, responder: Responder) -> bool:
        """Answer the next request; return whether the connection goes on."""
        pending, self._pending = self._pending or responder.take_pending(), None
        try:
            request = pending or incoming.request()
        except TooSlow:
            if channel.part is Part.HEADERS and self._parser.held:
                channel.send(error_answer(*_LATE).to_bytes(time.time(), close=True))
            raise
        if isinstance(request, Bad):
            HTTP_ENDED.labels("bad request").inc()
            code = request.status[4:].lower().replace(" ", "_")
            channel.send(error_answer(request.status, http_error(code, request.reason)).to_bytes(time.time(), close=True))
        if not isinstance(request, Request) or (self.is_foreign(request) and self._hand_over(channel)):
            return False
        channel.begin(Part.BODY)
        self._server.works(self)
        asked, self._asked = self._asked, None
        if not responder.answer(request, asked):
            return False
        if self._parser.state is ParserState.WHOLE:
            self._parser.next_request()
        channel.begin(Part.IDLE)
        self._server.between_requests(self)
        return True

    def _hand_over(self, channel: Channel) -> bool:
        """Hand the connection to the owner of its next request's session; return whether it was. Switches greenlets."""
        peer, to_owner, is_taken = self._peer, self._server.to_owner, True
        assert to_owner is not None
        peer.stop()
        try:
            is_taken = to_owner(self._parser.block + self._parser.held, peer.fileno())
            if is_taken:
                unwatch(peer.fileno(), LINGER_S)
        finally:  # killed in the wait, too: it may be the owner's by now, and then nobody else may read it
            if is_taken:
                channel.begin(Part.DETACHED)
                self._server.over(self)
                self.is_taken = True
                peer.close()
        return is_taken
