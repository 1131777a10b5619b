"""`_socket.socket._accept`, by which the server accepts connections (transport/http_server.py)."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from headgate.transport.peer_socket import NativeSocket


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
def test_it_returns_a_descriptor_and_the_address_that_accept_has(family: socket.AddressFamily, tmp_path: Path) -> None:
    """No child inherits the descriptor. Without a waiting connection there is an error, as with a closed listener."""
    with closing(NativeSocket(family, socket.SOCK_STREAM)) as listener:
        try:
            listener.bind({socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0)}.get(family, str(tmp_path / "socket")))
        except OSError:
            pytest.skip("this machine has no such addresses")
        listener.listen()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener._accept()  # type: ignore[attr-defined]
        with closing(socket.socket(family)) as peer:
            peer.connect(listener.getsockname())
            descriptor, address = listener._accept()  # type: ignore[attr-defined]
            with closing(NativeSocket(fileno=descriptor)) as accepted:
                assert address == accepted.getpeername() == peer.getsockname()
                assert not os.get_inheritable(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        listener._accept()  # type: ignore[attr-defined]
