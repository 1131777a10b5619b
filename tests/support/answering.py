"""A server that answers every connection alike, whatever the request: a web server, an old Redis, one that speaks TLS."""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.support.redis_server import DEADLINE_S

# Where a command begins in the bytes of a client.
_COMMAND = re.compile(rb"\*\d+\r\n\$")


@contextmanager
def answering_each(
    reply: bytes, context: ssl.SSLContext | None = None, *, lost: bytes = b"\0", then: bytes = b""
) -> Iterator[str]:
    """Answer every command with `reply`, as something that is like Redis, over TLS if there is a context; give the URL.

    A connection that sends `lost` ends without an answer, and every later command is answered with `then`.
    """
    replies = [reply]

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            spoken = connection if context is None else context.wrap_socket(connection, server_side=True)
            while sent := spoken.recv(65536):
                if lost in sent and replies[0] != then:
                    replies[0] = then
                    return
                spoken.sendall(replies[0] * len(_COMMAND.findall(sent)))

    with _listening(lambda connection: threading.Thread(target=serve, args=(connection,), daemon=True).start()) as address:
        yield f"redis{'s' * (context is not None)}://{address}/0"


@contextmanager
def answering(reply: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answer the first bytes of each connection with `reply` and end it, over TLS if there is a context; give host and port."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client may have gone, or speak no TLS
            connection.settimeout(DEADLINE_S)
            spoken = connection if context is None else context.wrap_socket(connection, server_side=True)
            spoken.recv(65536)
            spoken.sendall(reply)
            spoken.shutdown(socket.SHUT_WR)
            while spoken.recv(65536):  # or the reply could be lost to a reset
                pass

    with _listening(serve) as address:
        yield address


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Have each connection served, one after the other; give host and port."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            serve(connection)

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(DEADLINE_S)


@pytest.fixture
def answer() -> Iterator[Callable[[bytes], str]]:
    """Start servers that answer alike, `answer(b"+OK\\r\\n")`; returns the Redis URL of each, with a password in it."""
    with ExitStack() as running:
        yield lambda reply: f"redis://:hunter2@{running.enter_context(answering(reply))}/0"
