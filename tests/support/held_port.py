"""A loopback port for a server of ours that is ended and started again, which no other program gets in between.

The kernel gives every free port to any program that asks, as tests beside this one do, and even to a client that dials it
without a listener. That connects to itself, and keeps the server out. A bound socket that never listens prevents both (on
Linux; elsewhere it would keep our own server out as well). A client that dials it is refused, as if it were free.
"""

import socket
import sys


class HeldPort:
    """Attributes: `port`, which a server that sets SO_REUSEADDR, as all of ours do, can listen on until `close` and beyond."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Let it go. Idempotent."""
        self._socket.close()
