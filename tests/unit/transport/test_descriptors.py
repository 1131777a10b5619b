"""The shares of the descriptors: the clients' share, the gateway's own, and the places for health pages."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.transport.descriptors import (
    LEAST_OWN_DESCRIPTORS,
    MAX_OWN_DESCRIPTORS,
    MAX_PLACES,
    has_room,
    places,
)

LISTENER_FD = 0


class Table:
    """The table of descriptors of a process, where the kernel gives away the lowest free one, below the limit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.limit = limit
        self.used = {LISTENER_FD}
        ours = "headgate.transport.descriptors"
        monkeypatch.setattr(f"{ours}.resource.getrlimit", lambda _: (self.limit, self.limit))
        monkeypatch.setattr(f"{ours}.os.dup", lambda _: self.take())
        monkeypatch.setattr(f"{ours}.native_close", self.used.remove)

    def take(self) -> int:
        free = next(number for number in range(len(self.used) + 1) if number not in self.used)
        if 0 <= self.limit <= free:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.used.add(free)
        return free

    def accept_all(self) -> int:
        """Take clients in while there is room; return how many."""
        count = 0
        while has_room(LISTENER_FD):
            self.take()
            count += 1
        return count


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """A process that may have 1,024 descriptors."""
    yield Table(monkeypatch, 1024)
    monkeypatch.undo()  # before anything else closes a descriptor


@pytest.mark.parametrize("limit", [64, 256, 1024])
def test_the_gateway_keeps_its_own_however_often_clients_come_and_go(table: Table, limit: int) -> None:
    """A low free number says nothing about the next one."""
    table.limit = limit
    table.accept_all()
    own = limit - (max(table.used) + 1) - places()
    for number in range(5, 50):
        table.used.remove(number)
        table.accept_all()
    assert own == min(MAX_OWN_DESCRIPTORS, max(LEAST_OWN_DESCRIPTORS, limit // 16))
    assert limit - (max(table.used) + 1) - places() == own


def test_the_limit_is_read_each_time(table: Table) -> None:
    """It can be changed while the gateway runs. RLIM_INFINITY is -1, and must not be compared as a number."""
    table.limit = 64
    assert places() == 4
    table.limit = resource.RLIM_INFINITY
    assert (has_room(LISTENER_FD), places()) == (True, MAX_PLACES)


def test_there_is_no_room_when_a_descriptor_cannot_even_be_tried(table: Table) -> None:
    """Everything is used up, the gateway's own as well."""
    while len(table.used) < 1024:
        table.take()
    assert has_room(LISTENER_FD) is None


_LOOK_OFTEN = """
from gevent import monkey; monkey.patch_all()
import os, socket
from headgate.transport.descriptors import has_room
listener = socket.socket()
before = os.listdir("/proc/self/fd")
for _ in range(50):
    assert has_room(listener.fileno())
assert os.listdir("/proc/self/fd") == before, os.listdir("/proc/self/fd")
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_look_leaves_no_descriptor_open_where_closing_is_cooperative() -> None:
    """gevent closes in the loop's next turn, and a hundred connections accepted in one would have taken a hundred more."""
    subprocess.run([sys.executable, "-c", _LOOK_OFTEN], check=True, timeout=60)
