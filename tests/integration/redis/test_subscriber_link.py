"""The Pub/Sub link against a real Redis: its reads, when it breaks, and that its owner is notified."""

import contextlib
import gc
import os
import socket
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.redis import subscriber_link
from headgate.redis.client import Client, call, call_many
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.primary_switch import switch_of
from headgate.redis.subscriber_link import SubscriberLink
from headgate.settings.addresses.redis_url import read_url
from tests.support.answering import answering_each
from tests.support.certificates import Authority
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.fixture
def link(redis_url: str) -> Iterator[SubscriberLink]:
    """A connected link that waits at most thirty seconds."""
    link = SubscriberLink(redis_url)
    link.connect()
    link.settimeout(DEADLINE_S)
    yield link
    link.close()


def read_all(link: SubscriberLink, count: int) -> list[Any]:
    replies: list[Any] = []
    while len(replies) < count:
        replies += link.read()
    return replies


# Reading -----------------------------------------------------------------------------------------------------------------


def test_one_read_returns_everything_that_has_arrived(link: SubscriberLink, redis_client: Client) -> None:
    """Messages that queued up in the socket come as one list, because the fan-out joins simultaneous events."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call_many(redis_client, [("PUBLISH", "a", f"{number:03d}") for number in range(500)])
    size = 500 * len(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\n000\r\n")
    with socket.socket(fileno=os.dup(link.fileno())) as peek:
        peek.settimeout(DEADLINE_S)  # the descriptor does not block, as nothing may be there yet
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

    # Redis may take the next message before a PING that is still on its way, so at least the earlier messages have come.
    messages = 0
    for kind, token, *_ in replies:
        if kind == b"pong":
            assert messages > int(token)
        messages += kind == b"message"
    assert messages == 20


def test_a_read_without_waiting_finds_nothing_over_tls_too(tmp_path: Path) -> None:
    """A TLS socket reports in another way that nothing has come, which is no broken connection."""
    authority = Authority(tmp_path)
    with answering_each(b"+OK\r\n", authority.server_context("127.0.0.1")) as url:
        link = SubscriberLink(f"{url}?ssl_ca_certs={authority.ca_file}")
        with contextlib.closing(link):
            link.connect()
            assert link.read_ready() == []
            link.send(("PING",))
            assert link.read() == [b"OK"]


def test_a_message_of_40_megabytes_arrives_whole_and_the_next_one_after_it(link: SubscriberLink, redis_client: Client) -> None:
    """A poisoned message is the bus's to set aside; the link is not broken by it."""
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call(redis_client, "PUBLISH", "a", b"x" * 40_000_000)
    call(redis_client, "PUBLISH", "a", b"next")

    sizes = [len(reply[2]) for reply in read_all(link, 2)]

    assert sizes == [40_000_000, 4]


def test_too_long_a_reply_breaks_the_link(link: SubscriberLink, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, so a reply larger than any event is not collected to its end."""
    monkeypatch.setattr(subscriber_link, "MAX_REPLY_BYTES", 1_000_000)
    link.send(("SUBSCRIBE", "a"))
    link.read()
    call(redis_client, "PUBLISH", "a", b"x" * 5_000_000)

    with pytest.raises(BusUnavailable, match="larger than 1000000 bytes"):
        link.read()


# Breaking ----------------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_reply_break_the_link(link: SubscriberLink) -> None:
    """Garbage in the stream, after which nothing can be trusted."""
    theirs, ours = socket.socketpair()
    link.close()
    link._socket = ours
    theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n")

    with pytest.raises(BusUnavailable, match="not a Redis reply"):
        link.read()
    theirs.close()


def test_a_thread_that_reads_never_waits_on_the_descriptor_of_a_later_connection(redis_url: str) -> None:
    """A switch closes the links of other threads, and connects at once, so the number of a descriptor goes to the new one.

    Before, one read in ten or twenty slept until its timeout, 5 s in a consumer. Two threads keep the processor busy, as a burst
    of work does.
    """
    current: list[SubscriberLink] = []
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            link = SubscriberLink(redis_url)
            with contextlib.suppress(BusUnavailable):
                link.connect()
                link.settimeout(10 * DEADLINE_S)
                current.append(link)
                while True:
                    link.send(*[("XACK", "a", "b", "1-0")] * 5)
                    read_all(link, 5)
            link.close()

    def burn() -> None:
        while not stopped.is_set():
            sum(range(2000))

    worker = threading.Thread(target=work, daemon=True)
    for thread in (worker, *(threading.Thread(target=burn, daemon=True) for _ in range(2))):
        thread.start()
    try:
        for number in range(40):
            wait_until(lambda: current, f"the reader goes on after {number} switches")
            current.pop().leave()
            one, other = socket.socketpair()  # which have the numbers now
            with one, other:
                wait_until(lambda: current, f"the reader goes on after {number} switches")
    finally:
        stopped.set()
        if current:
            current.pop().leave()
    worker.join(DEADLINE_S)
    assert not worker.is_alive()


def test_a_link_to_the_server_that_the_address_leads_to_stays(redis_url: str, redis_client: Client) -> None:
    """It asks for its server when it connects, so this process's earlier knowledge of the address does not count for it."""
    LOG_LIBRARY.ensure_loaded(redis_client)
    switch = switch_of(read_url(redis_url))
    switch.note("a server of before", 0.0, count=switch.count)
    link = SubscriberLink(redis_url)
    link.connect()
    link.settimeout(DEADLINE_S)
    switch.doubt()
    call(redis_client, "PING")  # which asks where the address leads
    link.send(("SUBSCRIBE", "a"))
    assert link.read() == [[b"subscribe", b"a", 1]]
    switch.note("another server", 0.0, count=switch.count)
    with pytest.raises(BusUnavailable, match="another Redis server"):
        link.read()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_link_that_cannot_connect_is_freed_without_the_collector(scheme: str) -> None:
    """A gateway freezes what survives a scan, so a cycle for each attempt would fill its memory while Redis is down."""
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # and does not listen
        link = SubscriberLink(f"{scheme}://127.0.0.1:{refusing.getsockname()[1]}", key="x")
        gone = weakref.ref(link)
        gc.disable()
        try:
            with contextlib.suppress(BusUnavailable):
                link.connect()
            del link
            assert gone() is None
        finally:
            gc.enable()
