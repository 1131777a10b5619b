"""How gevent and libev use epoll, as far as runtime/epoll_set.py depends on it. The loop runs here, over real sockets."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from typing import NamedTuple

import gevent
import pytest

from headgate.runtime import epoll_set
from headgate.runtime.epoll_set import leave_to_others
from headgate.runtime.loop import READ, io_watcher
from tests.support.epoll_sets import Watched, watched, watched_by


class Connection(NamedTuple):
    """A connection that "another process" holds as well: by a descriptor of this test's."""

    ours: socket.socket
    peer: socket.socket
    elsewhere: int

    @property
    def entry(self) -> Watched:
        """Return what an epoll set says of our descriptor."""
        return Watched(self.ours.fileno(), os.fstat(self.ours.fileno()).st_ino)


@pytest.fixture
def connection() -> Iterator[Connection]:
    """One that the loop has watched, and that nobody here waits for any more."""
    ours, peer = socket.socketpair()
    watcher = io_watcher(ours.fileno(), READ)
    watcher.start(lambda: None)
    turn()
    watcher.stop()
    watcher.close()
    turn()
    made = Connection(ours, peer, os.dup(ours.fileno()))
    yield made
    os.close(made.elsewhere)
    ours.close()
    peer.close()


def turn() -> None:
    """Let the loop look at its sockets."""
    gevent.sleep(1e-6)
    gevent.sleep(1e-6)


def test_libev_leaves_a_descriptor_in_the_set_when_its_watcher_stops(connection: Connection) -> None:
    """And closing it does not take it out as long as another process holds the connection: why epoll_set.py is needed."""
    entry = connection.entry
    assert entry in watched()
    connection.ours.close()
    turn()
    assert entry in watched()


def test_a_descriptor_that_is_left_to_others_is_in_no_set(connection: Connection) -> None:
    """The descriptor of the loop is that of its epoll set. A second call does nothing, nor does one for what was never in."""
    entry = connection.entry
    for _ in range(2):
        leave_to_others(connection.ours.fileno())
        assert entry not in watched()
    for number in (connection.peer.fileno(), -1):
        leave_to_others(number)
    before = len(os.listdir("/dev/fd"))
    leave_to_others(connection.ours.fileno())
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("leaves", [True, False])
def test_a_byte_for_another_process_makes_libev_build_a_new_set_unless_it_was_left(connection: Connection, leaves: bool) -> None:
    """A watcher that starts then is in the old set, which this test holds open, only if libev has kept that."""
    kept = os.dup(gevent.get_hub().loop.fileno())
    other, peer = socket.socketpair()
    if leaves:
        leave_to_others(connection.ours.fileno())
    connection.ours.close()
    connection.peer.send(b"x")
    turn()
    watcher = io_watcher(other.fileno(), READ)
    watcher.start(lambda: None)
    turn()
    is_kept = Watched(other.fileno(), os.fstat(other.fileno()).st_ino) in watched_by(kept)
    watcher.stop()
    watcher.close()
    other.close()
    peer.close()
    os.close(kept)
    assert is_kept is leaves


def test_without_a_descriptor_left_the_set_stays_as_it_is(connection: Connection) -> None:
    """The caller closes its own all the same: libev then builds a new set, as it would have done."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        leave_to_others(connection.ours.fileno())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert connection.entry in watched()


def test_where_there_is_no_epoll_nothing_is_done(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels forget what a process has closed."""
    monkeypatch.setattr(epoll_set, "_epoll", None)
    leave_to_others(connection.ours.fileno())
    assert connection.entry in watched()


def test_the_same_descriptor_can_be_watched_again(connection: Connection) -> None:
    """libev knows nothing of what was done behind its back, and finds out when it enters a descriptor of this number."""
    number = connection.ours.fileno()
    leave_to_others(number)
    heard: list[bytes] = []
    for _ in range(2):
        watcher = io_watcher(number, READ)
        watcher.start(lambda: heard.append(os.read(number, 100)))
        turn()
        connection.peer.send(b"x")
        turn()
        watcher.stop()
        watcher.close()
    assert heard == [b"x", b"x"]
    assert connection.entry in watched()


def test_a_new_connection_of_the_same_number_is_watched(connection: Connection) -> None:
    """As numbers are used again at once."""
    number = connection.ours.fileno()
    leave_to_others(number)
    connection.ours.close()
    mine, peer = socket.socketpair()
    if mine.fileno() != number:
        os.dup2(mine.fileno(), number)
    heard: list[bytes] = []
    watcher = io_watcher(number, READ)
    watcher.start(lambda: heard.append(os.read(number, 100)))
    peer.send(b"x")
    turn()
    assert heard == [b"x"]
    watcher.stop()
    watcher.close()
    if mine.fileno() != number:
        os.close(number)
    mine.close()
    peer.close()
    turn()
