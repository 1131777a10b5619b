"""Listening sockets: those that systemd passes, if they are for this process and listen, and the one for several workers."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli import starting as systemd
from headgate.cli.workers import _bind
from headgate.errors import InvalidRequest
from headgate.settings.settings import Settings

OURS = {"LISTEN_PID": str(os.getpid())}


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A listening socket at the first descriptor that systemd would pass."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", os.dup(listener.fileno()))
        yield listener


def test_sockets_for_another_process_are_not_ours() -> None:
    """A child inherits the environment of its parent, and nothing else."""
    assert systemd.passed_sockets({}) == []
    assert systemd.passed_socket({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None


def test_the_socket_that_was_passed_is_taken(listener: socket.socket) -> None:
    passed = systemd.passed_socket({**OURS, "LISTEN_FDS": "1"})
    assert passed is not None
    with passed:
        assert passed.getsockname() == listener.getsockname()
        assert not passed.get_inheritable()


@pytest.mark.parametrize(
    ("count", "says"), [("x", "LISTEN_FDS='x': expected a number"), ("", "LISTEN_FDS=''"), ("-1", "expected a number of sockets")]
)
def test_a_number_that_is_none_is_one_clear_line(count: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        systemd.passed_sockets({**OURS, "LISTEN_FDS": count})


def test_what_does_not_listen_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file, a datagram socket, a socket that does not listen, and a closed descriptor."""
    environ = {**OURS, "LISTEN_FDS": "1"}
    with (tmp_path / "file").open("w") as file, socket.socket(type=socket.SOCK_DGRAM) as datagram, socket.socket() as silent:
        for each in (file, datagram, silent):
            monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", each.fileno())
            with pytest.raises(InvalidRequest, match=r"expected a listening stream socket \(ListenStream=, Accept=no\)"):
                systemd.passed_sockets(environ)
        closed = silent.fileno()
    monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", closed)
    with pytest.raises(InvalidRequest, match="Bad file descriptor"):
        systemd.passed_sockets(environ)


def test_one_process_takes_one_socket(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are for several workers."""
    monkeypatch.setattr(systemd, "passed_sockets", lambda environ: [listener, listener])
    with pytest.raises(InvalidRequest, match="2 sockets: one process listens on one; use --workers"):
        systemd.passed_socket({})


def test_systemd_is_told_that_the_service_is_ready(tmp_path: Path) -> None:
    """At its socket; without one, or where it is gone, nothing happens."""
    systemd.notify_ready({})
    systemd.notify_ready({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        systemd.notify_ready({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert notified.recv(100) == b"READY=1"
    name = f"headgate-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(f"\0{name}")
        systemd.notify_ready({"NOTIFY_SOCKET": f"@{name}"})
        assert notified.recv(100) == b"READY=1"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_ipv6_wildcard_takes_connections_over_ipv4() -> None:
    """As with one process: `--workers` must not close the gateway to half of its clients."""
    bind = _bind(Settings(host="::", port=0), {})
    assert bind is not None
    with socket.socket(fileno=int(bind.removeprefix("fd://"))) as listener:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listener.getsockname()[1]), 5).close()
