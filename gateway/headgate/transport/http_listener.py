"""A listening socket that accepts connections while there is room (http_admission.py). Runs in the hub and never waits."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from headgate.runtime.loop import READ, Watcher, in_hub_after, io_watcher

from .http_admission import EXHAUSTED, Admission
from .http_limits import HttpLimits
from .peer_socket import NativeSocket


class Listener:
    """See the module. `take_in` gets each connection, its address, and whether there is room for it.

    Attributes:
        address: of the socket. Its port is known after `open`.
        leave_s: with several processes on the port, returns for how many seconds to leave connections to the others.
        max_accept: the most connections accepted in one turn of the loop. Connections ended for them close in the next turn.
        is_closed: whether it has left the port for good.
    """

    def __init__(
        self,
        listener: tuple[str, int] | socket.socket,
        backlog: int,
        limits: HttpLimits,
        take_in: Callable[[NativeSocket, object, bool], object],
    ) -> None:
        """`listener` is an address or a listening socket."""
        self.admission = Admission(limits, self.pause)
        self._given, self._backlog, self._take_in = listener, backlog, take_in
        self.address: Any = listener if isinstance(listener, tuple) else listener.getsockname()
        self._socket: NativeSocket | None = None
        self._watcher: Watcher | None = None
        self.is_closed = False
        self.leave_s: Callable[[], float] | None = None
        self.max_accept = 32

    @property
    def socket(self) -> NativeSocket:
        """The socket, after `open`."""
        assert self._socket is not None
        return self._socket

    def open(self) -> None:
        """Listen, but accept nothing yet. Idempotent. Raises OSError if the address is in use or not of this machine."""
        if self._socket is not None:
            return
        if isinstance(self._given, tuple):
            sock = NativeSocket(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(self.address)
                sock.listen(self._backlog)
            except OSError:
                sock.close()
                raise
        else:
            sock = NativeSocket(fileno=self._given.detach())
        sock.setblocking(False)
        self._socket, self.address = sock, sock.getsockname()

    def start(self) -> None:
        """Accept connections, unless it is closed. Idempotent. Raises as `open`."""
        self.open()
        self._accept_again()

    def pause(self, seconds: float) -> None:
        """Accept nothing for a while."""
        self._stop_accepting()
        in_hub_after(seconds, self._accept_again)

    def close(self) -> None:
        """Close this process's end of the port for good. Idempotent."""
        self.is_closed = True
        self._stop_accepting()
        if self._socket is not None:
            self._socket.close()

    def accept(self) -> None:
        """Accept the waiting connections. In the hub."""
        listener = self.socket
        for _ in range(self.max_accept):
            if self._watcher is None:
                return  # paused, or closed
            if self.leave_s is not None and (pause_s := self.leave_s()):
                self.pause(pause_s)
                return
            if (has_room := self.admission.room_for_next(listener.fileno())) is None:
                return
            try:
                # What `accept` calls. `accept` would put a cooperative socket around the descriptor, unused, for 9 µs.
                descriptor, address = listener._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                self.admission.hold()  # reopens the lent descriptor before other code of ours takes the number
                return
            except OSError as error:
                self.admission.hold()
                if error.errno in EXHAUSTED:
                    self.admission.exhausted(error)
                    return
                continue  # the client is gone, or a packet filter refuses it
            sock = NativeSocket(listener.family, listener.type, listener.proto, descriptor)
            sock.setblocking(False)
            self._take_in(sock, address, has_room)

    def _accept_again(self) -> None:
        if not self.is_closed and self._watcher is None:
            self.admission.hold()
            self._watcher = io_watcher(self.socket.fileno(), READ)
            self._watcher.start(self.accept)

    def _stop_accepting(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
