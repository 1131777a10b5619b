"""StatsD: the lines, how they are packed, and that nothing about the network ever raises or waits. Real UDP."""

import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime import statsd
from headgate.runtime.statsd import MAX_DATAGRAM_BYTES, Statsd, datagrams, lines
from tests.support.redis_server import wait_until


@pytest.fixture
def faults() -> list[Exception]:
    return []


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A StatsD server's socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        # Not before, because the kernel may give a free port to two sockets that are both willing to share it.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.settimeout(30)
        yield listening


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4, ["q:4|g"]),
        (4.5, ["q:4.5|g"]),
        (0, ["q:0|g"]),
        (-0.0, ["q:0|g"]),
        (1e15, ["q:1e+15|g"]),
        (123456789012345.0, ["q:123456789012345|g"]),
        (-4, ["q:0|g", "q:-4|g"]),
        (-0.25, ["q:0|g", "q:-0.25|g"]),
    ],
)
def test_a_gauge_is_set_and_never_changed_by(value: float, expected: list[str]) -> None:
    """A sign would make it a difference, so a negative one is set to zero first, in the same datagram."""
    (datagram,) = datagrams(lines({}, {"q": value}))
    assert datagram.decode().split("\n") == expected


def test_everything_of_a_page_goes_in_one_datagram(listener: socket.socket, faults: list[Exception]) -> None:
    sending = Statsd(listener.getsockname(), faults.append)
    sending.start()
    sending.send({"shop.failed": 3, "shop.paid": 41}, {"shop.depth": 7})
    assert listener.recv(65536) == b"shop.failed:3|c\nshop.paid:41|c\nshop.depth:7|g"
    sending.close()
    assert not faults


@pytest.mark.parametrize(("beyond", "count"), [(0, 1), (1, 2)])
def test_a_datagram_is_filled_to_its_limit(beyond: int, count: int) -> None:
    """1,432 bytes with the line break, and not one more."""
    rest = MAX_DATAGRAM_BYTES - 1 - 100 + beyond
    assert [len(sent) for sent in datagrams([b"x" * 100, b"y" * rest])] == ([MAX_DATAGRAM_BYTES] if count == 1 else [100, rest])


@given(st.dictionaries(st.text("abc_.", min_size=1, max_size=200), st.floats(-1e9, 1e9), max_size=60))
def test_datagrams_are_few_small_and_complete(gauges: dict[str, float]) -> None:
    """Nothing is cut, nothing is lost, and no two neighbours would have fitted into one."""
    sent = list(datagrams(lines({}, gauges)))
    assert b"\n".join(sent) == b"\n".join(lines({}, gauges))
    assert all(len(datagram) <= MAX_DATAGRAM_BYTES for datagram in sent)
    first_of_next = [next(line for line in lines({}, gauges) if after.startswith(line)) for after in sent[1:]]
    for datagram, line in zip(sent, first_of_next, strict=False):
        assert len(datagram) + 1 + len(line) > MAX_DATAGRAM_BYTES


def test_a_server_that_is_gone_is_counted_and_found_again(listener: socket.socket, faults: list[Exception]) -> None:
    """Once it listens again the next datagram arrives, though the kernel still holds the answer to one before.

    Connected to another peer, a socket takes nothing from us, and keeps the port for the one that will.
    """
    place = listener.getsockname()
    listener.connect(("127.0.0.1", 9))
    sending = Statsd(place, faults.append)
    sending.start()
    sending.send({"a": 1}, {})
    assert sending._socket is not None
    answered = select.poll()
    answered.register(sending._socket, select.POLLERR)
    assert answered.poll(30_000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(place)
        again.settimeout(30)
        sending.send({"b": 2}, {})
        assert again.recv(65536) == b"b:2|c"
    sending.close()
    assert [type(fault) for fault in faults] == [ConnectionRefusedError]


def test_a_name_that_is_not_found_is_told_and_looked_up_again(
    listener: socket.socket, faults: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute later, in a separate thread; earlier lines are lost and counted."""
    place = ("no-such-host.invalid", listener.getsockname()[1])

    def unknown(*place: Any, **how: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    sending = Statsd(place, faults.append)
    sending.start()
    sending.send({"a": 1}, {})
    assert [type(fault) for fault in faults] == [socket.gaierror, OSError]

    monkeypatch.setattr(statsd, "RESOLVE_EVERY_S", 0)
    address = [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", listener.getsockname())]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *place, **how: address)
    listener.settimeout(0)

    def arrived() -> bytes:
        sending.send({"a": 2}, {})
        try:
            return listener.recv(65536)
        except BlockingIOError:
            return b""

    assert wait_until(arrived, "a datagram after the name was found") == b"a:2|c"
    sending._looking_up.join()
    sending.close()


def test_a_name_that_moves_while_its_old_place_is_connected_to_is_followed(
    listener: socket.socket, faults: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up has a separate thread, and may be through at any moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as older:
        older.bind(("127.0.0.1", 0))
        found = iter([older.getsockname(), listener.getsockname()])

        class Interrupted(socket.socket):
            def connect(self, address: Any) -> None:
                super().connect(address)
                if address == older.getsockname():
                    sending._look_up()

        def look_up(*place: Any, **how: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", next(found))]

        network = SimpleNamespace(**{**vars(socket), "socket": Interrupted, "getaddrinfo": look_up})
        monkeypatch.setattr(statsd, "socket", network)
        sending = Statsd(("stats.example", 8125), faults.append)
        sending.start()
        sending.send({"a": 1}, {})
        sending.send({"b": 2}, {})
        assert listener.recv(65536) == b"b:2|c"
        sending.close()
    assert not faults


def test_a_network_that_refuses_raises_nothing_and_is_tried_again(faults: list[Exception]) -> None:
    """A broadcast without leave to do so; the second time as the first, as the network may have come back."""
    sending = Statsd(("255.255.255.255", 9), faults.append)
    sending.start()
    sending.send({"a": 1}, {})
    sending.send({"a": 1}, {})
    sending.close()
    assert [type(fault) for fault in faults] == [PermissionError, PermissionError]
