"""A Unix socket for each worker, in a private folder, for messages between the workers of a process manager.

A message is one byte for its kind, and the bytes until its sender ends it. A connection is sent with the first byte of a message
that has the bytes already read. Every wait has a deadline.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from headgate.runtime.loop import Greenlet, deadline, sleep, spawn

METRICS, HEALTH, CONNECTION = b"M", b"H", b"K"
TAKEN = b"taken"
# A worker without an answer after this time is blocked or stopped.
ANSWER_S = 1.0
# The client of a connection waits up to this long.
HAND_OVER_S = 2.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_BACKLOG = 1024

log = structlog.get_logger("headgate.workers")


class WorkerSocket:
    """The socket of this worker, and the greenlet that serves it.

    `answer` gets the kind of a message. `adopt` gets a descriptor and the bytes sent with it.
    """

    def __init__(self, path: Path, answer: Callable[[bytes], bytes], adopt: Callable[[int, bytes], None]) -> None:
        self._path, self._answer, self._adopt = path, answer, adopt
        path.unlink(missing_ok=True)  # left by an earlier worker
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(_BACKLOG)
        self._greenlet: Greenlet = spawn(self._accept)

    def close(self) -> None:
        """Stop answering. Idempotent."""
        self._greenlet.kill()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                log.warning("a worker could not be answered", reason=error.strerror)
                sleep(ANSWER_S)
                continue
            spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        descriptor: int | None = None
        is_taken = False
        try:
            with connection, deadline(HAND_OVER_S):
                received, descriptors, _, _ = socket.recv_fds(connection, 65536, 1)
                descriptor = descriptors[0] if descriptors else None
                message = bytearray(received)
                while part := connection.recv(65536):
                    message += part
                    if len(message) > MAX_MESSAGE_BYTES:
                        return
                kind = bytes(message[:1])
                if kind == CONNECTION and descriptor is not None:
                    # This fails if the other worker no longer waits and serves the connection itself.
                    connection.sendall(TAKEN)
                    is_taken = True
                else:
                    connection.sendall(self._answer(kind))
            if is_taken:
                taken, descriptor = descriptor, None
                self._adopt(taken, bytes(message[1:]))  # type: ignore[arg-type]
        except (OSError, TimeoutError):
            pass  # the other worker is gone or no longer waits
        finally:
            if descriptor is not None:
                os.close(descriptor)


def ask(path: Path, kind: bytes, message: bytes = b"", descriptor: int | None = None, within_s: float = ANSWER_S) -> bytes:
    """Return another worker's answer, which may be empty. Switches greenlets.

    A connection always belongs to exactly one worker. After the deadline the other worker cannot answer, so it does not take
    it. Raises OSError if there is no such worker, or if it did not answer in time (TimeoutError).
    """
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with deadline(within_s):
                connection.connect(str(path))
                whole = kind + message
                sent = 0 if descriptor is None else socket.send_fds(connection, [whole], [descriptor])
                connection.sendall(whole[sent:])
                connection.shutdown(socket.SHUT_WR)
                while len(answer) <= MAX_MESSAGE_BYTES and (part := connection.recv(65536)):
                    answer += part
                    if descriptor is not None and answer == TAKEN:
                        break  # so that the client does not wait for the end of this message
                return bytes(answer)
        except (OSError, TimeoutError):
            if descriptor is not None and (answer == TAKEN or _has_answered(connection)):
                return TAKEN
            raise


def _has_answered(connection: socket.socket) -> bool:
    """Stop the other worker from answering; return whether it has already answered. Does not wait."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
        connection.settimeout(0.0)
        return connection.recv(len(TAKEN)) == TAKEN
    except OSError:
        return False
