"""The client of a Cluster, on nodes that answer from a script: where each command goes; the effect of MOVED and silence."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.exceptions

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis import cluster_client, connections
from headgate.redis.client import check_server, mixed, versions
from headgate.redis.cluster import Topology, slot_of
from headgate.redis.cluster_client import MAX_MOVES, ClusterClient
from headgate.redis.functions import LOG_LIBRARY
from headgate.settings.addresses.redis_url import Node, RedisKind, RedisUrl, read_url

A, B, C = (("a", 1), ("b", 2), ("c", 3))
HALF = 8192
# One key in each half of the slots.
LOW = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < HALF)
HIGH = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") >= HALF)


class ScriptedConnection:
    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self._sent: list[tuple[Any, ...]] = []

    def pack_commands(self, commands: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        return commands

    def send_packed_command(self, commands: Sequence[tuple[Any, ...]]) -> None:
        self._sent += commands

    def read_response(self) -> Any:
        return self._answer(*self._sent.pop(0))

    def ready(self, most: int) -> list[Any]:
        return []

    def disconnect(self) -> None:
        self._sent.clear()


class ScriptedNode:
    """A node's client: each command is noted, and answered by `answer` (an exception is raised, or stands in a pipeline)."""

    def __init__(self, node: Node) -> None:
        self.got: list[tuple[Any, ...]] = []
        self.broken = False
        self.answers: list[Any] = []
        self.closed = self.dropped = 0
        self.connection_pool = SimpleNamespace(
            connection_kwargs={"host": node[0], "port": node[1]},
            connection_class=redis.Connection,
            drop_idle=self._drop,
            get_connection=lambda *_: ScriptedConnection(self.execute_command),
            release=lambda _: None,
        )

    def execute_command(self, *command: Any) -> Any:
        answer = self._answer(command)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, transaction: bool) -> Any:
        assert not transaction
        queued: list[tuple[Any, ...]] = []

        def execute(raise_on_error: bool) -> list[Any]:
            assert not raise_on_error
            if self.broken:
                raise redis.ConnectionError("Connection closed by server.")
            return [self._answer(command) for command in queued]

        return SimpleNamespace(execute_command=lambda *command: queued.append(command), execute=execute)

    def close(self) -> None:
        self.closed += 1

    def _drop(self) -> None:
        self.dropped += 1

    def _answer(self, command: tuple[Any, ...]) -> Any:
        self.got.append(command)
        if self.broken:
            return redis.ConnectionError("Connection closed by server.")
        return self.answers.pop(0) if self.answers else b"OK"


class World:
    """Two nodes (and a third to move to) and their client. Attributes: `slots`, what they say; `asked`, how often."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.nodes = {node: ScriptedNode(node) for node in (A, B, C)}
        self.slots: Sequence[tuple[int, int, Node]] = [(0, HALF - 1, A), (HALF, 16383, B)]
        self.asked = 0
        address = RedisUrl(RedisKind.CLUSTER, False, (A, B), path=str(id(self)))

        def ask(_: Node) -> Any:
            self.asked += 1
            return [[first, last, [owner[0], owner[1]]] for first, last, owner in self.slots]

        patch.setattr(cluster_client, "cluster_topology", lambda address: Topology(address, ask))
        self.open_node: Callable[[RedisUrl], Any] = lambda url: self.nodes[url.hosts[0]]
        self.client = ClusterClient(address, lambda url: self.open_node(url))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def moved(key: str, node: Node) -> redis.exceptions.MovedError:
    return redis.exceptions.MovedError(f"{slot_of(key)} {node[0]}:{node[1]}")


def test_moved_without_a_class_of_its_own_is_followed(world: World) -> None:
    """As older versions of redis-py give it."""
    world.nodes[A].answers = [redis.exceptions.ResponseError(f"MOVED {slot_of(LOW)} c:3")]
    assert world.client.run_many([("GET", LOW)]) == [b"OK"]
    assert world.nodes[C].got == [("GET", LOW)]


def test_an_empty_host_in_moved_is_that_of_the_node_asked(world: World) -> None:
    world.nodes["a", 9] = ScriptedNode(("a", 9))
    world.nodes[A].answers = [redis.exceptions.MovedError(f"{slot_of(LOW)} :9")]
    assert world.client.run("GET", LOW) == b"OK"
    assert world.nodes["a", 9].got == [("GET", LOW)]


def test_a_slot_that_goes_round_and_round_is_given_up(world: World) -> None:
    world.nodes[A].answers = [moved(LOW, B)] * 4
    world.nodes[B].answers = [moved(LOW, A)] * 4
    with pytest.raises(BusUnavailable, match="moves from node to node") as caught:
        world.client.run("SET", LOW, 1)
    assert caught.value.redis_code == "MOVED"
    assert len(world.nodes[A].got) + len(world.nodes[B].got) == 1 + MAX_MOVES


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (redis.exceptions.AskError(f"{slot_of(LOW)} c:3"), "ASK"),
        (redis.exceptions.TryAgainError("Multiple keys request during rehashing of slot"), "TRYAGAIN"),
    ],
)
def test_a_slot_on_its_way_is_not_followed(world: World, error: Exception, code: str) -> None:
    """Its keys are on two nodes. The topology is not in doubt."""
    world.nodes[A].answers = [error]
    with pytest.raises(BusUnavailable, match="taking over this namespace") as caught:
        world.client.run("SET", LOW, 1)
    assert caught.value.redis_code == code
    world.client.run("SET", LOW, 1)
    assert len(world.nodes[A].got) == 2
    assert world.nodes[C].got == []
    assert world.asked == 1


def test_a_broken_connection_puts_the_topology_in_doubt(world: World) -> None:
    """The command is not sent again without the caller's knowledge; the next one finds the new owner."""
    world.nodes[A].broken = True
    with pytest.raises(BusUnavailable, match="a:1"):
        world.client.run("SET", LOW, 1)
    assert len(world.nodes[A].got) == 1
    world.slots = [(0, HALF - 1, C), (HALF, 16383, B)]
    assert world.client.run("SET", LOW, 1) == b"OK"
    assert world.nodes[C].got == [("SET", LOW, 1)]


def test_replies_of_several_nodes_keep_the_order_of_the_commands(world: World) -> None:
    """A command without a key stays with the one before it."""
    world.nodes[A].answers, world.nodes[B].answers = [b"a1", b"a2"], [b"b1", b"b2"]
    commands = [("GET", HIGH), ("WAIT", 1, 5), ("GET", LOW), ("WAIT", 2, 5)]
    assert world.client.run_many(commands) == [b"b1", b"b2", b"a1", b"a2"]
    assert world.client.run_many([("TIME",)]) == [b"OK"]


def test_commands_that_have_moved_are_sent_again_in_order_with_what_waits_for_them(world: World) -> None:
    """Those that ran are not; WAIT after a command that moved says nothing about it until it is sent again."""
    world.nodes[A].answers = [b"1", moved(LOW, C), 7, moved(LOW, C)]
    world.nodes[C].answers = [b"2", 1, b"3"]
    commands = [("INCR", LOW), ("INCR", LOW), ("WAIT", 1, 5), ("INCR", LOW), ("GET", HIGH)]
    assert world.client.run_many(commands) == [b"1", b"2", 1, b"3", b"OK"]
    assert world.nodes[C].got == [("INCR", LOW), ("WAIT", 1, 5), ("INCR", LOW)]
    assert len(world.nodes[B].got) == 1


def test_many_commands_of_a_slot_that_goes_round_are_given_up(world: World) -> None:
    """Each has its own error; the others have their replies."""
    world.nodes[A].answers = [moved(LOW, B)] * 4
    world.nodes[B].answers = [b"high", *[moved(LOW, A)] * 4]
    low, high = world.client.run_many([("INCR", LOW), ("GET", HIGH)])
    assert isinstance(low, BusUnavailable)
    assert low.redis_code == "MOVED"
    assert high == b"high"


def test_a_node_that_is_silent_keeps_no_other_from_its_commands(world: World) -> None:
    """The caller learns that something is not known."""
    world.nodes[A].broken = True
    with pytest.raises(BusUnavailable, match="a:1"):
        world.client.run_many([("SET", LOW, 1), ("SET", HIGH, 1)])
    assert world.nodes[B].got == [("SET", HIGH, 1)]


def test_nodes_that_left_are_given_up(world: World) -> None:
    """Their idle connections are closed; those in use end with their command."""
    world.client.run("GET", LOW)
    world.client.run("GET", HIGH)
    world.slots = [(0, 16383, C)]
    world.client.drop_idle()
    assert [world.nodes[node].dropped for node in (A, B)] == [1, 1]
    world.client.run("GET", LOW)
    assert [world.nodes[node].dropped for node in (A, B)] == [2, 2]
    world.client.drop_idle()
    assert [world.nodes[node].dropped for node in (A, B, C)] == [2, 2, 1]


def test_closing_ends_every_node(world: World) -> None:
    with world.client as client:
        assert len(client.primaries()) == 2
        assert client.node_of(HIGH) is world.nodes[B]  # type: ignore[comparison-overlap]
        assert client.topology.without_owner() == 0
    assert [world.nodes[node].closed for node in (A, B)] == [1, 1]
    assert world.client.run("GET", LOW) == b"OK"


def test_a_server_beside_another_is_asked_with_the_same_credentials() -> None:
    """A replica named by the primary: within half a second, and without its socket or its Sentinels."""
    primary = connections.open_server(read_url("redis://u:pw@a:1/3"), 5.0, 4)
    beside = connections.open_beside(primary, "b", 2)
    options = beside.connection_pool.connection_kwargs
    assert connections.address_of(beside) == "b:2"
    assert (options["username"], options["password"], options["socket_timeout"]) == ("u", "pw", 0.5)


def info(version: str, **more: Any) -> dict[str, Any]:
    return {"redis_version": "7.2.4", "valkey_version": version, "redis_mode": "cluster", "role": "master", **more}


def test_the_oldest_node_counts(world: World) -> None:
    world.nodes[A].answers = [info("9.1.2")]
    world.nodes[B].answers = [info("8.0.10")]
    assert check_server(world.client) == ("Valkey", "8.0.10")
    world.nodes[A].answers = [info("9.1.2")]
    world.nodes[B].answers = [{"redis_version": "6.2.1"}]
    with pytest.raises(BusRefused, match=r"Redis 6\.2\.1 at b:2 is too old"):
        check_server(world.client)


def test_nodes_of_several_versions_are_named(world: World) -> None:
    """Replicas that do not answer are left out."""
    world.nodes[A].answers = [info("9.1.2", slave0={"ip": "127.0.0.1", "port": 1})]
    world.nodes[B].answers = [{"redis_version": "7.0.15"}]
    world.nodes[A].connection_pool.connection_kwargs |= {"password": "pw"}
    found = versions(world.client)
    assert found == {"a:1": "Valkey 9.1.2", "b:2": "Redis 7.0.15"}
    assert str(mixed(found)).startswith("servers of several versions (Redis 7.0.15 at b:2; Valkey 9.1.2 at a:1)")
    assert mixed({"a:1": "Valkey 9.1.2", "b:2": "Valkey 9.1.2"}) is None


def test_a_library_is_loaded_at_the_node_that_lacks_it(world: World) -> None:
    """And the call repeated there; with no key in question every primary gets it."""
    missing = redis.exceptions.ResponseError("Function not found")
    world.nodes[B].answers = [missing, missing, b"headgate", [b"e", 1, 0]]
    assert LOG_LIBRARY.call(world.client, "FCALL", "headgate_publish", 1, HIGH, "t", "1") == [b"e", 1, 0]
    assert [command[0] for command in world.nodes[B].got] == ["FCALL", "FCALL_RO", "FUNCTION", "FCALL"]
    assert world.nodes[A].got == []
    world.nodes[A].answers, world.nodes[B].answers = [missing, missing], [LOG_LIBRARY.version, missing]
    assert LOG_LIBRARY.loaded_version(world.client) == LOG_LIBRARY.version
    assert LOG_LIBRARY.loaded_version(world.client) is None
    world.nodes[A].answers, world.nodes[B].answers = [1, b"headgate"], [LOG_LIBRARY.version + 1]
    assert LOG_LIBRARY.ensure_loaded(world.client) == LOG_LIBRARY.version
    assert [command[0] for command in world.nodes[A].got] == ["FCALL_RO", "FCALL_RO", "FCALL_RO", "FUNCTION"]
