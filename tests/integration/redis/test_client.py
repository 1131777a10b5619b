"""The client for commands against servers that refuse or do not answer: each refusal is recognised, and nothing is sent twice."""

import socket
import threading
from collections.abc import Callable

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.client import call, open_client
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (b"-OOM command not allowed\r\n", BusRefused, "out of memory"),
        (b"-MISCONF Errors writing to the AOF file\r\n", BusRefused, "disk"),
        (b"-READONLY You can't write\r\n", BusUnavailable, "read-only replica"),
        (b"-NOAUTH Authentication required.\r\n", BusRefused, "password"),
        (b"-NOPERM User x has no permissions\r\n", BusRefused, "no permission"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", BusRefused, "is a node of a Cluster"),
        (b"-ERR unknown command 'FCALL', with args\r\n", BusRefused, "does not know the command FCALL; needed: Redis 7.0"),
        (b"-ERR something else\r\n", BusRefused, "something else"),
        (b"-WEIRD thing\r\n", BusRefused, "thing"),
        (b"-LOADING Redis is loading\r\n", BusUnavailable, "loading"),
        (b"-BUSY Redis is busy\r\n", BusUnavailable, "busy"),
        (b"-CLUSTERDOWN The cluster is down\r\n", BusUnavailable, "cluster"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", BusUnavailable, "primary"),
        (b"-TRYAGAIN Multiple keys\r\n", BusUnavailable, "taking over"),
        (b"-NOREPLICAS Not enough good replicas\r\n", BusUnavailable, "replicas"),
        (b"-HEADGATE nonsense {}\r\n", BusRefused, "nonsense"),
        (b"-HEADGATE invalid_topic nope\r\n", BusRefused, "invalid_topic"),
        (b"", BusUnavailable, "127.0.0.1"),
    ],
)
def test_each_refusal_is_told_apart(answer: Callable[[bytes], str], reply: bytes, kind: type[Exception], says: str) -> None:
    """A fault that passes is BusUnavailable, one that an operator must fix is BusRefused; both say which it is."""
    url = answer(reply).replace(":hunter2@", "")
    client = open_client(url, timeout_s=DEADLINE_S)

    with pytest.raises((BusRefused, BusUnavailable), match=says) as caught:
        call(client, "FCALL", "headgate_publish", 1, "k", "a", "1")

    assert caught.type is kind
    client.close()


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
