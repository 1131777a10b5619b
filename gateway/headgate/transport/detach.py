"""Sockets under the HTTP server: `detach` takes one away for a WebSocket; `PollWatch` notices that a waiting poll was aborted.

A detached connection needs neither greenlet nor request object any more. Private corners of pywsgi that are met here, each
with a contract test: the handler is `start_response.__self__`; it lets go of a socket when its `socket` attribute is None;
`rfile` may hold bytes that came in behind the request.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import gevent.ssl
from gevent import pywsgi

from headgate.runtime.loop import READ, Watcher, io_watcher

from .http_handler import HttpHandler
from .http_limits import Part


class CannotDetach(Exception):
    """The WSGI server is not gevent's pywsgi over a plain socket: there is nothing to take over."""


def detach(environ: dict[str, Any], start_response: Any, first_bytes: bytes) -> tuple[int, bytes]:
    """Take the request's socket away from the HTTP server and write `first_bytes` to it.

    Returns:
        The file descriptor, non-blocking, now the caller's to close; the bytes already received behind the request.

    Raises:
        CannotDetach: under another WSGI server, or over TLS inside this process (terminate TLS in front of it).
        OSError: the client is gone.
    """
    handler = _handler_of(environ, start_response)
    if handler is None or isinstance(handler.socket, gevent.ssl.SSLSocket):
        raise CannotDetach("WebSocket needs gevent's pywsgi server over a plain socket (TLS ends in front of it)")
    sock, reader = handler.socket, handler.rfile
    sock.sendall(first_bytes)
    # A client may send its first frame without waiting for our answer: it then sits in the reader's buffer. `peek` returns what
    # is buffered, and asks for more only if nothing is; a detached connection waits for none.
    if isinstance(handler, HttpHandler):
        handler.part = Part.DETACHED
    sock.settimeout(0.0)  # where the handler is not ours
    received = _buffered(reader)
    handler.socket = None
    handler.close_connection = True
    environ["wsgi.input"] = BytesIO()  # the reader behind it would keep 8 KiB for as long as anyone keeps the environ
    environ.pop("headgate.handler", None)
    return sock.detach(), received


class PollWatch:
    """Watches the socket of a waiting long-poll for its end."""

    def __init__(self, environ: Mapping[str, Any], start_response: Any) -> None:
        handler = _handler_of(environ, start_response)
        self._sock = getattr(handler, "socket", None)
        self._watcher: Watcher | None = None
        self._wake: Callable[[], Any] | None = None
        self.aborted = False

    def start(self, wake: Callable[[], Any]) -> None:
        """Start watching, with a first look at once; does nothing under a server whose socket we cannot see."""
        if self._sock is not None:
            self._wake = wake
            self._watcher = io_watcher(self._sock.fileno(), READ)
            self._watcher.start(self._readable)
            self._readable()

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None

    def _readable(self) -> None:
        try:
            ended = self._sock._sock.recv(1, socket.MSG_PEEK) == b"" if self._sock is not None else True
        except BlockingIOError:
            return
        except OSError:
            ended = True
        self.stop()  # bytes mean a pipelined request, which waits its turn
        if ended:
            self.aborted = True
            if self._wake is not None:
                self._wake()


def _handler_of(environ: Mapping[str, Any], start_response: Any) -> Any:
    handler = environ.get("headgate.handler") or getattr(start_response, "__self__", None)
    return handler if isinstance(handler, pywsgi.WSGIHandler) else None


def _buffered(reader: Any) -> bytes:
    try:
        return bytes(reader.peek()) if hasattr(reader, "peek") else b""
    except OSError:
        return b""
