"""The Pub/Sub link against a real Redis, and against things that are none: what it reads, when it breaks, whom it tells."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis import client as redis_link
from headgate.redis.client import Client, SubscriberLink, call, call_many, check_server, open_client
from headgate.redis.embedded import EmbeddedRedis
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.fixture
def link(redis_url: str) -> Iterator[SubscriberLink]:
    """A connected link that waits at most thirty seconds."""
    link = SubscriberLink(redis_url)
    link.connect()
    link.settimeout(DEADLINE_S)
    yield link
    link.close()


@pytest.fixture
def answer() -> Iterator[Callable[[bytes], str]]:
    """Start a TCP server that answers every connection's first bytes with the given ones, then closes; returns its URL."""
    listeners = []

    def start(reply: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):  # who asked may have gone
                    connection.recv(65536)
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        return f"redis://:hunter2@127.0.0.1:{listener.getsockname()[1]}/0"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def read_all(link: SubscriberLink, count: int) -> list[Any]:
    replies: list[Any] = []
    while len(replies) < count:
        replies += link.read()
    return replies


# Reading -----------------------------------------------------------------------------------------------------------------


def test_commands_sent_together_are_answered_in_order(link: SubscriberLink) -> None:
    """Channels, globs and pings; replies are lists of bytes and integers."""
    link.send(("SUBSCRIBE", "a", "b"), ("PSUBSCRIBE", "c*"), ("PING", b"token"))

    assert read_all(link, 4) == [
        [b"subscribe", b"a", 1],
        [b"subscribe", b"b", 2],
        [b"psubscribe", b"c*", 3],
        [b"pong", b"token"],
    ]


def test_one_read_returns_everything_that_has_arrived(link: SubscriberLink, redis_client: Client) -> None:
    """Messages that queued up in the socket come as one list: the fan-out joins what arrived together."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call_many(redis_client, [("PUBLISH", "a", f"{number:03d}") for number in range(500)])
    size = 500 * len(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\n000\r\n")
    with socket.socket(fileno=os.dup(link.fileno())) as peek:
        peek.settimeout(DEADLINE_S)  # the descriptor does not block: nothing may be there yet
        wait_until(lambda: len(peek.recv(2 * size, socket.MSG_PEEK)) == size, "all messages are in the socket")

    replies = link.read()

    assert [reply[2] for reply in replies] == [b"%03d" % number for number in range(500)]


def test_a_pong_comes_after_every_message_published_before_it(link: SubscriberLink, redis_client: Client) -> None:
    """The fence's argument: one connection, one order."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    for number in range(20):
        call(redis_client, "PUBLISH", "a", b"x" * 10_000)
        link.send(("PING", str(number)))

    replies = read_all(link, 40)

    # Redis may take the next message before a PING that is still on its way: at least the messages before it have come.
    messages = 0
    for kind, what, *_ in replies:
        if kind == b"pong":
            assert messages > int(what)
        messages += kind == b"message"
    assert messages == 20


def test_a_message_of_40_megabytes_arrives_whole_and_the_next_one_after_it(link: SubscriberLink, redis_client: Client) -> None:
    """A poisoned message is the bus's to set aside; the link is not broken by it."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call(redis_client, "PUBLISH", "a", b"x" * 40_000_000)
    call(redis_client, "PUBLISH", "a", b"next")

    sizes = [len(reply[2]) for reply in read_all(link, 2)]

    assert sizes == [40_000_000, 4]


def test_a_reply_above_the_bound_breaks_the_link(
    link: SubscriberLink, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: what is larger than any event may be is not collected to its end."""
    monkeypatch.setattr(redis_link, "MAX_REPLY_BYTES", 1_000_000)
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call(redis_client, "PUBLISH", "a", b"x" * 5_000_000)

    with pytest.raises(BusUnavailable, match="larger than 1000000 bytes"):
        link.read()


def test_a_timed_out_read_may_be_repeated(link: SubscriberLink, redis_client: Client) -> None:
    """A timeout is told, and nothing is lost by it."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    link.settimeout(0.01)
    with pytest.raises(BusUnavailable, match="did not answer in time"):
        link.read()
    link.settimeout(DEADLINE_S)
    call(redis_client, "PUBLISH", "a", "1")

    assert link.read() == [[b"message", b"a", b"1"]]


# Breaking ----------------------------------------------------------------------------------------------------------------


def test_a_killed_connection_is_told_and_never_replaced(link: SubscriberLink, redis_client: Client) -> None:
    """No silent reconnect: the owner must know that messages may be missing."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub")

    for _ in range(2):
        with pytest.raises(BusUnavailable):
            link.read()
    assert call(redis_client, "PUBSUB", "NUMSUB", "a") == [b"a", 0]


def test_a_killed_server_is_told(start_redis: Callable[..., EmbeddedRedis]) -> None:
    """The end of the stream is an error, not an empty read."""
    server = start_redis()
    link = SubscriberLink(server.url)
    link.connect()
    link.send(("SUBSCRIBE", "a"))
    link.read()

    server.close()

    with pytest.raises(BusUnavailable):
        link.read()
    with pytest.raises(BusUnavailable, match="no such file"):
        SubscriberLink(server.url).connect()
    link.close()


def test_close_wakes_a_read_in_another_thread(link: SubscriberLink) -> None:
    """Whoever waits without a timeout is told as well."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    link.settimeout(None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(link.read)
        link.close()

        with pytest.raises(BusUnavailable, match="closed"):
            waiting.result(timeout=DEADLINE_S)


def test_a_closed_link_stays_closed(link: SubscriberLink) -> None:
    """Closing twice is fine; using it afterwards is an error."""
    link.close()
    link.close()

    for use in (link.read, link.fileno, lambda: link.send(("PING",)), lambda: link.settimeout(1)):
        with pytest.raises(BusUnavailable, match="is closed"):
            use()


def test_an_error_reply_is_raised(link: SubscriberLink) -> None:
    """Redis refused a command: the owner must not wait for its confirmation."""
    link.send(("SUBSCRIBE",))

    with pytest.raises(BusRefused, match="wrong number of arguments"):
        link.read()


def test_bytes_that_are_no_reply_break_the_link(answer: Callable[[bytes], str]) -> None:
    """Garbage in the stream: nothing after it can be trusted."""
    link = SubscriberLink(answer(b"+OK\r\n"))
    link.connect()
    theirs, ours = socket.socketpair()
    link.close()
    link._socket = ours
    theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n")

    with pytest.raises(BusUnavailable, match="not a Redis reply"):
        link.read()
    theirs.close()
    link.close()


PATCHED = """
from gevent import monkey
monkey.patch_all()
import gevent, sys
from headgate.errors import BusUnavailable
from headgate.redis.client import SubscriberLink

link = SubscriberLink(sys.argv[1])
link.connect()
link.send(("SUBSCRIBE", "a"))
link.read()
turns = []

def read():
    try:
        link.read()
    except BusUnavailable as error:
        return error.message

reader = gevent.spawn(read)
for turn in range(3):
    gevent.sleep(0)  # the hub goes on while the reader waits
    turns.append(reader.ready())
link.close()
reader.join(timeout=30)
print(turns, reader.value)
"""


def test_close_wakes_a_read_in_another_greenlet(redis_url: str) -> None:
    """In a patched process a waiting read holds nobody up, and close ends it."""
    said = subprocess.run(
        [sys.executable, "-c", PATCHED, redis_url], capture_output=True, text=True, timeout=60, check=True
    ).stdout

    assert said.startswith("[False, False, False]")
    assert "closed" in said


# Connecting --------------------------------------------------------------------------------------------------------------


def checked(url: str, timeout_s: float = DEADLINE_S) -> None:
    client = open_client(url, timeout_s=timeout_s)
    try:
        check_server(client)
    finally:
        client.close()


def connected(url: str, timeout_s: float = DEADLINE_S) -> None:
    link = SubscriberLink(url, timeout_s)
    link.connect()
    link.close()


def test_the_server_says_what_it_is(redis_client: Client) -> None:
    """Name and version, for the line at start."""
    name, version = check_server(redis_client)

    assert name in ("Redis", "Valkey")
    assert version[0].isdigit()


@pytest.fixture
def forbidden_url(redis_server: EmbeddedRedis, tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis behind a folder that this process may not enter. Who may do everything is somebody else meanwhile."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "redis.sock").symlink_to(redis_server.url.removeprefix("unix://"))
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield f"unix://{folder}/redis.sock"
    os.seteuid(user)
    folder.chmod(0o700)


@pytest.mark.parametrize("use", [checked, connected])
def test_a_socket_that_may_not_be_opened_is_said(forbidden_url: str, use: Callable[[str], None]) -> None:
    """Redis is there; the user is the wrong one."""
    with pytest.raises(BusUnavailable, match="permission denied") as caught:
        use(forbidden_url)

    assert "as a user who may open that socket" in caught.value.lines()[1]


@pytest.mark.parametrize("use", [checked, connected])
def test_a_wrong_password_is_one_clear_line_without_the_password(
    redis_client: Client, redis_server: EmbeddedRedis, use: Callable[[str], None]
) -> None:
    """Neither the right one nor the wrong one shows."""
    call(redis_client, "ACL", "SETUSER", "someone", "on", ">right", "allkeys", "allchannels", "+@all")
    url = f"unix://someone:hunter2@{redis_server.url.removeprefix('unix://')}"

    with pytest.raises(BusRefused, match="wrong user name or password") as caught:
        use(url)

    assert "hunter2" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_password_that_is_missing_is_said(start_redis: Callable[..., EmbeddedRedis]) -> None:
    """A server that wants one, a URL that has none: at the first command of either kind of connection."""
    server = start_redis()
    admin = open_client(server.url)
    call(admin, "CONFIG", "SET", "requirepass", "secret")
    link = SubscriberLink(server.url)
    link.connect()
    link.send(("SUBSCRIBE", "a"))

    for use in (lambda: checked(server.url), link.read):
        with pytest.raises(BusRefused, match="it wants a password") as caught:
            use()
        assert "check user and password" in caught.value.lines()[1]
    link.close()
    admin.close()


@pytest.mark.parametrize("use", [checked, connected])
def test_nothing_there_is_one_clear_line(use: Callable[[str], None]) -> None:
    """Where it was looked for, and why it failed, without the password of the URL."""
    with socket.socket() as held:  # bound, so that nobody else listens there, and not listening itself
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with pytest.raises(BusUnavailable, match=f"127.0.0.1:{port}: connection refused") as caught:
            use(f"redis://:hunter2@127.0.0.1:{port}/0")

    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail ESMTP\r\n", b"\xff\xfe\x00"])
@pytest.mark.parametrize("use", [checked, connected])
def test_what_is_not_redis_is_named(answer: Callable[[bytes], str], use: Callable[[str], None], reply: bytes) -> None:
    """A web server on that port, say."""
    with pytest.raises(BusRefused, match=r"not Redis; needed: Redis 7\.0 or newer"):
        use(answer(reply))


@pytest.mark.parametrize("use", [checked, connected])
def test_a_server_that_is_silent_is_given_up(use: Callable[[str, float], None]) -> None:
    """Accepted, never answered: the timeout counts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://:hunter2@127.0.0.1:{listener.getsockname()[1]}/0?socket_timeout=600&retry_on_timeout=yes"

        with pytest.raises(BusUnavailable, match="did not answer in time"):
            use(url, 0.2)


def info(version: str) -> bytes:
    text = f"# Server\r\nredis_version:{version}\r\n"
    return f"+OK\r\n${len(text)}\r\n{text}\r\n".encode()


def test_a_server_that_is_too_old_is_named_with_what_is_needed(answer: Callable[[bytes], str]) -> None:
    """Found and needed, in one line."""
    with pytest.raises(
        BusRefused, match=r"Redis 6\.2\.14 at 127\.0\.0\.1:\d+ is too old; needed: Redis 7\.0 or newer, or Valkey"
    ):
        checked(answer(info("6.2.14")))
    checked(answer(info("7.0.0")))
    checked(answer(info("10.0.1")))


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (b"-OOM command not allowed\r\n", BusRefused, "out of memory"),
        (b"-MISCONF Errors writing to the AOF file\r\n", BusRefused, "disk"),
        (b"-READONLY You can't write\r\n", BusUnavailable, "read-only replica"),
        (b"-NOAUTH Authentication required.\r\n", BusRefused, "password"),
        (b"-NOPERM User x has no permissions\r\n", BusRefused, "no permission"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", BusRefused, "another node"),
        (b"-ERR unknown command 'FCALL', with args\r\n", BusRefused, "needed: Redis 7.0"),
        (b"-ERR something else\r\n", BusRefused, "something else"),
        (b"-WEIRD thing\r\n", BusRefused, "thing"),
        (b"-LOADING Redis is loading\r\n", BusUnavailable, "loading"),
        (b"-BUSY Redis is busy\r\n", BusUnavailable, "busy"),
        (b"-CLUSTERDOWN The cluster is down\r\n", BusUnavailable, "cluster"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", BusUnavailable, "primary"),
        (b"-TRYAGAIN Multiple keys\r\n", BusUnavailable, "TRYAGAIN"),
        (b"-NOREPLICAS Not enough good replicas\r\n", BusUnavailable, "replicas"),
        (b"-HEADGATE nonsense {}\r\n", BusRefused, "nonsense"),
        (b"-HEADGATE invalid_topic nope\r\n", BusRefused, "invalid_topic"),
        (b"", BusUnavailable, "127.0.0.1"),
    ],
)
def test_each_refusal_of_redis_is_told_apart(
    answer: Callable[[bytes], str], reply: bytes, kind: type[Exception], says: str
) -> None:
    """What helps by waiting is BusUnavailable, what needs somebody's hand is BusRefused; both say what it is."""
    url = answer(reply).replace(":hunter2@", "")
    client = open_client(url, timeout_s=DEADLINE_S)

    with pytest.raises((BusRefused, BusUnavailable), match=says) as caught:
        call(client, "FCALL", "headgate_publish", 1, "k", "a", "1")

    assert caught.type is kind
    client.close()


def test_a_client_never_retries_by_itself() -> None:
    """A command that was not answered has been sent once: a hidden second one would write twice."""
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


@pytest.mark.parametrize("url", ["http://x", "redis://x:port", "nonsense", "redis://:hunter2@[::1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """Without repeating it: it may hold a password."""
    with pytest.raises(BusRefused, match="not of the form") as caught:
        open_client(url)

    assert "hunter2" not in caught.value.message
