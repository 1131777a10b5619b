"""The watch on vitals, look by look, on a small Redis in this process: asked for by a console's page only."""

from collections.abc import Iterator
from typing import Any, cast

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Identity
from headgate.errors import Forbidden
from headgate.node.cluster.process_stats import FORGOTTEN_S, ProcessStats
from headgate.node.cluster.process_stats_watch import EVERY_S, KIND, REST_S, WALK_SHARE, WATCHED_S, ProcessStatsWatch
from headgate.node.health import State
from headgate.redis.keys import LOADS, questions_channel, table_key
from headgate.redis.questions import announce
from headgate.redis.shared_table import SharedTable
from tests.support.gateway_here import StartGatewayOnModel
from tests.support.held_clock import HeldClock
from tests.support.model_redis import NAMESPACE
from tests.support.small_redis import SmallRedis
from tests.unit.node.cluster.test_process_stats import process

ADMIN = Identity("ann", admin="read")


class Measured:
    """The vitals of a process, as the test says."""

    def __init__(self, name: str, clock: HeldClock) -> None:
        self.name, self.clock, self.sent, self.reads = name, clock, 0, 0

    def read(self) -> ProcessStats:
        self.reads += 1
        return process(self.clock.now_s, self.name, sent=self.sent)


class Process:
    """A gateway process as far as vitals go."""

    def __init__(self, name: str, clock: HeldClock, server: SmallRedis) -> None:
        self.measured = Measured(name, clock)
        client = server.client()
        self.table = SharedTable(client, [NAMESPACE], lambda: name, clock, clock)
        self.table.id, self.table._task.begun = name, True  # turned by the test
        self.watch = ProcessStatsWatch(self.table, {}, State, lambda: announce(client, KIND), clock)
        cast(Any, self.watch).measure = self.measured.read

    def turn(self) -> float:
        """Return how long the watch then waits."""
        wait_s = self.watch.turn()
        if self.table._task._wakeup.is_set():
            self.table._task._wakeup.clear()
            self.table.turn([self.watch])
        return wait_s

    def ask(self) -> dict[str, Any]:
        """Ask as a page of the console; the watch looks, as it does when it is woken."""
        greenlet = gevent.spawn(self.turn)
        answer: dict[str, Any] = self.watch.answer(ADMIN, {})["frame"]
        greenlet.get()
        return answer


@pytest.fixture
def pair(server: SmallRedis, clock: HeldClock) -> Iterator[tuple[Process, Process]]:
    one, two = Process("one", clock, server), Process("two", clock, server)
    server.hearers[questions_channel(0)] = [lambda _: one.watch.on_notice(), lambda _: two.watch.on_notice()]
    yield one, two
    one.table.close()
    two.table.close()


def tick(clock: HeldClock, server: SmallRedis, *processes: Process, seconds: int = 1) -> list[float]:
    """A second later every process looks; return for how long each then waits."""
    clock.now_s += seconds
    server.now_s += seconds
    return [each.turn() for each in processes]


@pytest.mark.parametrize("identity", [Identity("ann", ("#",), ("#",)), Identity("anonymous", ("#",)), Identity("console")])
def test_nobody_without_the_mark_sees_anything(pair: tuple[Process, Process], identity: Identity) -> None:
    """Whatever its grants and its name; nothing is measured for it either."""
    one, _ = pair
    with pytest.raises(Forbidden):
        one.watch.answer(identity, {})
    one.turn()
    assert one.measured.reads == 0


def test_without_a_console_nothing_is_measured(server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock) -> None:
    """Nor is Redis asked."""
    one, two = pair
    tick(clock, server, one, two)
    assert server.asked == []
    assert (one.measured.reads, two.measured.reads) == (0, 0)


def test_a_page_sees_all_processes(server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock) -> None:
    """Its own at once, the others with their next look; their rates with the second one."""
    one, two = pair
    assert [row["id"] for row in one.ask()["processes"]] == ["one"]
    tick(clock, server, two, one)
    two.measured.sent = 30
    tick(clock, server, two, one)
    frame = one.ask()
    assert [row["id"] for row in frame["processes"]] == ["one", "two"]
    assert (frame["rates"]["sent"], frame["own"]) == (30, "one")


def test_a_notice_wakes_a_process_which_looks_each_second_until_the_last_page_is_gone(
    server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock
) -> None:
    """One of many notices; the others come while the next look is on its way."""
    one, two = pair
    assert tick(clock, server, one, two) == [REST_S, REST_S]
    one.ask()
    assert two.watch._task._wakeup.is_set()
    two.watch._task._wakeup.clear()
    assert tick(clock, server, two, one) == [EVERY_S, EVERY_S]
    assert not two.watch._task._wakeup.is_set()
    assert tick(clock, server, one, two, seconds=2 * WATCHED_S) == [REST_S, REST_S]


def test_it_ends_when_the_page_has_gone(server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock) -> None:
    """Some seconds after its last question measuring ends, and Redis keeps only the rows of the table."""
    one, two = pair
    one.ask()
    tick(clock, server, two)
    assert two.measured.reads == 1
    tick(clock, server, one, two, seconds=2 * WATCHED_S)
    before = one.measured.reads, two.measured.reads
    tick(clock, server, one, two)
    assert (one.measured.reads, two.measured.reads) == before
    assert server.present() == {LOADS}


def test_a_process_that_stops_takes_itself_out(server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock) -> None:
    """The others keep their words."""
    one, two = pair
    one.ask()
    tick(clock, server, two, one)
    two.table.close()
    assert server.present() >= {table_key(KIND, "one")}
    assert table_key(KIND, "two") not in server.present()


def test_a_killed_process_is_silent_and_then_gone(server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock) -> None:
    """What it shared ends with its lease."""
    one, two = pair
    one.ask()
    tick(clock, server, two, one)
    for _ in range(4):
        tick(clock, server, one)
        frame = one.ask()
    assert frame["processes"][1]["silent_s"] >= 3
    for _ in range(int(FORGOTTEN_S)):
        tick(clock, server, one)
        frame = one.ask()
    assert [row["id"] for row in frame["processes"]] == ["one"]
    assert table_key(KIND, "two") not in server.present()


def test_words_that_cannot_be_read_are_passed_over(server: SmallRedis, pair: tuple[Process, Process], clock: HeldClock) -> None:
    """Of a gateway of another version, or anything else that has found its way there."""
    one, two = pair
    one.ask()
    for word in (b"\x91\x01", b"\xc1"):
        tick(clock, server, two)
        server.execute_command("HSET", table_key(KIND, "two"), "report", word)
        tick(clock, server, one)
        assert [row["id"] for row in one.ask()["processes"]] == ["one"]


def test_without_redis_a_page_sees_its_own_process_and_why(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """The watch goes on."""
    one, _ = pair
    server.up = False
    one.watch._asked_s = 100.0
    assert one.watch.turn() == EVERY_S
    frame = one.watch.answer(ADMIN, {})["frame"]
    assert ([row["id"] for row in frame["processes"]], frame["error"]) == (["one"], "the bus is unavailable: gone")


def test_a_fault_of_ours_does_not_end_the_watch(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """It is logged with its traceback."""
    one, _ = pair

    def broken() -> float:
        one.watch._task.ended = True
        raise RuntimeError

    one.watch._task._step = broken
    with capture_logs() as lines:
        one.watch.start()
        gevent.idle(-2)
    assert [line["event"] for line in lines] == ["vitals failed"]


class Namespaces(dict[str, Any]):
    """Namespaces in which a round over the clients takes long."""

    def __init__(self, cpu: HeldClock) -> None:
        self.walks = 0
        self._cpu = cpu

    def items(self) -> Any:
        self.walks += 1
        self._cpu.now_s += 0.1
        return ()


def test_going_round_the_clients_takes_a_small_share_of_the_time(clock: HeldClock, server: SmallRedis) -> None:
    """A tenth of a second for it, and it is done every five; the other numbers are new each time."""
    cpu = HeldClock(100.0)
    namespaces = Namespaces(cpu)
    table = SharedTable(server.client(), [NAMESPACE])
    watch = ProcessStatsWatch(table, namespaces, State, list, clock, cpu)
    walks = 0
    for _ in range(100):
        before = watch._walk_at_s
        watch.measure()
        walks += watch._walk_at_s != before
        clock.now_s += 1
    assert walks == pytest.approx(100 * WALK_SHARE / 0.1, abs=2)


# In a gateway ------------------------------------------------------------------------------------------------------------


def test_a_gateway_says_what_its_clients_and_logs_do(gateway_on_model: StartGatewayOnModel) -> None:
    """Numbers of the bus, the ledger, the metrics and the clients, under the name of the namespace."""
    gateway = gateway_on_model()
    watch = gateway.gateway.cluster.process_stats
    before = watch.measure().namespaces[NAMESPACE]
    client = gateway.join()
    client.subscribe("orders.#")
    gateway.publish(3)
    client.wait_for_events(3)
    gateway.publish(2, "unwanted.1")
    watch._walk_at_s = 0.0
    said = watch.measure()
    space = said.namespaces[NAMESPACE]
    assert (space.routed - before.routed, space.sent - before.sent, space.joins - before.joins) == (3, 3, 1)
    assert (space.clients, space.subscriptions, space.waiting, space.bus_up, space.error) == (1, 1, 0, True, "")
    assert sum(space.latency.values()) - sum(before.latency.values()) == 3
    assert (said.sessions, said.draining, said.admission, said.paused, said.revocations_known) == (
        1,
        False,
        "admitting",
        [],
        True,
    )
    assert said.memory_bytes > 1_000_000


def test_a_client_without_the_mark_is_refused_in_a_gateway(gateway_on_model: StartGatewayOnModel) -> None:
    """In development, too, where anyone may subscribe to everything; whatever its request and its CONNECT say."""
    gateway = gateway_on_model()
    client = gateway.join({"console": True, "admin": "act"})
    for body in ({}, {"admin": "act"}, {"console": True}):
        assert client.request("vitals", body)["error"]["code"] == "forbidden"


def test_a_page_of_the_console_is_answered_in_a_gateway(gateway_on_model: StartGatewayOnModel) -> None:
    """As whom the console admits; its numbers come over its own connection."""
    gateway = gateway_on_model()
    gateway.gateway.access.logins.console = lambda handshake: (
        Identity("ann", ("#",), admin="read", namespaces=(NAMESPACE,)) if handshake.token == "ticket" else None
    )
    watch = gateway.gateway.cluster.process_stats
    watch._asked_s = watch._now_s()
    watch.turn()  # the model keeps no vitals
    frame = gateway.join({"console": True, "token": "ticket"}).request("vitals", {})["frame"]
    assert [row["name"] for row in frame["namespaces"]] == [NAMESPACE]
    stranger = gateway.join({"console": True, "token": "another"})
    stranger.wait_for(lambda: stranger.refusal, "the refusal")
    assert "unauthorized" in str(stranger.refusal)
