"""The client for commands against servers that refuse or do not answer: each refusal is recognised, and nothing is sent twice."""

import socket
import threading
from collections.abc import Callable

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.client import call, open_client
from headgate.redis.faults import NO_COMMAND, NO_FUNCTION, NO_PERMISSION
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.mark.parametrize(
    ("reply", "kind", "code", "says"),
    [
        (b"-OOM command not allowed", BusRefused, "OOM", "out of memory"),
        (b"-MISCONF Errors writing to the AOF file", BusRefused, "MISCONF", "disk"),
        (b"-READONLY You can't write", BusUnavailable, "READONLY", "read-only replica"),
        (b"-NOAUTH Authentication required.", BusRefused, "NOAUTH", "password"),
        (b"-NOPERM User x has no permissions", BusRefused, NO_PERMISSION, "no permission"),
        (b"-ERR The user executing the script can't run this command or subcommand", BusRefused, NO_PERMISSION, "no permission"),
        (b"-MOVED 3999 127.0.0.1:6381", BusRefused, "MOVED", "is a node of a Cluster"),
        (b"-ERR unknown command 'FCALL', with args", BusRefused, NO_COMMAND, "command FCALL, or hides it; needed: Redis 7.0"),
        (b"-ERR unknown command 'WAITAOF', with args", BusRefused, NO_COMMAND, "needed: Redis 7.2"),
        (b"-ERR Function not found", BusRefused, NO_FUNCTION, "Function not found"),
        (b"-ERR something else", BusRefused, "", "something else"),
        (b"-WEIRD thing", BusRefused, "WEIRD", "thing"),
        (b"-LOADING Redis is loading", BusUnavailable, "LOADING", "loading"),
        (b"-BUSY Redis is busy", BusUnavailable, "BUSY", "busy"),
        (b"-CLUSTERDOWN The cluster is down", BusUnavailable, "CLUSTERDOWN", "cluster"),
        (b"-MASTERDOWN Link with MASTER is down", BusUnavailable, "MASTERDOWN", "primary"),
        (b"-TRYAGAIN Multiple keys", BusUnavailable, "TRYAGAIN", "taking over"),
        (b"-ERR Script attempted to access a non local key in a cluster node: f_x", BusUnavailable, "TRYAGAIN", "taking over"),
        (b"-ERR Unable to execute 'mget' because undeclared keys were accessed", BusUnavailable, "TRYAGAIN", "taking over"),
        (b"-NOREPLICAS Not enough good replicas", BusUnavailable, "NOREPLICAS", "replicas"),
        (b"-HEADGATE nonsense {}", BusRefused, "", "nonsense"),
        (b"-HEADGATE invalid_topic nope", BusRefused, "", "invalid_topic"),
        (b"", BusUnavailable, "", "127.0.0.1"),
    ],
)
def test_each_refusal_is_told_apart(
    answer: Callable[[bytes], str], reply: bytes, kind: type[BusRefused | BusUnavailable], code: str, says: str
) -> None:
    """A fault that passes is BusUnavailable, one that an operator must fix is BusRefused; both say which it is."""
    url = answer(reply + b"\r\n" * bool(reply)).replace(":hunter2@", "")
    with open_client(url, timeout_s=DEADLINE_S) as client, pytest.raises((BusRefused, BusUnavailable), match=says) as caught:
        call(client, "FCALL", "headgate_publish", 1, "k", "a", "1")

    assert isinstance(caught.value, BusRefused | BusUnavailable)
    assert (caught.type, caught.value.redis_code) == (kind, code)


def test_a_client_never_retries_by_itself() -> None:
    """A command without an answer has been sent once, because a hidden second one would write twice."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    received.append(connection.recv(65536))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = open_client(f"redis://127.0.0.1:{listener.getsockname()[1]}/0?retry_on_timeout=yes", timeout_s=5)
        with pytest.raises(BusUnavailable):
            call(client, "INCR", "x")
        wait_until(lambda: received, "the command arrived")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_S)
    client.close()

    assert received == [b"*2\r\n$4\r\nINCR\r\n$1\r\nx\r\n"]
