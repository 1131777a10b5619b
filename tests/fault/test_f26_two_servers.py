"""F26: two Redis servers at one address. A relay leads to one, then to the other; open connections stay where they are.

The listener alone, with heads, log and messages of one server, and of a primary.
"""

from contextlib import closing

import pytest

from headgate.services.publisher import Publisher, Receipt
from tests.fault.pair import Pair
from tests.support.bus_here import BusHere, StartRedisBus
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

NAMESPACE = "notifications"


@pytest.fixture
def bus(pair: Pair, patterns: tuple[str, ...], redis_bus: StartRedisBus) -> BusHere:
    """A listener that has handed on ten events of the primary, which the replica follows."""
    pair.begin_to_follow()
    bus = redis_bus(*patterns, url=pair.url, namespace=NAMESPACE)
    publish(pair.primary, 10, "before")
    bus.wait_for(lambda: len(bus.events) == 10, "ten events")
    bus.wait_for_fences(2)
    return bus


def publish(server: RedisProcess, count: int, word: str) -> list[Receipt]:
    """Publish to a server itself, as publishers do with connections that lead there."""
    with closing(Publisher(server.url)) as publisher:
        return list(publisher.publish_many([("orders.1", f"{word} {number}") for number in range(count)]))


def fail_over(pair: Pair) -> RedisProcess:
    """Make the replica the primary, and lead new connections there. Return the old primary, which knows nothing of it."""
    old, new = pair.primary, pair.replica
    wait_until(lambda: position(old) == position(new), "the replica to have everything")
    new.call("REPLICAOF", "NO", "ONE")
    pair.take_over()
    return old


def position(server: RedisProcess) -> object:
    return server.call("HMGET", "hg:{notifications}:head", "epoch", "offset")


def test_an_old_primary_that_lives_on_is_left(pair: Pair, bus: BusHere) -> None:
    """No connection breaks, and its own heads and PONGs agree; all publishers are at the other."""
    fail_over(pair)
    receipts = publish(pair.primary, 50, "after")

    bus.wait_for(lambda: len(bus.events) >= 60, "every event of the new primary")
    bus.wait_for_fences(2)

    assert bus.offsets == list(range(1, 61))
    assert bus.only("missing", "log_lost", "line_changed") == [["line_changed", 10]]
    assert bus.bus.epoch == receipts[0].epoch


def test_a_head_of_one_server_and_a_pong_of_the_other_prove_nothing(pair: Pair, bus: BusHere) -> None:
    """The connections for commands break and are made again, to the new primary; the one for messages stays at the old."""
    old = fail_over(pair)
    publish(old, 5, "ghost")
    bus.wait_for(lambda: len(bus.events) >= 15, "the events of the old primary")
    receipts = publish(pair.primary, 100, "after")
    old.call("CLIENT", "KILL", "TYPE", "normal")
    bus.wait_for(lambda: bus.only("line_changed"), "word of the new primary's epoch")
    for _ in range(4):
        publish(pair.primary, 50, "later")
        bus.wait_for_fences(2)
    bus.wait_for(lambda: len(bus.events) >= 315, "every event of the new primary")

    words = [text.strip('"').partition(" ")[0] for _, _, text in bus.events]
    assert words == ["before"] * 10 + ["ghost"] * 5 + ["after"] * 100 + ["later"] * 200
    assert bus.offsets == [*range(1, 16), *range(11, 311)]
    assert bus.only("missing", "log_lost", "line_changed") == [["line_changed", 10]]
    assert bus.bus.epoch == receipts[0].epoch


def test_a_primary_that_is_made_a_replica_is_left(pair: Pair, bus: BusHere) -> None:
    """It keeps its connections, and hands on the new primary's messages, when it comes to that."""
    old = fail_over(pair)
    pair.redirect(old)  # the address does not change
    old.call("REPLICAOF", "127.0.0.1", pair.primary.port)

    bus.wait_for(lambda: bus.only("bus"), "word that the bus is down")
    bus.wait_for(lambda: "replica" in reason(bus), "the reason")
    assert not bus.bus.up
    publish(pair.primary, 20, "after")
    pair.redirect(pair.primary)

    bus.wait_for(lambda: len(bus.events) >= 30, "every event of the new primary")
    assert bus.offsets == list(range(1, 31))
    assert bus.only("missing", "log_lost") == []


def test_connections_that_lead_to_two_servers_in_turn_make_no_feed(pair: Pair, bus: BusHere) -> None:
    """Both are primaries, every second connection leads to the other one, and the gateway says why it is not ready."""
    old = fail_over(pair)
    pair.redirect(old, pair.primary)
    pair.relay.reset()

    bus.wait_for(lambda: "another Redis server" in reason(bus), "the reason")
    ups = len(bus.only("bus"))
    assert not bus.bus.up
    publish(pair.primary, 20, "after")
    pair.redirect(pair.primary)

    bus.wait_for(lambda: len(bus.events) >= 30, "every event of the server that is left")
    bus.wait_for_fences(2)
    assert bus.offsets == list(range(1, 31))
    assert bus.only("bus")[ups:] == [["bus", True]]


def reason(bus: BusHere) -> str:
    """Return why the bus is down."""
    return bus.bus.last_error.message if bus.bus.last_error is not None else ""
