"""Connecting to a Redis, and to other servers: both kinds of connection name the fault and the remedy."""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
import redis

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.client import Client, check_server, open_client
from headgate.redis.connections import connection_pool
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.primary_switch import switch_of
from headgate.redis.subscriber_link import SubscriberLink
from headgate.settings.addresses.redis_url import read_url
from tests.support.answering import answering_each
from tests.support.certificates import Authority
from tests.support.redis_process import Server
from tests.support.redis_server import DEADLINE_S, wait_until


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


def test_the_server_says_its_name_and_version(redis_client: Client) -> None:
    """Name and version, for the line at start."""
    name, version = check_server(redis_client)

    assert name in ("Redis", "Valkey")
    assert version[0].isdigit()


@pytest.fixture
def forbidden_url(redis_server: EmbeddedRedis, tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis in a folder that this process may not enter. If we are root, we are another user during that time."""
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


def test_a_password_that_is_missing_is_said(locked_redis_url: str) -> None:
    """A server that wants one, a URL without one, at the first command of either kind of connection."""
    for use in (checked, connected):
        with pytest.raises(BusRefused, match="it wants a password") as caught:
            use(locked_redis_url)
        assert "check user and password" in caught.value.lines()[1]


@pytest.mark.parametrize("use", [checked, connected])
def test_a_server_that_is_silent_is_given_up(use: Callable[[str, float], None]) -> None:
    """Accepted, never answered, so the timeout counts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://:hunter2@127.0.0.1:{listener.getsockname()[1]}/0?socket_timeout=600&retry_on_timeout=yes"

        with pytest.raises(BusUnavailable, match="did not answer in time"):
            use(url, 0.2)


def test_a_redis_that_has_answered_and_stands_still_is_not_sought_elsewhere(tmp_path: Path) -> None:
    """The address is right, so the remedy is about the server and the network, for both kinds of connection."""
    with Server(tmp_path, "requirepass secret", password="secret") as server:
        checked(server.url)
        server.pause()
        for use in (checked, connected):
            with pytest.raises(BusUnavailable, match="did not answer in time") as caught:
                use(server.url, 0.2)
            assert "not held up" in caught.value.lines()[1]


def test_the_session_tickets_of_a_tls_server_are_no_data(tmp_path: Path) -> None:
    """They follow the handshake, so a socket with nothing to read looks readable. Some users may not even send PING."""
    authority = Authority(tmp_path)
    for reply in (b"+OK\r\n", b"-NOPERM no permissions\r\n"):
        with answering_each(reply, authority.server_context("127.0.0.1")) as text:
            url = read_url(f"{text}?ssl_ca_certs={authority.ca_file}")
            for each in (url, url.at(url.hosts[0])):  # the second one, a node of a Cluster, is not asked for its token
                pool = connection_pool(each, DEADLINE_S)
                lent = pool.get_connection()
                assert not lent.can_read(0)
                pool.release(lent)
                assert pool.get_connection() is lent
                pool.disconnect()


@pytest.mark.parametrize(
    ("host", "options", "says", "advises"),
    [
        ("redis.example", {}, "its certificate is not accepted: IP address mismatch", "by a name that the certificate has"),
        ("127.0.0.1", {"expired": True}, "its certificate is not accepted: certificate has expired", "renew it"),
        (
            "127.0.0.1",
            {"wants_client": True},
            "clients with a certificate|closed the connection",
            "?ssl_certfile=FILE&ssl_keyfile=FILE",
        ),
    ],
    ids=["another name", "expired", "client certificate"],
)
def test_a_tls_server_that_does_not_suit_is_said_with_the_remedy(
    tmp_path: Path, host: str, options: dict[str, bool], says: str, advises: str
) -> None:
    """None of them is cured by another authority, or by no TLS. Redis itself wants a certificate of its clients by default."""
    authority = Authority(tmp_path)
    context = authority.server_context(host, expired=options.get("expired", False))
    if options.get("wants_client"):
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca_file)
    with answering_each(b"+OK\r\n", context) as url, pytest.raises(BusUnavailable, match=says) as caught:
        connected(f"{url}?ssl_ca_certs={authority.ca_file}")
    assert advises in "".join(caught.value.__notes__)


@pytest.mark.skipif(not hasattr(redis.SSLConnection, "_wrap_socket_with_ssl"), reason="redis-py 5.0 makes one for each")
def test_tls_connections_share_a_context_until_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context reads the authorities of the system, which blocks the loop. After a failure the files may be new ones.

    A server that is down or stands still says nothing about them.
    """
    made, make = count(), ssl.create_default_context

    def counted() -> ssl.SSLContext:
        next(made)
        return make()

    monkeypatch.setattr(ssl, "create_default_context", counted)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new, trusted = Authority(tmp_path / "old"), Authority(tmp_path / "new"), tmp_path / "trusted.pem"

    def connect(server: Authority) -> None:
        with answering_each(b"+OK\r\n", server.server_context("127.0.0.1")) as text:
            pool = connection_pool(read_url(f"{text}?ssl_ca_certs={trusted}"), DEADLINE_S)
            pool.release(pool.get_connection())
            pool.disconnect()

    trusted.write_bytes(Path(old.ca_file).read_bytes())
    connect(old)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (1, silent.getsockname()[1]):
            with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
                connection_pool(read_url(f"rediss://127.0.0.1:{port}?ssl_ca_certs={trusted}"), 0.1).get_connection()
    connect(old)
    assert next(made) == 1
    trusted.write_bytes(Path(new.ca_file).read_bytes())
    with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
        connect(new)
    connect(new)
    assert next(made) == 3


@pytest.mark.parametrize("has_threads", [True, False])
def test_a_connection_to_a_far_redis_works_while_another_one_asks_where_the_address_leads(
    monkeypatch: pytest.MonkeyPatch, *, has_threads: bool
) -> None:
    """The server answers the question after the command. So a command that waited for it would find no answer.

    Where no thread can be started, as beyond a limit of the system, the question is asked later.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = read_url(f"redis://:secret@127.0.0.1:{listener.getsockname()[1]}")
        switch = switch_of(url)
        connection: Any = connection_pool(url, DEADLINE_S).make_connection()
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(connection.connect)
            peer = listener.accept()[0]
            peer.recv(4096)
            peer.sendall(introduced("here"))
            opened.result(DEADLINE_S)
            connection.opened_in_s = 1.0
            switch.doubt()
            with monkeypatch.context() as patch:
                if not has_threads:
                    patch.setattr(Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
                connection.connect()
            connection.send_command("PING")
            peer.recv(4096)
            peer.sendall(b"+PONG\r\n")
            assert connection.read_response() == b"PONG"
            if not has_threads:
                switch.doubt()
                connection.connect()
            other = listener.accept()[0]
            other.recv(4096)
            other.sendall(introduced("there"))
            wait_until(lambda: switch.server == "there", "the answer")
        connection.disconnect()
        peer.close()
        other.close()


def introduced(token: str) -> bytes:
    """Return the replies to a login and to the question for the server."""
    return b"+OK\r\n*3\r\n:12\r\n$%d\r\n%s\r\n:0\r\n" % (len(token), token.encode())


def without_password(url: str) -> str:
    """Return a URL for which connecting asks nothing of the server."""
    return url.replace(":hunter2@", "")


def info(version: str) -> bytes:
    text = f"# Server\r\nredis_version:{version}\r\n"
    return f"${len(text)}\r\n{text}\r\n".encode()


def test_a_server_that_is_too_old_is_named_with_the_version_that_is_needed(answer: Callable[[bytes], str]) -> None:
    """Found and needed, in one line."""
    with pytest.raises(
        BusRefused, match=r"Redis 6\.2\.14 at 127\.0\.0\.1:\d+ is too old; needed: Redis 7\.0 or newer, or Valkey"
    ):
        checked(without_password(answer(info("6.2.14"))))
    checked(without_password(answer(info("7.0.0"))))
    checked(without_password(answer(info("10.0.1"))))
