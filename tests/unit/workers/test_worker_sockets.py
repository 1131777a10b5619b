"""A handed-over connection belongs to one worker at any moment, however slow the other is."""

import gc
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gevent
import gevent.socket
import pytest

from headgate.workers import worker_sockets
from headgate.workers.worker_sockets import CONNECTION, METRICS, TAKEN, WorkerSocket, ask


@pytest.fixture(autouse=True)
def cooperative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets let the loop run, as in a worker, in a process that gevent has patched."""
    monkeypatch.setattr(socket, "socket", gevent.socket.socket)


@pytest.fixture
def path() -> Iterator[Path]:
    """The path of a worker's socket; a short one, as Unix sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "1.sock"


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def descriptors() -> int:
    gc.collect()  # or the rest of other tests would be closed in between
    return len(os.listdir("/proc/self/fd"))


def listening(path: Path) -> socket.socket:
    listener: socket.socket = gevent.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    return listener


def test_a_connection_is_taken_with_the_bytes_that_were_read_of_it(path: Path, connection: socket.socket) -> None:
    """The sibling knows before the connection is used; each has a separate descriptor."""
    taken: list[tuple[int, bytes]] = []
    opened = WorkerSocket(path, lambda _: b"", lambda *handed: taken.append(handed))
    with gevent.Timeout(30):
        assert ask(path, CONNECTION, b"GET /", connection.fileno()) == TAKEN
        gevent.sleep(0)
    ((descriptor, message),) = taken
    assert message == b"GET /"
    assert os.fstat(descriptor).st_ino == os.fstat(connection.fileno()).st_ino
    os.close(descriptor)
    opened.close()


def test_a_connection_of_a_worker_of_0_2_is_left_to_it(path: Path, connection: socket.socket) -> None:
    """Its message has a length after the kind, which would be read as part of the request."""
    taken: list[tuple[int, bytes]] = []
    opened = WorkerSocket(path, lambda _: b"", lambda *handed: taken.append(handed))
    with gevent.Timeout(30):
        assert ask(path, b"C", b"\0\0\0\5GET /", connection.fileno()) == b""
        gevent.sleep(0)
    assert taken == []
    opened.close()


def test_a_sibling_that_was_blocked_takes_no_connection_that_was_given_up(path: Path, connection: socket.socket) -> None:
    """The acceptor serves it by then, and two would answer one request. Nothing is left open."""
    taken: list[int] = []
    before = descriptors()
    with listening(path) as listener:  # it was blocked, so the kernel has the unread question
        with pytest.raises(TimeoutError):
            ask(path, CONNECTION, b"GET /", connection.fileno(), within_s=0.01)
        accepted, _ = listener.accept()
    opened = WorkerSocket(path, lambda _: b"", lambda descriptor, _: taken.append(descriptor))
    opened._serve(accepted)
    opened.close()
    assert (taken, descriptors()) == ([], before)


def test_a_connection_that_was_taken_in_the_last_moment_is_the_siblings(path: Path, connection: socket.socket) -> None:
    """It has answered, and does not end its answer before we give up."""
    with listening(path) as listener:
        asker = gevent.spawn(ask, path, CONNECTION, b"GET /", connection.fileno(), within_s=3600.0)
        accepted, _ = listener.accept()
        accepted.sendall(TAKEN)
        asker.kill(TimeoutError("the time is over"), block=False)
        assert asker.get(timeout=30) == TAKEN
        accepted.close()


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_message_has_a_bound(path: Path, connection: socket.socket, monkeypatch: pytest.MonkeyPatch, beyond: int) -> None:
    """No more than that is read of a larger one, and the connection that it brings stays with its sender."""
    monkeypatch.setattr(worker_sockets, "MAX_MESSAGE_BYTES", 100_000)
    taken: list[int] = []

    def adopt(descriptor: int, message: bytes) -> None:
        os.close(descriptor)
        taken.append(len(message))

    opened = WorkerSocket(path, lambda _: b"", adopt)
    with gevent.Timeout(30):
        try:
            answer = ask(path, CONNECTION, b"x" * (99_999 + beyond), connection.fileno(), within_s=10)
        except OSError:
            answer = b""
        gevent.sleep(0)
    opened.close()
    assert (answer, taken) == ((b"", []) if beyond else (TAKEN, [99_999]))


def test_a_message_that_does_not_end_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stands still in the middle of one keeps no greenlet of another."""
    monkeypatch.setattr(worker_sockets, "HAND_OVER_S", 0.01)
    opened = WorkerSocket(path, lambda _: b"answer", lambda *_: None)
    with gevent.Timeout(30), gevent.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
        sender.connect(str(path))
        sender.sendall(METRICS)
        assert sender.recv(100) == b""
    opened.close()
