"""A round trip on a connection of redis-py's: no reply is ever taken for that of another command, whatever stops one half-way."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.budget import Budget
from headgate.redis.client import Client, call, call_many, open_client
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import log_key
from tests.support.redis_server import DEADLINE_S

ASK = ("FCALL", "ask", 0)


@contextmanager
def server(*answers: Callable[[socket.socket], None], max_connections: int = 16, database: int = 0) -> Iterator[Any]:
    """Give a client of a server that reads one command from each connection and then runs its answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(DEADLINE_S)
                    assert connection.recv(4096)
                    answer(connection)

        serving = pool.submit(serve)
        port = listener.getsockname()[1]
        client = open_client(f"redis://127.0.0.1:{port}/{database}", timeout_s=DEADLINE_S, max_connections=max_connections)
        yield client
        client.close()
        serving.result(DEADLINE_S)


def says(*parts: bytes) -> Callable[[socket.socket], None]:
    """Answer in these parts, and wait until the client has closed the connection."""

    def answer(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        closed(connection)

    return answer


def closed(connection: socket.socket) -> None:
    """Wait until the client has closed."""
    with suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def test_an_error_of_one_command_is_its_reply_alone(redis_client: Client) -> None:
    """Those before and after it have their own."""
    ensure_loaded(redis_client)

    first, second, third = call_many(
        redis_client, [("FCALL_RO", "headgate_version", 0), ASK, ("FCALL_RO", "headgate_version", 0)]
    )

    assert first == third
    assert isinstance(second, BusRefused)
    with pytest.raises(BusRefused):
        call(redis_client, *ASK)


def test_a_reply_of_many_parts_is_put_together(redis_client: Client) -> None:
    """Thousands of replies come in many reads."""
    ensure_loaded(redis_client)
    payload = b'"' + b"x" * 60_000 + b'"'
    commands = [("FCALL", "headgate_append", 1, log_key("n"), "a", payload, f"id-{number}") for number in range(200)]

    replies = call_many(redis_client, commands)

    assert [int(reply.split()[1]) for reply in replies] == list(range(1, 201))


def late(connection: socket.socket) -> None:
    """Answer the command when another one comes after it on the same connection, which none must."""
    with suppress(ConnectionResetError):
        if connection.recv(4096):
            connection.sendall(b"$4\r\nlate\r\n")


def test_a_late_reply_is_never_taken_for_the_next_ones() -> None:
    """An abandoned command closes its connection. The next one has another, and its own reply."""
    with server(late, says(b"$3\r\nown\r\n")) as client:
        connection = client.connection_pool.get_connection()
        connection._sock.settimeout(0.05)
        client.connection_pool.release(connection)
        with pytest.raises(BusUnavailable, match="did not answer in time"):
            call(client, *ASK)

        assert call(client, *ASK) == b"own"


class Stopped(BaseException):
    """An interrupt from outside, such as KeyboardInterrupt or GreenletExit."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[socket.socket], None]]:
    """Return an answer that interrupts the main thread, and replies late."""

    def answer(connection: socket.socket) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        late(connection)

    def stop(number: int, frame: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, stop)
    yield answer
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("command", [ASK, ("GET", "a")], ids=["passed on", "shaped"])
@pytest.mark.parametrize("is_patient", [False, True])
def test_an_interrupt_in_the_middle_closes_the_connection(
    interrupt: Callable[[socket.socket], None], command: tuple[str, ...], is_patient: bool
) -> None:
    """A signal while the reply is awaited, as one that kills a greenlet. No caller gets that reply."""
    with server(interrupt, says(b"$3\r\nown\r\n")) as client:
        with pytest.raises(Stopped), Budget("anywhere", DEADLINE_S, is_patient=is_patient):
            call(client, *command)

        assert call(client, *command) == b"own"


def test_an_interrupt_while_it_connects_closes_the_connection(interrupt: Callable[[socket.socket], None]) -> None:
    """No caller gets the reply to SELECT, and no command goes to another database."""

    def selected(connection: socket.socket) -> None:
        connection.sendall(b"+OK\r\n*3\r\n:12\r\n$5\r\ntoken\r\n:0\r\n")
        assert connection.recv(4096)
        says(b"$3\r\nown\r\n")(connection)

    with server(interrupt, selected, database=7) as client:
        with pytest.raises(Stopped):
            call(client, *ASK)

        assert call(client, *ASK) == b"own"


@pytest.mark.parametrize("answer", [(b"$4\r\none", b""), (b"HTTP/1.1 400\r\n",)], ids=["half", "no reply"])
def test_a_broken_answer_closes_the_connection(answer: tuple[bytes, ...]) -> None:
    """Half a reply before the end of the stream, and invalid bytes."""

    def end(connection: socket.socket) -> None:
        for part in answer:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        closed(connection)

    with server(end, says(b"$3\r\nown\r\n")) as client:
        with pytest.raises((BusUnavailable, BusRefused)):
            call(client, *ASK)

        assert call(client, *ASK) == b"own"


def test_a_second_reply_is_nobodys() -> None:
    """A connection on which more has come than was asked for is closed before the next command."""
    with server(says(b"$3\r\none\r\n$3\r\ntwo\r\n"), says(b"$3\r\nown\r\n")) as client:
        assert call(client, *ASK) == b"one"
        assert call(client, *ASK) == b"own"


def test_what_comes_while_nobody_asks_is_nobodys_reply() -> None:
    """A connection on which something has come while it waited is closed, and another one taken; no caller sees an error."""
    pushed = threading.Event()

    def push(connection: socket.socket) -> None:
        connection.sendall(b"$3\r\none\r\n")
        assert wanted.wait(DEADLINE_S)
        connection.sendall(b"$6\r\npushed\r\n")
        pushed.set()
        closed(connection)

    wanted = threading.Event()
    with server(push, says(b"$3\r\nown\r\n")) as client:
        assert call(client, *ASK) == b"one"
        wanted.set()
        assert pushed.wait(DEADLINE_S)

        assert call(client, *ASK) == b"own"


def test_a_child_that_is_forked_in_the_middle_takes_no_reply() -> None:
    """A thread of the parent waits for its reply; the child asks over a separate connection, and each has its own reply."""
    asked = threading.Event()
    first: list[socket.socket] = []

    def keep(connection: socket.socket) -> None:
        first.append(connection.dup())
        asked.set()

    def answer_both(connection: socket.socket) -> None:
        connection.sendall(b"$5\r\nchild\r\n")
        with first[0] as parent:
            parent.sendall(b"$6\r\nparent\r\n")
            closed(connection)

    with server(keep, answer_both) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, client, *ASK)
        assert asked.wait(DEADLINE_S)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                os._exit(0 if call(client, *ASK) == b"child" else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert waiting.result(DEADLINE_S) == b"parent"


def test_more_threads_than_connections_wait_for_their_turn(redis_url: str, redis_client: Client) -> None:
    """Each has the reply to its own command."""
    ensure_loaded(redis_client)
    client = open_client(redis_url, timeout_s=DEADLINE_S, max_connections=2)

    def publish(number: int) -> list[bytes]:
        key = log_key(f"n{number}")
        return [call(client, "FCALL", "headgate_append", 1, key, "a", "1").split()[1] for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(publish, range(8)))
    client.close()

    assert found == [[b"%d" % offset for offset in range(1, 51)]] * 8
