"""A TCP proxy that breaks connections in the ways that networks do, between a gateway and its Redis, or between a browser and
its gateway.

`pause`: nothing passes, nothing is lost, as in a partition that heals before TCP gives up. `black_hole`: arriving bytes are
swallowed and no connection is closed; connections open at that time stay dead after `heal`, as with a firewall that forgot
them. `half_open`: the same in one direction only, towards the client. `reset`: every connection is reset (RST). `refuse`: new
connections are reset at once. `redirect`: new connections lead to other servers, as after a failover at one address; open ones
stay. `throttle`: so many bytes per second towards the client.

One thread for the listener and two per connection; a proxy carries a handful of connections.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType

CHUNK_BYTES = 65536
BUFFER_BYTES = 256 * 1024
CONNECT_TIMEOUT_S = 5.0
# A throttled connection passes on its share of this time, then waits for as long.
SLICE_S = 0.05
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


class ChaosProxy:
    """Listens on its own loopback port (`port`) and passes everything on to `target`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._targets = [target]
        self._listener = socket.create_server(("127.0.0.1", 0))
        _bound(self._listener)
        self.port = int(self._listener.getsockname()[1])
        self._passing = threading.Event()
        self._passing.set()
        self._changed = threading.Lock()
        self._links: set[_Link] = set()
        self._swallow = self._half = self._refuse = False
        self._bytes_per_s: float | None = None
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def pause(self) -> None:
        """Pass nothing on, lose nothing."""
        self._passing.clear()

    def black_hole(self) -> None:
        """Swallow everything; open connections are dead for good."""
        with self._changed:
            self._swallow = True
            self._doom(both=True)

    def half_open(self) -> None:
        """Swallow everything towards the client; open connections are half dead for good."""
        with self._changed:
            self._half = True
            self._doom(both=False)

    def reset(self) -> None:
        """Reset every open connection."""
        with self._changed:
            links = list(self._links)
        for link in links:
            link.reset()

    def refuse(self) -> None:
        """Reset every connection, and every new one at once."""
        with self._changed:
            self._refuse = True
        self.reset()

    def redirect(self, *targets: tuple[str, int]) -> None:
        """Lead every new connection to another server; to several in turn, if there are several."""
        self._targets = list(targets)

    def throttle(self, bytes_per_s: float | None) -> None:
        """Let at most so many bytes per second through in each direction of a connection (None: no limit)."""
        self._bytes_per_s = bytes_per_s

    def dialled_from(self) -> set[int]:
        """Return the ports of its open connections to its target."""
        with self._changed:
            return {link.port for link in self._links}

    def heal(self) -> None:
        """Pass everything on again, for living connections."""
        self._swallow = self._half = self._refuse = False
        self._bytes_per_s = None
        self._passing.set()

    def close(self) -> None:
        """Stop. Idempotent."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept, which would go on listening
        self._listener.close()
        self.heal()
        self.reset()

    def __enter__(self) -> ChaosProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            self.accepted += 1
            if self._refuse:
                _reset(near)
                continue
            far = socket.socket()
            _bound(far)
            far.settimeout(CONNECT_TIMEOUT_S)
            try:
                targets = self._targets
                far.connect(targets[self.accepted % len(targets)])
            except OSError:
                far.close()
                _reset(near)  # as the kernel of a host without a listener would
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:  # a connection of that time is for this one, too
                refused = self._refuse
                link = _Link(near, far, dead_out=self._swallow, dead_back=self._swallow or self._half)
                if not refused:
                    self._links.add(link)
            if refused:
                link.reset()
                continue
            threading.Thread(target=self._pump, args=(link, far, near, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(link, near, far, False), daemon=True).start()

    def _pump(self, link: _Link, source: socket.socket, sink: socket.socket, back: bool) -> None:
        try:
            while True:
                data = source.recv(CHUNK_BYTES)
                self._passing.wait()
                if not data:
                    break
                if link.dead_back if back else link.dead_out:
                    continue
                while data:
                    rate = self._bytes_per_s
                    size = CHUNK_BYTES if rate is None else max(1, int(rate * SLICE_S))
                    if rate is not None:
                        time.sleep(min(size, len(data)) / rate)
                    sink.sendall(data[:size])
                    data = data[size:]
        except OSError:
            pass  # reset, by us or by an end
        if not (link.dead_back or link.dead_out):
            link.close()
        with self._changed:
            self._links.discard(link)

    def _doom(self, *, both: bool) -> None:
        for link in self._links:
            link.dead_back = True
            link.dead_out = link.dead_out or both


class _Link:
    """Two sockets, one connection. A dead direction swallows its bytes."""

    def __init__(self, near: socket.socket, far: socket.socket, *, dead_out: bool, dead_back: bool) -> None:
        self.near, self.far = near, far
        self.port = int(far.getsockname()[1])
        self.dead_out, self.dead_back = dead_out, dead_back

    def close(self) -> None:
        """Close both ends as they would have been closed."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def reset(self) -> None:
        """Close both ends with RST; the pumps must not say goodbye."""
        self.dead_back = self.dead_out = True
        for end in (self.near, self.far):
            _reset(end)


def _bound(end: socket.socket) -> None:
    """Keep the kernel from holding tens of megabytes for a reader that has stopped, as it does on loopback."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
        # A thread may be inside recv. Shutdown of our reading half wakes it, and sends nothing.
        end.shutdown(socket.SHUT_RD)
    end.close()
