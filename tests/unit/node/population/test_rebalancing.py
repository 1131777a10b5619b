"""The rebalancing of gateway processes, tick by tick on a small Redis in this process: occasions, moves, and their end."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.node.population.rebalancing import DEPLOY_S, SETTLED_S, Rebalancing
from headgate.redis import loads
from headgate.redis.shared_table import RENEW_EVERY_S, SharedTable
from tests.support.small_redis import SmallRedis
from tests.unit.node.connections import RecordedNamespace, joined


class Process:
    """A gateway process as far as rebalancing goes: its clients, and the notices to them."""

    def __init__(self, server: SmallRedis, name: str, count: int, *, namespace: str = "shop", per_s: float = 10.0) -> None:
        self.name, self.server = name, server
        self.done: list[tuple[Any, ...]] = []
        self.turn_at_s = 0.0
        self.namespace = RecordedNamespace(name=namespace, bus=SimpleNamespace(server="here"))
        for number in range(count):
            self.join(f"{name}-{number}")
        clock = lambda: float(server.now_s)  # noqa: E731
        self.table = SharedTable(server.client(), [namespace], lambda: name, clock, clock)
        self.rebalancing = Rebalancing(
            self.table, {namespace: self.namespace.real()}, lambda: self.count, per_s, lambda: float(server.now_s)
        )

    def join(self, session: str) -> None:
        """A client comes."""
        joined(self.namespace, session, self.done).namespace = self.namespace.name

    @property
    def count(self) -> int:
        return len(self.namespace.clients)

    def told(self) -> list[str]:
        """Return the clients that were asked to move."""
        return [entry[1] for entry in self.done if entry[0] == "notice"]


def run(server: SmallRedis, seconds: int, *processes: Process, moves_to: Callable[[], Process] | None = None) -> None:
    """Let time pass. A client that has lost its connection comes back elsewhere, or to `moves_to`."""
    for _ in range(seconds):
        server.now_s += 1
        for process in processes:
            if server.now_s >= process.turn_at_s:
                process.turn_at_s = server.now_s + RENEW_EVERY_S
                process.table.turn()
            process.rebalancing.tick()
        for process in processes:
            for session, client in list(process.namespace.clients.items()):
                if client.connection.closed:
                    del process.namespace.clients[session]
                    there = moves_to() if moves_to else min(processes, key=lambda each: each.count)
                    there.join(f"{session}'")


def test_after_a_deploy_clients_move_until_all_have_as_many(server: SmallRedis) -> None:
    """Once it has settled, the oldest first, and no more than the excess."""
    full, empty = Process(server, "full", 60), Process(server, "empty", 0)
    run(server, SETTLED_S, full, empty)
    assert full.told() == []
    with capture_logs() as lines:
        run(server, 60, full, empty)
    assert (full.count, empty.count) == (30, 30)
    assert full.told() == [f"full-{number}" for number in range(30)]
    assert {entry[2] for entry in full.done if entry[0] == "end"} == {"rebalance"}
    assert [line["event"] for line in lines] == ["rebalancing began", "rebalancing ended"]
    assert empty.told() == []


def test_a_client_that_waits_for_the_answer_of_a_function_is_left_where_it_is(server: SmallRedis) -> None:
    """Its answer would be lost; others move in its place."""
    full, empty = Process(server, "full", 60), Process(server, "empty", 0)
    asking = full.namespace.clients["full-0"].connection
    full.rebalancing.asking = lambda: {asking}
    run(server, SETTLED_S + 60, full, empty)
    assert full.told() == [f"full-{number}" for number in range(1, 31)]


def test_a_client_that_begins_to_wait_once_it_was_told_is_not_ended_before_its_answer(server: SmallRedis) -> None:
    """As in a drain."""
    full, empty = Process(server, "full", 60), Process(server, "empty", 0)
    first = full.namespace.clients["full-0"].connection
    waits = True
    full.rebalancing.asking = lambda: {first} if waits and full.told() else ()
    run(server, SETTLED_S + 60, full, empty)
    assert full.told()[0] == "full-0"
    assert not first.closed
    waits = False
    run(server, 1, full, empty)
    assert first.closed


@pytest.mark.parametrize("second", range(6))
def test_clients_who_come_to_all_at_once_move_nowhere(server: SmallRedis, second: int) -> None:
    """One process has looked just before they came, and its old count is no reason for the other to send its own away."""
    one, other = Process(server, "one", 0), Process(server, "other", 0)
    run(server, 2, one)  # they look at different moments
    run(server, SETTLED_S + 5 + second, one, other)
    for process in (one, other):
        for number in range(30):
            process.join(f"{process.name}-{number}")
    run(server, 20, one, other)
    assert one.told() == other.told() == []


def test_long_after_a_deploy_only_an_operator_can_begin_it(server: SmallRedis) -> None:
    """With his rate, at the next look of each gateway."""
    full, empty = Process(server, "full", 60), Process(server, "empty", 60)
    run(server, SETTLED_S + DEPLOY_S, full, empty)
    empty.namespace.clients.clear()
    run(server, 60, full, empty)
    assert full.told() == []
    loads.request(server.client(), 100)
    run(server, 2 * int(RENEW_EVERY_S), full, empty)
    assert (full.count, empty.count) == (30, 30)


def test_with_a_rate_of_zero_only_an_operator_can_begin_it(server: SmallRedis) -> None:
    """Also after a deploy."""
    full, empty = Process(server, "full", 60, per_s=0), Process(server, "empty", 0, per_s=0)
    run(server, 120, full, empty)
    assert full.told() == []
    loads.request(server.client(), 10)
    run(server, 30, full, empty)
    assert full.count == 30


def test_processes_that_serve_other_namespaces_do_not_count(server: SmallRedis) -> None:
    """A client could not go there."""
    full, other = Process(server, "full", 60), Process(server, "other", 0, namespace="chat")
    run(server, 120, full, other)
    assert full.told() == []


def test_a_process_that_leaves_counts_no_more_and_moves_nobody(server: SmallRedis) -> None:
    """Its drain does that."""
    full, empty = Process(server, "full", 60), Process(server, "empty", 0)
    run(server, SETTLED_S + 20, full, empty)
    assert full.told()
    full.table._task.begun = True
    full.rebalancing.leave()
    full.table.retire()
    full.table.turn()
    rows = loads.read(server.client())
    assert (set(rows.loads), set(rows.living)) == ({empty.table.id}, {full.table.id, empty.table.id})
    full.table.close()
    assert set(loads.read(server.client()).living) == {empty.table.id}


def test_it_gives_up_where_clients_come_back_to_it(server: SmallRedis) -> None:
    """One line gives the reason; no client moves from then on."""
    full, empty = Process(server, "full", 40), Process(server, "empty", 0)
    with capture_logs() as lines:
        run(server, 200, full, empty, moves_to=lambda: full)
    assert [line["event"] for line in lines] == ["rebalancing began", "rebalancing given up"]
    assert len(full.told()) == 60


def test_it_ticks_by_itself_once_it_is_started(server: SmallRedis) -> None:
    """A fault of ours is logged and does not end it; nor does starting it twice begin another."""
    process = Process(server, "one", 5)
    faults, ticks = [RuntimeError("a bug")], list[int]()
    moves = process.rebalancing._moves
    end_late = moves.end_late

    def faulty(spared: Collection[object]) -> None:
        if faults:
            raise faults.pop()
        ticks.append(1)
        end_late(spared)

    moves.end_late = faulty  # type: ignore[method-assign, assignment]
    with capture_logs() as lines:
        for _ in range(2):
            process.rebalancing.start()
        with gevent.Timeout(30):
            while not ticks:
                process.rebalancing._task.hurry()
                gevent.sleep(0.001)
    assert [line["event"] for line in lines] == ["rebalancing failed"]
    process.rebalancing.leave()


def test_the_row_says_what_the_process_has(server: SmallRedis) -> None:
    """Its sessions, the namespaces that it serves, and the server of its events."""
    process = Process(server, "one", 5)
    process.table.turn()
    [row] = loads.read(server.client()).loads.values()
    assert (row.sessions, row.serves, row.server, row.name, row.since_s) == (5, "shop", "here", "one", server.now_s)
