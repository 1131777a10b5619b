"""A proxy between a client and a gateway on loopback that acts like a bad proxy, when a test says so.

It forwards bytes. Without `upgrades` it takes the upgrade out of a request, as a proxy does that speaks HTTP/1.0 to its
servers; with `cuts` it cuts all connections, and answers no more, once a client of each kind is welcome: a WebSocket, and a
long poll with an answered CONNECT.
"""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from types import TracebackType

_UPGRADE = re.compile(rb"\r\nUpgrade: [^\r]*", re.IGNORECASE)


class CuttingProxy:
    """See the module. Use as a context manager."""

    def __init__(self, target: tuple[str, int], *, upgrades: bool = True, cuts: bool = False) -> None:
        self._target, self._upgrades = target, upgrades
        # What has to pass before it cuts; None: it does not.
        self._left = ["welcome", "welcome", "answer"] if cuts else None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        self._cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open += (client, server)
                    has_cut = self._left == []
                if has_cut:
                    self._cut()
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(one, other, one is client), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if is_client and not self._upgrades:
                    data = _UPGRADE.sub(b"", data)
                other.sendall(data)
                if not is_client and self._left:
                    self._see(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _see(self, data: bytes) -> None:
        with self._lock:
            for word, is_there in (("welcome", b'"welcome"' in data), ("answer", data.endswith(b"ok"))):
                if self._left and is_there and word in self._left:
                    self._left.remove(word)
            has_cut = self._left == []
        if has_cut:
            self._cut()

    def _cut(self) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
