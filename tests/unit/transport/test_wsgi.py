"""The HTTP server's reserve of descriptors: who asks for it, and what looking costs."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.transport.wsgi import MAX_RESERVED_DESCRIPTORS, Server

# The lowest descriptor that is free, as the server is told: the process's own depend on who started it, and on other tests.
FREE_FD = 200


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that listens, and accepts nothing by itself."""
    made = Server(("127.0.0.1", 0), lambda environ, start_response: [])
    made.init_socket()
    yield made
    made.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every look at the lowest descriptor that is free."""
    seen: list[int] = []

    def counted(fd: int) -> int:
        seen.append(fd)
        return FREE_FD

    def close(fd: int) -> None:
        assert fd == FREE_FD

    monkeypatch.setattr("headgate.transport.wsgi.os.dup", counted)
    monkeypatch.setattr("headgate.transport.wsgi.native_close", close)
    return seen


def limit(monkeypatch: pytest.MonkeyPatch, descriptors: int) -> None:
    """Have the process told that it may have so many."""
    monkeypatch.setattr("headgate.transport.wsgi.resource.getrlimit", lambda _: (descriptors, descriptors))


def test_the_first_connection_is_looked_at(server: Server, looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The application may have opened what it likes before."""
    monkeypatch.setattr("headgate.transport.wsgi.MAX_RESERVED_DESCRIPTORS", 1)
    limit(monkeypatch, FREE_FD + 1)
    with pytest.raises(OSError, match="Too many open files"):
        server._keep_reserve()
    limit(monkeypatch, FREE_FD + 2)
    server._keep_reserve()
    assert looks == [server.socket.fileno()] * 2


def test_far_from_the_reserve_nobody_looks(server: Server, looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last connection's descriptor says enough."""
    limit(monkeypatch, 10_000)
    server._newest_fd = 10_000 - 2 * MAX_RESERVED_DESCRIPTORS - 1
    server._keep_reserve()
    assert looks == []
    server._newest_fd += 1
    server._keep_reserve()
    assert len(looks) == 1


def test_nothing_is_kept_where_there_is_no_limit(server: Server, looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """RLIM_INFINITY is -1: not a number to compare with."""
    limit(monkeypatch, resource.RLIM_INFINITY)
    server._keep_reserve()
    assert looks == []


_LOOK_OFTEN = """
from gevent import monkey; monkey.patch_all()
import os
from headgate.transport.wsgi import Server
server = Server(("127.0.0.1", 0), lambda environ, start_response: [])
server.init_socket()
before = os.listdir("/proc/self/fd")
for _ in range(50):
    server._keep_reserve()
assert os.listdir("/proc/self/fd") == before, os.listdir("/proc/self/fd")
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_looking_leaves_no_descriptor_open_where_closing_is_cooperative() -> None:
    """gevent closes in the loop's next turn: a hundred connections accepted in one would have taken a hundred more."""
    subprocess.run([sys.executable, "-c", _LOOK_OFTEN], check=True, timeout=60)
