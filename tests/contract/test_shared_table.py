"""The shared table keeps its promises on a real Redis and on the model: under kills, partitions, clock steps and failovers."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headgate.redis.client import Client, call
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import LOADS, table_key
from headgate.redis.loads import LEASE_S, Load, LoadTable, read
from headgate.redis.registry import living
from headgate.redis.shared_table import NOTHING, RENEW_EVERY_S, TIDY_EVERY, Fields, SharedTable
from tests.support.redis_server import full_memory
from tests.support.small_redis import SmallRedis

# How much longer than its lease a key of a real Redis lives, on which `Real.step` ends it.
HELD_S = 3600


class Model:
    """A small Redis in this process.

    Attributes:
        target: return a connected client of it.
        flush: forget everything.
    """

    def __init__(self) -> None:
        self._server = SmallRedis(now_s=10_000_000)
        self.flush, self.target = self._server.flush, self._server.client

    def time(self) -> tuple[int, int]:
        """Return what TIME answers."""
        return self._server.now_s, 0

    def kept(self, command: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a command as it is to be sent, so that keys end by this clock alone."""
        return command

    def step(self, seconds: int) -> None:
        """Set its clock, and with it the ends of all keys."""
        self._server.now_s += seconds

    def remember(self) -> Callable[[], None]:
        """Return a function that puts it back to its present state, like a promoted replica without the later writes."""
        names = ("_sets", "_hashes", "_ends_s")
        kept = copy.deepcopy({name: getattr(self._server, name) for name in names})
        return lambda: vars(self._server).update(copy.deepcopy(kept))


class Real:
    """A real Redis with a held clock, so a test may take as long as it likes. Its keys live longer, and `step` ends them."""

    def __init__(self, client: Client) -> None:
        self._client, self._now_s = client, int(call(client, "TIME")[0])
        self._ends_s: dict[str, int] = {}

    def target(self) -> Any:
        return self._client

    def time(self) -> tuple[int, int]:
        return self._now_s, 0

    def kept(self, command: tuple[Any, ...]) -> tuple[Any, ...]:
        if command[0] != "EXPIRE":
            return command
        _, key, seconds = command
        self._ends_s[key] = self._now_s + seconds
        return "EXPIRE", key, seconds + HELD_S

    def step(self, seconds: int) -> None:
        self._now_s += seconds
        for key in [key for key, end_s in self._ends_s.items() if end_s <= self._now_s]:
            del self._ends_s[key]
            call(self._client, "UNLINK", key)

    def remember(self) -> Callable[[], None]:
        keys, ends_s = call(self._client, "KEYS", "*"), self._ends_s.copy()
        kept = {key: (call(self._client, "PTTL", key), call(self._client, "DUMP", key)) for key in keys}

        def restore() -> None:
            self.flush()
            self._ends_s = ends_s.copy()
            for key, (left_ms, dump) in kept.items():
                call(self._client, "RESTORE", key, max(0, left_ms), dump)

        return restore

    def flush(self) -> None:
        call(self._client, "FLUSHALL")


World: TypeAlias = Model | Real


class Link:
    def __init__(self, world: World) -> None:
        self._world, self.up = world, True
        self.asked: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any, **options: Any) -> Any:
        reply = self._target().execute_command(*command, **options)
        return self._world.time() if command[0] == "TIME" else reply

    def pipeline(self, **options: Any) -> Any:
        pipeline = self._target().pipeline(**options)
        add = pipeline.execute_command

        def execute_command(*command: Any, **more: Any) -> Any:
            self.asked.append(command)
            return add(*self._world.kept(command), **more)

        pipeline.execute_command = execute_command
        return pipeline

    def _target(self) -> Any:
        if not self.up:
            away = SmallRedis()
            away.up = False
            return away.client()
        return self._world.target()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target(), name)


class Facts:
    """A use: the facts that this process shares, and those that it has heard of the others."""

    def __init__(self, kind: str, asked: Sequence[str] | None = None) -> None:
        self.kind, self.names = kind, asked
        self.values: dict[str, str] = {}
        self.others: dict[str, dict[str, str]] = {}
        self.lost: list[bool] = []
        self._changed: set[str] = set()

    def put(self, name: str, value: str | None) -> None:
        self._changed.add(name)
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def fields(self, *, whole_row: bool) -> Mapping[str, str | None]:
        names, self._changed = set(self.values) if whole_row else self._changed, set()
        return {name: self.values.get(name) for name in names}

    def wanted_fields(self) -> Sequence[str] | None:
        return self.names

    def receive(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        self.lost.append(lost)
        self.others = {
            process: {name: value.decode() for name, value in fields.items() if value is not None}
            for process, fields in others.items()
        }


class Process:
    """A process with a table of three uses: one that reads everything, one that asks, and one that only writes."""

    def __init__(self, world: World, clock: Callable[[], float], name: str) -> None:
        self.link = Link(world)
        self.table = SharedTable(cast(Client, self.link), ["shop"], lambda: name, clock, clock)
        self.whole, self.some = Facts("whole"), Facts("some", ["ana"])
        self.writer = Facts("writer", NOTHING)
        for use in (self.whole, self.some, self.writer):
            self.table.add(use)
        self.rows: list[LoadTable] = []
        self.losses = 0
        self.table.own, self.table.on_rows = lambda: Load(len(self.whole.values), 0, ""), self.rows.append
        self.table.on_lost = self._lost
        self.table._task.begun = True  # turned by the test

    def _lost(self) -> None:
        self.losses += 1


class Site:
    def __init__(self, world: World) -> None:
        self.world, self.now_s = world, 1000.0
        self.made = 0

    def process(self) -> Process:
        self.made += 1
        return Process(self.world, lambda: self.now_s, f"web-{self.made}")

    def turn(self, *processes: Process, times: int = 1) -> None:
        for _ in range(times):
            for process in processes:
                process.table.turn()

    def pass_time(self, seconds: int) -> None:
        self.now_s += seconds
        self.world.step(seconds)


@pytest.fixture(params=["model", "real"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(Model() if request.param == "model" else Real(request.getfixturevalue("redis_client")))


def pair_of(site: Site) -> tuple[Process, Process]:
    one, two = site.process(), site.process()
    site.turn(one, two, times=2)
    return one, two


def test_each_process_reads_what_the_others_share(site: Site) -> None:
    """All of it, or the part that it asks about; nothing of itself, and nothing that was taken back."""
    one, two = pair_of(site)
    for name in ("ana", "ben"):
        one.whole.put(name, "1")
        one.some.put(name, "2")
    site.turn(one, two)
    assert two.whole.others == {one.table.id: {"ana": "1", "ben": "1"}}
    assert two.some.others == {one.table.id: {"ana": "2"}}
    one.whole.put("ana", None)
    site.turn(one, two)
    assert two.whole.others == {one.table.id: {"ben": "1"}}
    assert {name: each.sessions for name, each in two.rows[-1].loads.items()} == {one.table.id: 1, two.table.id: 0}


def test_however_many_fields_there_are(site: Site) -> None:
    """They are written in several commands, and taken back as well."""
    one, two = pair_of(site)
    for number in range(1200):
        one.whole.put(f"user {number}", str(number))
    site.turn(one, two)
    assert two.whole.others == {one.table.id: one.whole.values}
    for number in range(1200):
        one.whole.put(f"user {number}", None)
    site.turn(one, two)
    assert two.whole.others == {one.table.id: {}}


def test_a_hash_is_read_again_when_it_has_changed_and_now_and_then(site: Site) -> None:
    """A quiet table costs a process no reading of hashes."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    site.turn(one)
    two.link.asked.clear()
    site.turn(two, times=TIDY_EVERY)
    key = table_key("whole", one.table.id)
    assert 1 <= two.link.asked.count(("HGETALL", key)) <= 2
    assert two.whole.others == {one.table.id: {"ana": "1"}}


def test_a_use_in_a_hurry_is_turned_alone(site: Site) -> None:
    """The other one has its turn when all have."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    one.some.put("ana", "1")
    one.table.turn([one.some])
    site.turn(two)
    assert (two.whole.others, two.some.others) == ({one.table.id: {}}, {one.table.id: {"ana": "1"}})


def test_a_use_that_reads_nothing_only_writes(site: Site) -> None:
    """Its turn reads no row of another process, and still notices that Redis lost writes."""
    one, two = pair_of(site)
    two.writer.names = None
    one.writer.put("ana", "1")
    one.link.asked.clear()
    one.table.turn([one.writer])
    assert [command[0] for command in one.link.asked] == ["HMGET", "HSET", "EXPIRE", "HSET"]
    site.turn(two)
    assert two.writer.others == {one.table.id: {"ana": "1"}}
    one.whole.put("ben", "1")
    site.turn(one)
    site.world.flush()
    one.table.turn([one.writer])
    assert (one.whole.lost.count(True), one.losses) == (1, 1)
    site.turn(one, two, times=2)
    assert (two.whole.others, two.writer.others) == ({one.table.id: {"ben": "1"}}, {one.table.id: {"ana": "1"}})


def test_a_process_that_was_killed_is_gone_after_a_lease(site: Site) -> None:
    """With everything that it shared; no sooner, as no process can know."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    site.turn(one)
    for _ in range(2):
        site.pass_time(LEASE_S // 2)
        site.turn(two)
        assert two.whole.others == {one.table.id: {"ana": "1"}}
    site.pass_time(1)
    site.turn(two)
    assert two.whole.others == {}
    client = site.world.target()
    assert call(client, "EXISTS", table_key("whole", one.table.id)) == 0
    assert {name.decode() for name in call(client, "HGETALL", LOADS)} == {two.table.id}


def test_a_process_that_closes_leaves_nothing(site: Site) -> None:
    """And the others hear of it at their next turn."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    site.turn(one, two)
    one.table.close()
    one.table.close()
    site.turn(two)
    assert two.whole.others == {}
    assert call(site.world.target(), "EXISTS", table_key("whole", one.table.id)) == 0


def test_a_process_that_ends_while_redis_is_unreachable_asks_nothing(site: Site) -> None:
    """It would wait for one answer after the other, and the others see its end after a lease."""
    one, two = pair_of(site)
    one.link.up = False
    site.turn(one)
    one.link.up = True
    one.link.asked.clear()
    assert not one.table.retire()
    one.table.close()
    assert one.link.asked == []
    site.turn(two)
    assert set(two.whole.others) == {one.table.id}


def test_a_short_partition_loses_nothing(site: Site) -> None:
    """It costs one line in the log; what was shared in between is read after it."""
    one, two = pair_of(site)
    one.link.up = False
    one.whole.put("ana", "1")
    with capture_logs() as lines:
        site.turn(one, two, times=3)
    assert [(line["event"], line["log_level"]) for line in lines] == [("shared table out of reach", "warning")]
    one.link.up = True
    site.pass_time(LEASE_S - 1)
    site.turn(one, two)
    assert two.whole.others == {one.table.id: {"ana": "1"}}
    assert True not in one.whole.lost


def test_a_full_redis_keeps_what_processes_share(redis_client: Client) -> None:
    """A process registers, shares and leaves as ever, so that the others neither miss it nor wait for it."""
    ensure_loaded(redis_client)
    site = Site(Real(redis_client))
    with full_memory(redis_client), capture_logs() as lines:
        one, two = pair_of(site)
        one.whole.put("ana", "1")
        site.turn(one, two)
        assert two.whole.others == {one.table.id: {"ana": "1"}}
        assert living(cast(Client, Link(site.world))) == {one.table.id, two.table.id}
        assert min(call(redis_client, "TTL", key) for key in call(redis_client, "KEYS", "*")) > 0
        assert [one.table.retire(), two.table.retire()] == [False, True]
        one.table.close()
        site.turn(two)
        assert not two.whole.others
    assert lines == []


def test_a_partition_longer_than_a_lease_is_a_loss(site: Site) -> None:
    """The process writes everything again, knows that the others did without it, and calls itself alone no more for a lease."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    site.turn(one, two)
    one.link.up = False
    for _ in range(3):
        site.pass_time(LEASE_S // 2)
        site.turn(one, two)
    assert two.whole.others == {}
    one.link.up = True
    site.turn(one, two)
    assert two.whole.others == {one.table.id: {"ana": "1"}}
    assert (one.whole.lost.count(True), True in two.whole.lost) == (1, False)


@pytest.mark.parametrize("step_s", [3600, -7200])
def test_a_step_of_the_servers_clock_heals_within_three_turns(site: Site, step_s: int) -> None:
    """Forward it ends every lease; backward it gives every row a time in the future, which no process believes."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    two.whole.put("ben", "1")
    site.turn(one, two)
    site.world.step(step_s)
    site.turn(one, two, times=3)
    assert (one.whole.others, two.whole.others) == ({two.table.id: {"ben": "1"}}, {one.table.id: {"ana": "1"}})
    assert True in one.whole.lost + two.whole.lost
    site.pass_time(LEASE_S)
    site.turn(two)
    assert two.whole.others == {}


def test_a_replica_that_lost_the_last_writes_is_given_them_again(site: Site) -> None:
    """The row in it is an older one than the process wrote."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    site.turn(one, two)
    fail_over = site.world.remember()
    one.whole.put("ana", "2")
    one.whole.put("ben", "1")
    site.turn(one, two)
    fail_over()
    site.turn(one, times=2)
    site.turn(two)
    assert two.whole.others == {one.table.id: {"ana": "2", "ben": "1"}}
    assert one.whole.lost.count(True) == 1


def test_a_flush_is_found_out_with_the_next_turn(site: Site) -> None:
    """The one after it has everything again."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    site.turn(one, two)
    site.world.flush()
    site.turn(one, two, times=2)
    assert two.whole.others == {one.table.id: {"ana": "1"}}
    assert (one.whole.lost.count(True), two.whole.lost.count(True)) == (1, 1)
    assert (one.losses, two.losses) == (1, 1)


def test_the_last_one_to_retire_knows_that_it_is_alone(site: Site) -> None:
    """It still counts among the others, and serves nothing; only the first call learns that."""
    one, two = pair_of(site)
    one.whole.put("ana", "1")
    assert not one.table.retire()
    site.turn(one, two)
    assert two.whole.others == {one.table.id: {"ana": "1"}}
    assert set(read(cast(Client, Link(site.world))).loads) == {two.table.id}
    assert two.table.retire()
    assert not two.table.retire()


@pytest.mark.parametrize(("after_s", "alone"), [(LEASE_S - 5, False), (LEASE_S + 1, True)])
def test_after_a_flush_the_others_have_a_lease_to_come_back(site: Site, after_s: int, alone: bool) -> None:
    """Until then a process that retires does not know whether it is alone."""
    one = site.process()
    site.turn(one)
    site.world.flush()
    site.turn(one, times=2)
    for _ in range(after_s):
        site.pass_time(1)
        site.turn(one)
    assert one.table.retire() is alone


def test_a_process_that_never_began_knows_nothing_of_others(site: Site) -> None:
    process = site.process()
    process.table._task.begun = False
    assert not process.table.retire()
    assert process.link.asked == []


NAMES = st.sampled_from(["ana", "ben"])
STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 2), NAMES, st.one_of(st.none(), st.sampled_from(["1", "2"]))),
    st.tuples(st.just("turn"), st.integers(0, 2)),
    st.tuples(st.just("write"), st.integers(0, 2), NAMES),
    st.tuples(st.just("cut"), st.integers(0, 2)),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.just("pass"), st.integers(1, LEASE_S + 1)),
    st.tuples(st.just("step"), st.sampled_from([-7200, -20, 20, 3600])),
    st.tuples(st.sampled_from(["flush", "remember", "fail over"])),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_every_process_soon_has_what_the_others_share(steps: list[tuple[Any, ...]]) -> None:
    """Three full turns after the last fault; and nothing of those that were killed, after a lease."""
    site = Site(Model())
    processes = [site.process() for _ in range(3)]
    fail_over = site.world.remember()
    for step, *of in steps:
        if step == "put":
            processes[of[0]].whole.put(of[1], of[2])
        elif step == "turn":
            site.turn(processes[of[0]])
        elif step == "write":
            processes[of[0]].writer.put(of[1], "1")
            processes[of[0]].table.turn([processes[of[0]].writer])
        elif step == "cut":
            processes[of[0]].link.up = not processes[of[0]].link.up
        elif step == "kill":
            processes[of[0]] = site.process()
        elif step == "pass":
            site.pass_time(of[0])
        elif step == "step":
            site.world.step(of[0])
        elif step == "flush":
            site.world.flush()
        elif step == "remember":
            fail_over = site.world.remember()
        else:
            fail_over()
    for process in processes:
        process.link.up = True
    site.turn(*processes, times=2)
    for _ in range(4):
        site.pass_time(int(RENEW_EVERY_S))
        site.turn(*processes)
    for process in processes:
        others = {each.table.id: each.whole.values for each in processes if each is not process}
        assert process.whole.others == others


@pytest.fixture
def here() -> Iterator[Process]:
    """A process on the model, with a greenlet that turns the table."""
    process = Site(Model()).process()
    process.table._task.begun = False
    yield process
    process.table.close()


def test_it_turns_by_itself_and_a_fault_of_ours_does_not_end_it(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is logged whole; a use that hurries has its turn soon. Starting twice begins nothing more."""
    monkeypatch.setattr(here.table._task, "_gap_s", 0.0)
    faults = [RuntimeError("a bug")]

    def faulty() -> Load:
        if faults:
            raise faults.pop()
        return Load(1, 0, "")

    here.table.own = faulty
    with capture_logs() as lines, gevent.Timeout(30):
        for _ in range(2):
            here.table.start()
        here.table.tried.wait()
        while not here.whole.lost:
            here.table.renew()
            gevent.sleep(0.001)
    assert [line["event"] for line in lines] == ["shared table failed"]
