"""The function library of consumers on two nodes between which a slot moves key by key. A refused call has written nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.redis.cluster import slot_of
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.keys import group_key, log_key
from tests.support.clusters import Cluster, Node, start_cluster
from tests.support.redis_server import wait_until

GROUP = "mail"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two primaries that have the libraries."""
    with start_cluster(tmp_path_factory.mktemp("cluster") / "nodes", 2) as cluster:
        for node in cluster.nodes:
            for library in (LOG_LIBRARY, GROUP_LIBRARY):
                node.call("FUNCTION", "LOAD", library.source)
        yield cluster


def ask(node: Node, *command: Any, asking: bool) -> Any:
    """Run a command as a client does that follows ASK; return the reply, or the code of the error."""
    with redis.Redis.from_url(node.url, single_connection_client=True) as client:
        run: Any = client.execute_command
        if asking:
            run("ASKING")
        try:
            return run(*command)
        except redis.exceptions.AskError:
            return "ASK"
        except redis.exceptions.TryAgainError:
            return "TRYAGAIN"


def data(cluster: Cluster, slot: int) -> dict[str, tuple[bytes, ...]]:
    """Return all of the nodes' data of a slot: key → its content, on each node."""
    found: dict[str, tuple[bytes, ...]] = {}
    for node in cluster.nodes:
        with redis.Redis.from_url(node.url, single_connection_client=True) as client:
            for key in client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000):
                client.execute_command("ASKING")
                found[key.decode()] = (*found.get(key.decode(), ()), client.dump(key))
    return found


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_while_the_keys_are_on_two_nodes_every_call_is_refused_and_writes_nothing(cluster: Cluster, backwards: bool) -> None:
    """A group wrongly taken for absent would start again; half a step would hand out a task twice."""
    here, there = cluster.nodes
    namespace = cluster.namespaces_on(here, 1, f"work{backwards:d}")[0]
    log, slot = log_key(namespace), slot_of(log_key(namespace))

    def call(function: str, *words: Any, node: Node, asking: bool = False) -> Any:
        command = "FCALL_RO" if function.endswith(("progress", "look")) else "FCALL"
        return ask(node, command, f"headgate_{function}", 1, log, GROUP, *words, asking=asking)

    opened = call("group_open", "oldest", node=here)
    for number in range(3):
        ask(here, "FCALL", "headgate_publish", 1, log, "t", str(number), asking=False)
    epoch, *_, entries, _ = call("group_take", 10, 60_000, 100, node=here)
    ids = [entry[0] for entry in entries]
    mark = "0" * 16
    tasks = [f"{number:013}-{epoch.decode()}-{number:015}-{mark}" for number in (1, 2)]
    answers = [word for task in tasks for word in ("defer", task, "+0", "1", "0", "body")]
    call("group_settle", *answers, "letter", "why", "reason", "task", "body", 10, 10**6, "ack", epoch, ids[0], node=here)
    call("group_take", 4, 60_000, 100, node=here)
    position = call("group_open", "new", node=here)
    assert position == [epoch, 3]
    assert opened != position

    calls = (
        ("group_open", "new"),
        ("group_take", 10, 1, 100),
        ("group_settle", "ack", epoch, ids[1], "done", tasks[0]),
        ("group_renew", 1000, tasks[0]),
        ("group_progress",),
        ("group_look",),
        ("group_remove", 0),
        ("state_rate", "rate", 5, 1000, "unique"),
        ("state_window", "window", 1000),
        ("state_lease", "lease", "me", 1000),
    )
    with cluster.moving(slot, there) as moving:
        keys = sorted(moving.keys(), reverse=backwards)
        assert {log, group_key(namespace, GROUP)} < set(keys)
        for key in keys[:-1]:
            moving.move_keys(key)
            before = data(cluster, slot)
            for function, *words in calls:
                for node, asking in ((there, True), (here, False)):
                    assert call(function, *words, node=node, asking=asking) in ("ASK", "TRYAGAIN"), (function, key, asking)
            assert data(cluster, slot) == before
    wait_until(lambda: cluster.owner(log) is there, "the slot has moved")
    assert call("group_open", "new", node=there) == position
    assert call("group_settle", "ack", epoch, ids[1], "done", tasks[0], node=there) == [1, 0]
