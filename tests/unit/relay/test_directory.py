"""The directory of owners, on a small Redis in this process: found owners, how often Redis is asked, what stays without it."""

from __future__ import annotations

from collections.abc import Iterator

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.errors import BusRefused
from headgate.redis.keys import RELAYS
from headgate.redis.relays import LEASE_S, MAX_RELAYS, Address, leave, look
from headgate.relay import directory
from headgate.relay.directory import MAX_UNKNOWN, Directory
from tests.support.small_redis import SmallRedis

ONE, TWO = Address("10.0.0.1", 8100), Address("fd00::2", 8101)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> SmallRedis:
    """The Redis of all directories."""
    server = SmallRedis()
    monkeypatch.setattr(directory, "open_client", lambda *_, **__: server.client())
    return server


@pytest.fixture
def one(server: SmallRedis) -> Iterator[Directory]:
    """A directory that looks when it is told to."""
    made = Directory("redis://127.0.0.1:1/0", "gate-1AA", ONE, lambda: float(server.now_s))
    made.look()
    yield made
    made.close()


def test_each_learns_the_addresses_of_all(server: SmallRedis) -> None:
    """Until their leases end, or they leave."""
    client = server.client()
    assert look(client, "gate-1AA", ONE) == {"gate-1AA": ONE}
    assert look(client, "gate-2AB", TWO) == {"gate-1AA": ONE, "gate-2AB": TWO}
    server.now_s += LEASE_S
    assert look(client, "gate-2AB", TWO) == {"gate-2AB": TWO}
    leave(client, "gate-2AB", TWO)
    assert RELAYS not in server.present()


def test_the_last_word_of_an_owner_counts(server: SmallRedis) -> None:
    """A worker that has replaced a killed one listens on another port."""
    client = server.client()
    look(client, "gate-1AA", ONE)
    server.now_s += 1
    assert look(client, "gate-1AA", TWO) == {"gate-1AA": TWO}


@pytest.mark.parametrize(
    "entry",
    ["gate-2AA", "gate-2AA 10.0.0.1", "gate-2AA :8100", "gate-2AA 10.0.0.1:0", "gate-2AA h:99999", "gate-2AA h:x", "\ufffd"],
)
def test_an_entry_that_is_no_address_is_none(server: SmallRedis, entry: str) -> None:
    """Whatever has written it."""
    server._zadd(RELAYS, server.now_s, entry)
    assert look(server.client(), "gate-1AA", ONE) == {"gate-1AA": ONE}


def test_no_more_entries_are_read_than_there_may_be(server: SmallRedis) -> None:
    """So a full set costs a bounded time."""
    for number in range(MAX_RELAYS + 10):
        server._zadd(RELAYS, server.now_s - 1, f"g{number:05}AA h:1")
    assert len(look(server.client(), "gate-1AA", ONE)) <= MAX_RELAYS


def test_a_command_that_is_refused_is_an_error(server: SmallRedis) -> None:
    """For whoever looks, and whoever leaves."""
    server.refuses = "ZADD"
    with pytest.raises(BusRefused):
        look(server.client(), "gate-1AA", ONE)
    server.refuses = "ZREM"
    with pytest.raises(BusRefused):
        leave(server.client(), "gate-1AA", ONE)


def test_a_known_owner_is_found_without_redis(server: SmallRedis, one: Directory) -> None:
    """Also when Redis is away for a long time; one line says so."""
    look(server.client(), "gate-2AB", TWO)
    one.look()
    server.up = False
    with capture_logs() as logs:
        one.look()
        one.look()
    assert [each["event"] for each in logs] == ["relays out of reach"]
    assert (one.find("gate-2AB", 0.0), one.known("gate-2AB")) == (TWO, TWO)


def test_an_owner_that_is_not_known_is_looked_for_once(server: SmallRedis, one: Directory) -> None:
    """Not again for a while, unless a look finds it."""
    waiting = gevent.spawn(one.find, "gate-2AB", 60.0)
    gevent.sleep(0)
    assert one._rounds.is_hurried
    one.look()
    waiting.join()
    assert waiting.value is None
    one._rounds._wakeup.clear()
    assert one.find("gate-2AB", 60.0) is None  # at once
    assert not one._rounds.is_hurried
    look(server.client(), "gate-2AB", TWO)
    one.look()
    assert one.find("gate-2AB", 60.0) == TWO


def test_a_look_that_failed_finds_nobody_out(server: SmallRedis, one: Directory) -> None:
    """The owner is looked for again."""
    server.up = False
    waiting = gevent.spawn(one.find, "gate-2AB", 60.0)
    gevent.sleep(0)
    one.look()
    waiting.join()
    assert waiting.value is None
    assert one._unknown == {}


def test_forged_names_are_remembered_in_a_bounded_way(
    server: SmallRedis, one: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is forgotten."""
    monkeypatch.setattr(directory, "MAX_UNKNOWN", 3)
    assert MAX_UNKNOWN > 3
    for number in range(5):
        waiting = gevent.spawn(one.find, f"forgedA{number}", 60.0)
        gevent.sleep(0)
        one.look()
        waiting.join()
    assert list(one._unknown) == ["forgedA2", "forgedA3", "forgedA4"]


def test_a_directory_that_is_closed_asks_nobody(server: SmallRedis, one: Directory) -> None:
    """And its process is taken out, if Redis answers."""
    one.close()
    one.close()
    assert one.find("gate-2AB", 60.0) is None
    assert RELAYS not in server.present()
    server.up = False
    other = Directory("redis://127.0.0.1:1/0", "gate-2AA", TWO)
    other.close()


def test_a_fault_of_ours_does_not_end_it(server: SmallRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look goes on."""
    monkeypatch.setattr(directory, "GAP_S", 0.0)
    made = Directory("redis://127.0.0.1:1/0", "gate-1AA", ONE)
    faults = [ValueError("a fault")]
    whole = made.look

    def faulty() -> None:
        if faults:
            raise faults.pop()
        whole()

    made.look = faulty  # type: ignore[method-assign]
    made._rounds.hurry()
    with capture_logs() as logs:
        made.start()
        with gevent.Timeout(30):
            while RELAYS not in server.present():
                made._rounds.hurry()
                gevent.sleep(0.001)
    assert "directory failed" in [each["event"] for each in logs]
    made.close()
