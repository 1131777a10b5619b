"""One HTTP connection. It reads its requests one after the other, and http_exchange.py answers them in order.

It waits for a request in the loop, without a greenlet, and reads its head there. A greenlet (`serve`) answers those that the
loop cannot, and all that have been read after them.

`take_socket` gives the socket to a WebSocket (detach.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headgate.runtime.loop import sleep, spawn, unwatch
from headgate.runtime.metrics import HTTP_ENDED

from . import http_exchange
from .http_channel import LINGER_S, READ_BYTES, Channel
from .http_parser import BadRequest, ParserState, Request, RequestParser
from .http_routes import RoutedRequest
from .peer_socket import ClientSocket, PeerSocket, set_options

if TYPE_CHECKING:
    from .http_server import HTTPServer


class HttpConnection:
    """See the module. If it `is_taken`, its socket has another owner, and if it `is_reserved`, it has a reserved place.

    Attributes:
        address: of the peer.
        parser, peer: its requests and its socket, for http_exchange.py.
        routed: the last request, if it has a route.
    """

    __slots__ = (
        *("_channel", "_is_adopted", "_is_idle", "_is_served", "_left_s", "address", "fileno", "is_reserved", "is_taken"),
        *("parser", "peer", "routed", "server"),
    )

    def __init__(
        self, server: HTTPServer, peer: PeerSocket, address: object, received: bytes = b"", *, is_adopted: bool = False
    ) -> None:
        """If another process accepted the connection (`is_adopted`), `received` has the bytes that it read."""
        self.server, self.peer, self.address, self._is_adopted = server, peer, address, is_adopted
        self.fileno: Callable[[], int] = peer.fileno
        self.parser = RequestParser(received)
        self._channel: Channel | None = None
        self.routed: RoutedRequest | None = None
        # How long the peer may still delay the head, or, if the connection is idle, the first byte of it.
        self._left_s = server.admission.limits.header_deadline_s
        self._is_idle = self._is_served = self.is_taken = self.is_reserved = False

    @property
    def channel(self) -> Channel:
        """The bytes of bodies and answers. Made when it is first needed, because a WebSocket needs none."""
        if self._channel is None:
            limits, connections = self.server.admission.limits, self.server.connections
            self._channel = Channel(self.peer, self.parser, limits, lambda: connections.wait(self))
            with suppress(OSError):
                set_options(self.peer.sock, limits.send_buffer_bytes)
        return self._channel

    @property
    def has_answered(self) -> bool:
        """Whether it has sent anything."""
        return self._channel is not None and self._channel.sent_bytes > 0

    # -- the next request, in the hub -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Answer the first request if it is there, otherwise wait for it. Does not switch greenlets."""
        if (event := self.parser.next_event()) is None:
            self._arrived(0.0)
        else:
            http_exchange.begin(self, event)

    def wait(self) -> None:
        """Wait for the rest of the next request, or for its first byte. Does not switch greenlets."""
        if self._left_s > 0:
            self.peer.await_bytes(self._left_s, self._arrived)
        else:
            self._arrived(None)

    def next_request(self) -> Request | BadRequest | bytes | None:
        """End the current request; return the next one if it has been read. The caller waits for it otherwise."""
        parser, limits = self.parser, self.server.admission.limits
        if parser.state is ParserState.WHOLE:
            parser.next_request()
        self.server.admission.between_requests(self)
        self._is_idle = not parser.held
        self._left_s = limits.keep_alive_s if self._is_idle else limits.header_deadline_s
        return None if self._is_idle else parser.next_event()

    def _arrived(self, waited_s: float | None) -> None:
        """Read more of the next request. The peer has delayed us by `waited_s`; None means for too long."""
        event: Request | BadRequest | bytes | None = None
        try:
            data = self.peer.recv(READ_BYTES)
        except BlockingIOError:
            if waited_s is None:  # known only now, because after a stall of the process timers run before sockets
                self._end_late()
                return
        except OSError:
            self._end()
            return
        else:
            if self._is_idle:
                self._is_idle, self._left_s, waited_s = False, self.server.admission.limits.header_deadline_s, 0.0
            if data:
                self.parser.feed(data)
                event = self.parser.next_event()
            elif (event := self.parser.end()) is None:
                self._end()
                return
        if event is None:
            self._left_s -= waited_s or 0.0
            self.wait()
        else:
            http_exchange.begin(self, event)

    def _end_late(self) -> None:
        if not self._is_idle:
            HTTP_ENDED.labels("headers deadline").inc()
        if self.parser.held:
            spawn(self.serve, partial(http_exchange.answer_late, self))
        else:
            self._end()

    def _end(self) -> None:
        if self._is_adopted:
            spawn(self.serve, lambda: False)
        else:
            self.close()

    # -- in a greenlet --------------------------------------------------------------------------------------------------

    def serve(self, step: Callable[[], bool]) -> None:
        """Answer a request by `step`, which returns whether the connection goes on, then others that have been read.

        Switches greenlets.
        """
        is_over = self._is_served = True
        try:
            with suppress(OSError):
                while step():
                    if (event := self.next_request()) is None:
                        is_over = False
                        return
                    sleep()  # it had already arrived, and the next one may have, too
                    step = partial(http_exchange.answer, self, event)
                if not self.is_taken:
                    self.channel.linger_if_unread()
            if self._is_adopted and not self.is_taken:
                # The process that accepted it may not have closed its descriptor yet.
                self.peer.stop()
                unwatch(self.fileno(), LINGER_S)
        finally:
            self._is_served = False
            if is_over:
                self.close()
            else:
                self.wait()

    def write(self, data: bytes) -> None:
        """Write part of the current answer. Switches greenlets; raises as `Channel.send`."""
        if self.is_taken or not self._is_served:
            raise BrokenPipeError("the connection is taken")
        self.channel.send(data)

    # -- the end --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection, unless it is taken, and stop counting it. Idempotent."""
        self._channel = self.routed = None  # they refer to it
        if not self.is_taken:
            self.peer.close()
            self.server.connections.close(self)

    def count_as_client(self) -> None:
        """Stop counting it as a connection, because its answer is a stream, which counts as a client."""
        self.server.connections.close(self)

    def take_socket(self, first_bytes: bytes) -> tuple[ClientSocket, bytes, bytes]:
        """Write `first_bytes` and give the socket away, with the bytes after the request. May switch greenlets.

        Last in the result are the bytes that the caller must write, which are the first ones if there is no greenlet. Raises
        OSError if the client is gone or the socket is taken.
        """
        if self.is_taken:
            raise ConnectionResetError("this connection has been taken")
        unsent = first_bytes
        if self._is_served:
            self.write(first_bytes)
            unsent = b""
        self.leave()
        return self.peer.sock, self.parser.leave(), unsent

    def leave(self) -> None:
        """Give the connection to another owner."""
        self.peer.stop()
        self.is_taken = True
        self._channel = self.routed = None
        self.server.connections.close(self)
