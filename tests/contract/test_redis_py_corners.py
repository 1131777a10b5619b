"""Private or undocumented corners of redis-py and hiredis that headgate.redis relies on; each is named here once."""

import socket
import threading
from inspect import signature
from typing import Any

import hiredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.errors import BusRefused
from headgate.redis import client as commands
from headgate.redis.connections import PASSED_ON, connection_pool
from headgate.redis.faults import _END_OF_STREAM, NO_COMMAND, NO_FUNCTION, reply_of
from headgate.settings.addresses.redis_url import read_url


def connection_to(url: str, **options: Any) -> Any:
    return connection_pool(read_url(url), 30.0, **options).make_connection()


def test_a_connection_has_its_socket_in_sock(redis_url: str) -> None:
    """The plain, connected one, with nothing of ours read ahead (replies.py, subscriber_link.py). Taken away, it lives on."""
    connection = connection_to(redis_url)
    connection.connect()
    sock, connection._sock = connection._sock, None
    del connection

    assert isinstance(sock, socket.socket)
    sock.sendall(b"PING\r\n")
    assert sock.recv(64) == b"+PONG\r\n"
    sock.close()


def test_connecting_sends_nothing_that_was_not_asked_for() -> None:
    """No HELLO (we speak RESP2), no CLIENT SETINFO; only AUTH, SELECT and the question for the server, in one round trip."""
    received: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                words = connection.recv(4096).split(b"\r\n")
                received.append([word for word in words if word[:1] not in (b"", b"*", b"$")])
                connection.sendall(b"+OK\r\n+OK\r\n*3\r\n:12\r\n$5\r\ntoken\r\n:0\r\n")
                received.append(connection.recv(4096))  # the end, because a connection that closes earlier is refused

        thread = threading.Thread(target=serve)
        thread.start()
        connection = connection_to(f"redis://:secret@127.0.0.1:{listener.getsockname()[1]}/3?protocol=3&client_name=x")
        connection.client_name = None
        connection.connect()
        connection.disconnect()
        thread.join(30)

    assert received == [[b"AUTH", b"secret", b"SELECT", b"3", b"FCALL_RO", b"headgate_version", b"0", b"server"], b""]


def test_a_retry_of_none_is_none() -> None:
    """`Retry(NoBackoff(), 0)` runs a command once; the constructor's default would run it again."""
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise redis.ConnectionError

    with pytest.raises(redis.ConnectionError):
        Retry(NoBackoff(), 0).call_with_retry(fail, lambda _: None)
    assert len(attempts) == 1
    client: Any = commands.open_client("redis://127.0.0.1:1")
    assert client.get_retry()._retries == 0
    assert connection_to("redis://127.0.0.1:1").retry._retries == 0


def test_idle_connections_are_dropped_and_those_in_use_are_not(redis_url: str) -> None:
    """`drop_idle` closes the sockets of the connections that were released, and of no other."""
    client: Any = commands.open_client(redis_url)
    pool = client.connection_pool
    used, idle = pool.get_connection(), pool.get_connection()
    pool.release(idle)

    commands.drop_idle(client)

    assert (used._sock is None, idle._sock is None) == (False, True)
    pool.release(used)
    assert commands.call(client, "PING") in (b"PONG", True)
    client.close()


def test_options_of_the_url_do_not_overrule_ours() -> None:
    """A URL may carry options of redis-py that other programs use; those that the link depends on are ours."""
    url = "redis://127.0.0.1:1/0?protocol=3&decode_responses=yes&socket_timeout=600&retry_on_timeout=yes&health_check_interval=1"
    connection = connection_to(url)

    assert (connection.protocol, connection.socket_timeout, connection.health_check_interval) == (2, 30.0, 0)
    assert connection.encoder.decode_responses is False
    assert connection.retry_on_error == []


def test_error_replies_keep_their_word() -> None:
    """redis-py strips known words from the text and keeps them in `status_code` or the class; unknown ones stay."""
    parse: Any = redis._parsers.base.BaseParser.parse_error
    known = [
        ("OOM", "command not allowed"),
        ("LOADING", "Redis is loading the dataset in memory"),
        ("READONLY", "You can't write against a read only replica."),
        ("NOPERM", "this user has no permissions"),
        ("NOAUTH", "Authentication required."),
        ("WRONGPASS", "invalid username-password pair or user is disabled."),
        ("CLUSTERDOWN", "The cluster is down"),
        ("MASTERDOWN", "Link with MASTER is down"),
        ("TRYAGAIN", "Multiple keys request during rehashing of slot"),
    ]

    assert [reply_of(parse(f"{word} {text}")) for word, text in known] == known
    assert reply_of(parse("MOVED 3999 127.0.0.1:6381"))[0] == "MOVED"
    assert reply_of(parse('HEADGATE invalid_topic {"topic":""}')) == ("HEADGATE", 'invalid_topic {"topic":""}')
    assert reply_of(parse("ERR no such key")) == ("", "no such key")


@pytest.mark.parametrize("command", ["FCALL", "FCALL_RO"])
def test_a_function_that_is_not_there_has_a_text_and_no_code(redis_url: str, command: str) -> None:
    """Redis answers `ERR Function not found`, from which we make the code NOFUNCTION; only the whole text counts."""
    client: Any = commands.open_client(redis_url)

    with pytest.raises(BusRefused) as caught:
        commands.call(client, command, "headgate_nothing_of_this_name", 0)
    assert caught.value.redis_code == NO_FUNCTION
    assert reply_of(redis.ResponseError("ERR my Function not found, said a script")) == (
        "",
        "my Function not found, said a script",
    )
    client.close()


@pytest.mark.parametrize("said", ["'FCALL'", "`FUNCTION`", "'zcard', with args beginning with: 'a'"])
def test_a_server_without_a_command_says_unknown_command(said: str) -> None:
    """Redis 6 and a Sentinel answer `ERR unknown command`, in backticks or quotes by the version."""
    assert reply_of(redis.ResponseError(f"ERR unknown command {said}"))[0] == NO_COMMAND


def test_an_unknown_command_begins_with_its_name(redis_url: str) -> None:
    """A real server's `ERR unknown command` has the name in quotes, or backticks, in that place."""
    client: Any = commands.open_client(redis_url)

    with pytest.raises(redis.ResponseError, match=r"^unknown command ['`]HEADGATENOTHING['`]"):
        client.execute_command("HEADGATENOTHING")
    client.close()


def test_an_end_of_stream_is_a_connection_error_of_one_text() -> None:
    """redis-py has no class for a server that closes the connection in place of an answer; we give an advice for that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)

        thread = threading.Thread(target=serve)
        thread.start()
        client: Any = commands.open_client(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(redis.ConnectionError) as caught:
            client.execute_command("PING")
        thread.join(30)
        client.close()

    assert str(caught.value) == _END_OF_STREAM


def test_the_reader_takes_a_bytearray_and_says_false_without_a_reply() -> None:
    """`feed(buffer, start, length)` copies what it needs; `gets()` is False for an unfinished reply, and errors are objects."""
    reader: Any = hiredis.Reader(protocolError=ValueError, replyError=KeyError)
    buffer = bytearray(b"*2\r\n$1\r\na\r\n:1\r\n-ERR no\r\n*1\r\n$5\r\nab")

    reader.feed(buffer, 0, len(buffer))
    buffer[:] = bytes(len(buffer))

    assert reader.gets() == [b"a", 1]
    assert isinstance(reader.gets(), KeyError)
    assert reader.gets() is False


def test_the_replies_of_functions_are_passed_on_as_they_are() -> None:
    """redis-py has no callback that would shape them, so they may be read from the connection."""
    assert not PASSED_ON & set(redis.Redis().response_callbacks)


def test_a_tls_connection_wraps_its_socket_by_a_method() -> None:
    """`TlsConnection` replaces it (redis/bounded.py), because no option takes a context. In redis-py 5.0 there is none."""
    wrap = getattr(redis.SSLConnection, "_wrap_socket_with_ssl", None)
    if wrap is None:
        pytest.skip("this redis-py makes a context for each connection")
    assert list(signature(wrap).parameters) == ["self", "sock"]
