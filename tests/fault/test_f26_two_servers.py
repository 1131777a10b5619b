"""F26: two Redis servers at one address. A relay leads to one, then to the other; open connections stay where they are.

The listener alone, in a separate process, with heads, log and messages of one server, and of a primary.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.services.publisher import Publisher, Receipt
from tests.fault.chaos_proxy import ChaosProxy
from tests.fault.redis_process import RedisProcess
from tests.support.bus_process import BusProcess
from tests.support.redis_server import wait_until

EITHER = pytest.mark.parametrize(
    "patterns",
    [pytest.param(("#",), id="whole", marks=pytest.mark.nightly), pytest.param(("orders.*", "bills.1"), id="narrow")],
    indirect=True,
)


class Pair(NamedTuple):
    """A primary, a replica with all its data, the relay in front of them, and a working listener on it."""

    primary: RedisProcess
    replica: RedisProcess
    relay: ChaosProxy
    bus: BusProcess

    def publish(self, server: RedisProcess, count: int, word: str) -> list[Receipt]:
        """Publish to a server itself, as publishers do with connections that lead there."""
        publisher = Publisher(server.url)
        try:
            return list(publisher.publish_many([("orders.1", f"{word} {number}") for number in range(count)]))
        finally:
            publisher.close()

    def settle(self) -> None:
        """Wait until the replica has everything."""
        wait_until(lambda: "master_link_status:up" in info(self.replica), "the replica to be in step")
        wait_until(lambda: position(self.primary) == position(self.replica), "the replica to have everything")

    def fail_over(self) -> None:
        """Make the replica a primary, and lead new connections there. The old primary lives on, and knows nothing of it."""
        self.settle()
        self.replica.call("REPLICAOF", "NO", "ONE")
        self.relay.redirect(at(self.replica))


def at(server: RedisProcess) -> tuple[str, int]:
    return "127.0.0.1", server.port


def info(server: RedisProcess) -> str:
    return "\n".join(f"{name}:{value}" for name, value in server.call("INFO", "replication").items())


def position(server: RedisProcess) -> object:
    return server.call("HMGET", "hg:{notifications}:head", "epoch", "offset")


@pytest.fixture
def patterns(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The patterns of the listener."""
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def pair(tmp_path: Path, patterns: tuple[str, ...]) -> Iterator[Pair]:
    """The two servers, with ten events that the listener has handed on."""
    with ExitStack() as started:
        primary, replica = (started.enter_context(RedisProcess(tmp_path / name)) for name in ("one", "other"))
        primary.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica.call("REPLICAOF", *map(str, at(primary)))
        relay = started.enter_context(ChaosProxy(at(primary)))
        bus = BusProcess(f"redis://127.0.0.1:{relay.port}", patterns, fence_interval_s=0.1)
        started.callback(bus.close)
        bus.wait_until_up()
        pair = Pair(primary, replica, relay, bus)
        pair.publish(primary, 10, "before")
        bus.wait_for(lambda: len(bus.events) == 10, "ten events")
        bus.wait_for_fences(2)
        yield pair


@EITHER
def test_an_old_primary_that_lives_on_is_left(pair: Pair) -> None:
    """No connection breaks, and its own heads and PONGs agree; all publishers are at the other."""
    pair.fail_over()
    receipts = pair.publish(pair.replica, 50, "after")

    pair.bus.wait_for(lambda: len(pair.bus.events) >= 60, "every event of the new primary")
    pair.bus.wait_for_fences(2)

    assert [offset for _, offset, _ in pair.bus.events] == list(range(1, 61))
    assert pair.bus.news("missing", "log_lost") == []
    assert pair.bus.news("line_changed") == [["line_changed", receipts[0].epoch, 10, 10]]


@EITHER
def test_a_head_of_one_server_and_a_pong_of_the_other_prove_nothing(pair: Pair) -> None:
    """The connections for commands break and are made again, to the new primary; the one for messages stays at the old."""
    pair.fail_over()
    pair.publish(pair.primary, 5, "ghost")  # to the old primary, which has no replica any more
    pair.bus.wait_for(lambda: len(pair.bus.events) >= 15, "the events of the old primary")
    receipts = pair.publish(pair.replica, 100, "after")
    pair.primary.call("CLIENT", "KILL", "TYPE", "normal")
    pair.bus.wait_for(lambda: pair.bus.news("line_changed"), "word of the new primary's epoch")
    for _ in range(4):
        pair.publish(pair.replica, 50, "later")
        pair.bus.wait_for_fences(2)
    pair.bus.wait_for(lambda: len(pair.bus.events) >= 315, "every event of the new primary")

    words = [text.strip('"').partition(" ")[0] for _, _, text in pair.bus.events]
    assert words == ["before"] * 10 + ["ghost"] * 5 + ["after"] * 100 + ["later"] * 200
    assert pair.bus.offsets == [*range(1, 16), *range(11, 311)]
    assert pair.bus.news("missing", "log_lost") == []
    assert pair.bus.news("line_changed") == [["line_changed", receipts[0].epoch, 10, 10]]


@EITHER
def test_a_primary_that_is_made_a_replica_is_left(pair: Pair) -> None:
    """It keeps its connections, and hands on the new primary's messages, when it comes to that."""
    pair.fail_over()
    pair.relay.redirect(at(pair.primary))  # the address does not change
    pair.primary.call("REPLICAOF", *map(str, at(pair.replica)))

    pair.bus.wait_for(lambda: pair.bus.news("bus"), "word that the bus is down")
    pair.bus.wait_for(lambda: "replica" in (pair.bus.state()["reason"] or ""), "the reason")
    assert pair.bus.state()["up"] is False
    pair.publish(pair.replica, 20, "after")
    pair.relay.redirect(at(pair.replica))

    pair.bus.wait_for(lambda: len(pair.bus.events) >= 30, "every event of the new primary")
    assert [offset for _, offset, _ in pair.bus.events] == list(range(1, 31))
    assert pair.bus.news("missing", "log_lost") == []


@EITHER
def test_connections_that_lead_to_two_servers_in_turn_make_no_feed(pair: Pair) -> None:
    """Both are primaries, every second connection leads to the other one, and the gateway says why it is not ready."""
    pair.fail_over()
    pair.relay.redirect(at(pair.primary), at(pair.replica))
    pair.relay.reset()

    pair.bus.wait_for(lambda: "another Redis server" in (pair.bus.state()["reason"] or ""), "the reason")
    ups = len(pair.bus.news("bus"))
    assert pair.bus.state()["up"] is False
    pair.publish(pair.replica, 20, "after")
    pair.relay.redirect(at(pair.replica))

    pair.bus.wait_for(lambda: len(pair.bus.events) >= 30, "every event of the server that is left")
    pair.bus.wait_for_fences(2)
    assert [offset for _, offset, _ in pair.bus.events] == list(range(1, 31))
    assert pair.bus.news("bus")[ups:] == [["bus", True]]
