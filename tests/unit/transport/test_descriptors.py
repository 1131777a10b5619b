"""The reserve of descriptors: when a server looks, and at what price."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.transport.descriptors import MAX_RESERVED_DESCRIPTORS, keep_reserve

LISTENER_FD = 7
# The lowest descriptor that is free, as the server is told: the process's own depend on who started it, and on other tests.
FREE_FD = 200


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every look at the lowest descriptor that is free."""
    seen: list[int] = []

    def counted(fd: int) -> int:
        seen.append(fd)
        return FREE_FD

    def close(fd: int) -> None:
        assert fd == FREE_FD

    monkeypatch.setattr("headgate.transport.descriptors.os.dup", counted)
    monkeypatch.setattr("headgate.transport.descriptors.native_close", close)
    return seen


def limit(monkeypatch: pytest.MonkeyPatch, descriptors: int) -> None:
    """Have the process told that it may have so many."""
    monkeypatch.setattr("headgate.transport.descriptors.resource.getrlimit", lambda _: (descriptors, descriptors))


def test_the_server_looks_before_the_first_connection(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The application may have opened any number of descriptors before."""
    monkeypatch.setattr("headgate.transport.descriptors.MAX_RESERVED_DESCRIPTORS", 1)
    limit(monkeypatch, FREE_FD + 1)
    with pytest.raises(OSError, match="Too many open files"):
        keep_reserve(LISTENER_FD, sys.maxsize)
    limit(monkeypatch, FREE_FD + 2)
    keep_reserve(LISTENER_FD, sys.maxsize)
    assert looks == [LISTENER_FD] * 2


def test_the_server_does_not_look_far_from_the_reserve(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last connection's descriptor says enough."""
    limit(monkeypatch, 10_000)
    far = 10_000 - 2 * MAX_RESERVED_DESCRIPTORS - 1
    keep_reserve(LISTENER_FD, far)
    assert looks == []
    keep_reserve(LISTENER_FD, far + 1)
    assert len(looks) == 1


def test_no_reserve_is_kept_where_there_is_no_limit(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """RLIM_INFINITY is -1, and must not be compared as a number."""
    limit(monkeypatch, resource.RLIM_INFINITY)
    keep_reserve(LISTENER_FD, sys.maxsize)
    assert looks == []


_LOOK_OFTEN = """
from gevent import monkey; monkey.patch_all()
import os, socket, sys
from headgate.transport.descriptors import keep_reserve
listener = socket.socket()
before = os.listdir("/proc/self/fd")
for _ in range(50):
    keep_reserve(listener.fileno(), sys.maxsize)
assert os.listdir("/proc/self/fd") == before, os.listdir("/proc/self/fd")
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_look_leaves_no_descriptor_open_where_closing_is_cooperative() -> None:
    """gevent closes in the loop's next turn: a hundred connections accepted in one would have taken a hundred more."""
    subprocess.run([sys.executable, "-c", _LOOK_OFTEN], check=True, timeout=60)
