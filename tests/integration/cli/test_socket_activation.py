"""A listening socket from systemd outlives the gateway, so that a client of a restart waits, and is answered."""

import socket
import sys
from pathlib import Path

from tests.support.gateway_process import GatewayProcess

# As systemd starts a service, the socket is descriptor 3, and the environment names its process.
ACTIVATE = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
    "os.execv(sys.argv[2], sys.argv[2:])"
)
DEADLINE_S = 60
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Activated(GatewayProcess):
    def __init__(self, folder: Path, listener: socket.socket, notify: Path, *arguments: str) -> None:
        # The given port is taken, so it could not listen there.
        settings = {"HEADGATE_PORT": str(listener.getsockname()[1]), "NOTIFY_SOCKET": str(notify)}
        super().__init__(folder, settings, ("--dev", *arguments))
        self.pass_fds = (listener.fileno(),)
        self.command = (sys.executable, "-c", ACTIVATE, str(listener.fileno()), *self.command)


def test_one_process_and_several_workers_take_over_a_socket_that_stays(tmp_path: Path) -> None:
    """One after the other, as in a deploy that changes the number of workers. systemd is notified when each is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.settimeout(DEADLINE_S)
        notified.bind(str(tmp_path / "notify"))
        for arguments in ((), ("--workers", "2")):
            with socket.create_connection(listener.getsockname(), timeout=DEADLINE_S) as early:
                early.sendall(REQUEST)
                with Activated(tmp_path / f"gateway{len(arguments)}", listener, tmp_path / "notify", *arguments) as gateway:
                    assert notified.recv(1000).startswith(b"READY=1")
                    assert gateway.url == f"http://127.0.0.1:{listener.getsockname()[1]}"
                    assert early.recv(1000).startswith(b"HTTP/1.1 200 ")
                    assert gateway.stop() == 0, gateway.output
