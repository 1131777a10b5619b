"""How many connections may wait at a listening socket."""

import socket
import struct
from pathlib import Path

from headgate.transport.peer_socket import NativeSocket


def places_of(listener: socket.socket | NativeSocket) -> int:
    # tcp(7): of a socket that listens, what is `tcpi_sacked` elsewhere is the length of its queue.
    (places,) = struct.unpack_from("=I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 28)
    return int(places)


def granted(asked: int) -> int:
    """Return how many places the kernel gives to a process that asks for `asked`."""
    return min(asked, int(Path("/proc/sys/net/core/somaxconn").read_text()))
