"""One HTTP connection. It reads its requests one after the other, and http_exchange.py answers them in order.

A connection is the channel of its bodies and answers (http_channel.py). It waits for a request in the loop, without a greenlet,
and reads its head there. A greenlet (`serve`) answers those that the loop cannot, and all that have been read after them.

`take_socket` gives the socket to a WebSocket (detach.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headgate.runtime.loop import Idle, sleep, spawn, unwatch
from headgate.runtime.metrics import HTTP_ENDED

from . import http_exchange
from .http_channel import LINGER_S, READ_BYTES, Channel
from .http_parser import BadRequest, ParserState, Request, RequestParser
from .http_routes import RoutedRequest
from .peer_socket import ClientSocket, PeerSocket, set_options

if TYPE_CHECKING:
    from .http_server import HTTPServer

# A timer needs some time. Bytes that have come are read before the end of it.
LEAST_S = 1e-6


class HttpConnection(Channel):
    """See the module. If it `is_taken`, its socket has another owner, and if it `is_reserved`, it has a reserved place.

    `address` is that of the peer, and `routed` the last request, if it has a route. It `is_idle` until the next one is parsed.
    """

    __slots__ = (
        *("_is_adopted", "is_idle", "_is_served", "_rest", "_step", "_until_late_s", "address", "fileno", "is_reserved"),
        *("is_taken", "routed", "server"),
    )

    def __init__(
        self, server: HTTPServer, peer: PeerSocket, address: object, received: bytes = b"", *, is_adopted: bool = False
    ) -> None:
        """If another process accepted the connection (`is_adopted`), `received` has the bytes that it read."""
        super().__init__(peer, RequestParser(received), server.admission.limits)
        self.server, self.address, self._is_adopted = server, address, is_adopted
        self.fileno: Callable[[], int] = peer.fileno
        self.routed: RoutedRequest | None = None
        # How long the peer may still delay the head, or, if the connection is idle, the first byte of it.
        self._until_late_s = self.limits.header_deadline_s
        # The greenlet between two requests, and how it goes on.
        self._rest: Idle | None = None
        self._step: Callable[[], bool] = _end_it
        self.is_idle = self._is_served = self.is_taken = self.is_reserved = False

    def waits(self) -> None:
        self.server.connections.wait(self)

    # -- the next request, in the hub -----------------------------------------------------------------------------------

    def begin(self, asked: http_exchange.Asked = ()) -> None:
        """Answer the first request if it is there, otherwise wait for it. Does not switch greenlets."""
        if (event := self.parser.next_event() if self.parser.held else None) is None:
            self._arrived()
        else:
            http_exchange.begin(self, event, asked)

    def wait(self) -> None:
        """Wait for the rest of the next request, or for its first byte. Does not switch greenlets."""
        left_s = self._until_late_s
        self.peer.await_bytes(left_s if left_s > LEAST_S else LEAST_S, self._arrived)

    def next_request(self) -> Request | BadRequest | bytes | None:
        """End the current request; return the next one if it has been read. The caller waits for it otherwise."""
        parser, limits = self.parser, self.limits
        if parser.state is ParserState.WHOLE:
            parser.next_request()
        self.server.admission.between_requests(self)
        self.is_idle = not parser.held
        self._until_late_s = limits.keep_alive_s if self.is_idle else limits.header_deadline_s
        return None if self.is_idle else parser.next_event()

    def _arrived(self, in_time: bool = True) -> None:
        """Read more of the next request, if it has come."""
        event: Request | BadRequest | bytes | None = None
        try:
            data = self.peer.recv(READ_BYTES)
        except BlockingIOError:
            if not in_time:  # known only now, because after a stall of the process timers run before sockets
                if not self.is_idle:
                    HTTP_ENDED.labels("headers deadline").inc()
                if self.parser.held:
                    self.go_on(partial(http_exchange.finish, self, http_exchange.LATE.to_bytes(time.time()), ends=True))
                else:
                    self.end()
                return
        except OSError:
            self.end()
            return
        else:
            if self.is_idle:
                routed, body = self.routed, self.parser.repeated(data)
                if body is not None and routed is not None and http_exchange.begin_here(self, routed, body):
                    return
                self.is_idle, self._until_late_s, in_time = False, self.limits.header_deadline_s, False
            if data:
                self.parser.feed(data)
                event = self.parser.next_event()
            elif (event := self.parser.end()) is None:
                self.end()
                return
        if event is None:
            self._until_late_s -= self.peer.waited_s if in_time else 0.0
            self.wait()
        else:
            http_exchange.begin(self, event)

    def end(self) -> None:
        """End the connection, in the hub."""
        if self._is_adopted or self._rest is not None:
            self.go_on(_end_it)
        else:
            self.close()

    def go_on(self, step: Callable[[], bool]) -> None:
        """Go on in a greenlet with `step`, which returns whether the connection goes on after it."""
        if self._rest is None:
            spawn(self._serve, step)
        else:
            self._step = step
            self._rest.wake()
            self._rest = None

    # -- in a greenlet --------------------------------------------------------------------------------------------------

    def _serve(self, step: Callable[[], bool]) -> None:
        """Answer requests until the connection is over. Between them the greenlet rests, as another one costs 50 µs."""
        if not self.sent_bytes:
            with suppress(OSError):
                set_options(self.peer.sock, self.limits.send_buffer_bytes)
        self._is_served = True
        try:
            with suppress(OSError):
                while step():
                    if (event := self.next_request()) is not None:
                        sleep()  # it had already arrived, and the next one may have, too
                        step = partial(http_exchange.answer, self, event)
                        continue
                    self._is_served, self._rest = False, (rest := Idle())
                    self.wait()
                    rest.wait()
                    step, self._step = self._step, _end_it
                    self._is_served = True
                if not self.is_taken:
                    self.linger_if_unread()
            if self._is_adopted and not self.is_taken:
                # The process that accepted it may not have closed its descriptor yet.
                self.peer.stop()
                unwatch(self.fileno(), LINGER_S)
        finally:
            self._is_served, self._rest = False, None
            self.close()

    def write(self, data: bytes) -> None:
        """Write part of the current answer. Switches greenlets; raises as `Channel.send`."""
        if self.is_taken or not self._is_served:
            raise BrokenPipeError("the connection is taken")
        self.send(data)

    # -- the end --------------------------------------------------------------------------------------------------------

    def ends_after(self, request: Request) -> bool:
        """Return whether it ends with an answer that begins now."""
        server = self.server
        return self.is_reserved or request.ends or server.is_leaving or server.is_closed or not self.limits.keep_alive_s

    def close(self) -> None:
        """End the connection, unless it is taken, and stop counting it. Idempotent."""
        self.routed = None  # it refers to the connection
        if not self.is_taken:
            self.peer.close()
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
        self.routed = None
        self.server.connections.close(self)
        if self._rest is not None:
            self.go_on(_end_it)


def _end_it() -> bool:
    """Be the last step of a connection."""
    return False
