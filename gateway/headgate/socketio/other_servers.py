"""Takes sockets from other WSGI servers for WebSockets, by public names:

gevent's pywsgi     the handler is `start_response.__self__`; it stops when its `socket` attribute is None; `rfile` may hold
                    bytes from after the request
gevent-websocket    a handler of pywsgi that has already answered the request, recognized by `wsgi.websocket`
gunicorn -k gevent  the socket is `gunicorn.socket`; StopIteration from the application ends the connection; the request's
                    `unreader` may hold bytes from after it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import gevent
import gevent.socket
import gevent.ssl

from headgate.transport.detach import CannotDetach, Detached, detach, forget_body
from headgate.transport.peer_socket import NativeSocket, TlsSocket


def detach_any(environ: WSGIEnvironment, accept: bytes, first_frames: bytes = b"", *, start_response: StartResponse) -> Detached:
    """Take a request's socket from its server, as `detach` does for ours.

    Raises CannotDetach for an unknown server, and OSError if the client is gone.
    """
    if "headgate.handler" in environ:
        return detach(environ, accept, first_frames)
    if (answered := environ.get("wsgi.websocket")) is not None:
        taken = _of_handler(answered.handler, first_frames)
        answered.closed = True  # otherwise it would write a close frame when the application returns
        answered.stream = answered.raw_read = answered.raw_write = None
    elif (handler := handler_of(start_response)) is not None:
        taken = _of_handler(handler, accept + first_frames)
    elif (sock := gunicorn_socket(environ)) is not None:
        sock.sendall(accept + first_frames)
        response: Any = start_response.__self__  # type: ignore[attr-defined]
        taken = _taken(sock, response.req.unreader.take_buffered())
        taken.body = _EndedByGunicorn(taken.body)
    else:
        raise CannotDetach
    forget_body(environ)
    return taken


def socket_of(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
    """Return the socket or the connection of a request; None under an unknown server."""
    handler = handler_of(start_response)
    return environ.get("headgate.handler") or (gunicorn_socket(environ) if handler is None else handler.socket)


def handler_of(start_response: StartResponse) -> Any:
    """Return the handler of gevent's pywsgi that owns `start_response`; None under another server."""
    handler = getattr(start_response, "__self__", None)
    return handler if hasattr(handler, "rfile") and hasattr(handler, "close_connection") else None


def gunicorn_socket(environ: WSGIEnvironment) -> gevent.socket.socket | None:
    """Return the socket of a request under gunicorn, if its worker serves each connection in a separate greenlet."""
    sock = environ.get("gunicorn.socket")
    in_main = gevent.getcurrent().parent is None  # its worker runs nothing else
    return sock if isinstance(sock, gevent.socket.socket | gevent.ssl.SSLSocket) and not in_main else None


class _EndedByGunicorn:
    """A body that prevents gunicorn from answering and closing the connection."""

    def __init__(self, body: Iterable[bytes]) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        list(self._body)
        raise StopIteration


def _of_handler(handler: Any, first_bytes: bytes) -> Detached:
    sock, reader = handler.socket, handler.rfile
    if sock is None:
        raise CannotDetach("the connection is taken already")
    sock.sendall(first_bytes)
    # A client may send its first frame before it has our answer. `peek` returns buffered bytes, and reads only if there are
    # none. A detached connection must not wait for that.
    sock.settimeout(0.0)
    try:
        received = bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        received = b""
    handler.socket = None
    handler.close_connection = True
    return _taken(sock, received)


def _taken(sock: Any, received: bytes) -> Detached:
    if isinstance(sock, gevent.ssl.SSLSocket):
        ours = TlsSocket(sock)
        return Detached(ours, received, _until_closed(ours))
    plain = NativeSocket(fileno=sock.detach())
    plain.setblocking(False)
    return Detached(plain, received)


def _until_closed(sock: TlsSocket) -> Iterator[bytes]:
    """Return an empty body. Iterating waits for the end of the WebSocket, as these servers then close the TLS socket."""
    sock.closed.wait()
    yield from ()
