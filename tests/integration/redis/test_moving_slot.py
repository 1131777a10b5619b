"""The function library on two nodes between which a slot moves key by key, called as clients call it that follow ASK."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

from headgate.redis.cluster import slot_of
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.keys import log_key
from tests.support.clusters import Cluster, Node, start_cluster
from tests.support.redis_server import wait_until

RETENTION = (1000, 60_000, 1000)
KEYS = ("log", "head", "epochs", "id:1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two primaries that have the library."""
    with start_cluster(tmp_path_factory.mktemp("cluster") / "nodes", 2) as cluster:
        for node in cluster.nodes:
            node.call("FUNCTION", "LOAD", LOG_LIBRARY.source)
        yield cluster


class Caller:
    """A client that asks the node that it is referred to, and writes down its receipts; the events of one namespace.

    Attributes:
        appended: offset → (payload, id), by the receipts that were no repetitions.
        answers: each function's answers: `ok`, or the code of the error.
    """

    def __init__(self, namespace: str) -> None:
        self.log = log_key(namespace)
        self.slot = slot_of(self.log)
        self.appended: dict[int, tuple[str, str | None]] = {}
        self.answers: set[str] = set()
        self._number = 0

    def call(self, node: Node, *command: Any, asking: bool = False) -> Any:
        """Run a command, after ASKING if so; return its reply or the text of its error."""
        with redis.Redis.from_url(node.url, single_connection_client=True) as client:
            run: Any = client.execute_command
            if asking:
                run("ASKING")
            try:
                reply = run(*command)
            except redis.ResponseError as error:
                code = {redis.exceptions.AskError: "ASK", redis.exceptions.TryAgainError: "TRYAGAIN"}.get(type(error))
                reply = code or str(error).partition(" ")[0]
        self.answers.add(reply if isinstance(reply, str) else "ok")
        return reply

    def publish(self, node: Node, event_id: str | None = None, *, asking: bool = False) -> None:
        """Publish another event by each of the three functions in turn, and keep the receipt if there is one."""
        self._number += 1
        payload = str(self._number)
        function = ("headgate_append", "headgate_append_batch", "headgate_publish")[self._number % 3]
        if function == "headgate_append_batch":
            more = [event_id or "", "", "no topic", "1", "", ""]  # a second event, refused on its own account
        else:
            more = [event_id] if event_id else []
        reply = self.call(node, "FCALL", function, 1, self.log, "t", payload, *more, asking=asking)
        if function == "headgate_append_batch" and isinstance(reply, bytes):
            reply, refused = reply.split(b"\n")
            assert refused.startswith(b"-HEADGATE invalid_topic ")
        if isinstance(reply, bytes) and reply.startswith(b"-"):
            self.answers.discard("ok")
            self.answers.add(reply[1:].split()[0].decode())
        elif isinstance(reply, bytes):
            epoch, offset, count = reply.split()
            is_known = int(count) == 0 if function == "headgate_append_batch" else int(count)
            reply = [epoch, int(offset), is_known]
        if isinstance(reply, list) and not reply[2]:
            assert reply[1] not in self.appended, f"two receipts for {reply[1]}"
            self.appended[int(reply[1])] = (payload, event_id)

    def try_everything(self, node: Node, *, asking: bool, sharded: bool) -> None:
        """Call every function: a new event, one without an id, a known one, the head, the retention."""
        self.publish(node, asking=asking)
        self.publish(node, "known", asking=asking)
        self.publish(node, f"new{self._number}", asking=asking)
        self.call(node, "FCALL_RO", "headgate_head", 1, self.log, "another", asking=asking)
        self.configure(node, asking=asking, sharded=sharded)

    def configure(self, node: Node, *, asking: bool = False, sharded: bool, knows_users: bool = False) -> None:
        """Store the retention."""
        more: tuple[str | int, ...] = ("", "sharded") if sharded else ()
        if knows_users:
            more = (*more, 0, "users")
        self.call(node, "FCALL", "headgate_configure", 1, self.log, *RETENTION, *more, asking=asking)


def owns(cluster: Cluster, node: Node, key: str) -> bool:
    """Whether a node owns the slot of a key."""
    return cluster.owner(key) is node


@pytest.mark.parametrize("sharded", [True, False], ids=["served", "never served"])
def test_no_function_begins_another_log_or_appends_twice_while_the_keys_are_on_two_nodes(cluster: Cluster, sharded: bool) -> None:
    """Keys move in many orders, there and back, with no event between the two, and with some.

    Both nodes are asked at each step. Each receipt is one event of the log, at its place, and each id is there once.
    """
    here, there = cluster.nodes
    answers = set()
    orders = list(itertools.permutations(KEYS))[::6]
    for order, namespace in zip(orders, cluster.namespaces_on(here, len(orders), f"s{sharded:d}"), strict=True):
        caller = Caller(namespace)
        if sharded:
            caller.configure(here, sharded=True)
        caller.publish(here, "known")
        source, target = here, there
        for publishing_between in (False, True):
            with cluster.moving(caller.slot, target) as moving:
                for keys in ((), *((f"{caller.log.removesuffix('log')}{key}",) for key in order)):
                    if keys:
                        moving.move_keys(*keys)
                    caller.try_everything(target, asking=True, sharded=sharded)
                    caller.try_everything(source, asking=False, sharded=sharded)
            wait_until(partial(owns, cluster, target, caller.log), "the slot has moved")
            source, target = target, source
            if publishing_between:
                caller.publish(source)
                caller.publish(source, "known")
        entries = caller.call(source, "XRANGE", caller.log, "-", "+")
        logged = {int(entry_id.partition(b"-")[0]): fields for entry_id, fields in entries}
        assert {offset: fields[b"data"].decode() for offset, fields in logged.items()} == {
            offset: payload for offset, (payload, _) in caller.appended.items()
        }, order
        assert list(logged) == list(range(1, len(logged) + 1))
        ids = [fields[b"id"] for fields in logged.values()]
        assert len(ids) == len(set(ids)), order
        answers |= caller.answers
    assert answers == {"ok", "ASK", "TRYAGAIN"}


def test_sharded_events_are_heard_on_the_channels_of_topic_user_and_feed_and_nowhere_else(cluster: Cluster) -> None:
    """A head that a gateway of a Cluster has configured says so; another gateway's takes it back."""
    node = cluster.nodes[0]
    caller = Caller(cluster.namespaces_on(node, 1, "heard")[0])
    prefix = caller.log.removesuffix(":log")
    with redis.Redis.from_url(node.url) as client:
        sharded, plain = client.pubsub(), client.pubsub()
        sharded.ssubscribe(f"{prefix}:users.7.mail", f"{prefix}/users.7", f"{prefix}/feed")
        plain.psubscribe(f"{prefix}*")
        for _ in range(3):
            sharded.get_sharded_message(timeout=30)
        plain.get_message(timeout=30)

        def published() -> tuple[list[bytes], list[bytes]]:
            caller.call(node, "FCALL", "headgate_publish", 1, caller.log, "users.7.mail", "1")
            found: tuple[list[bytes], list[bytes]] = ([], [])
            client.publish(f"{prefix}:end", "")
            client.execute_command("SPUBLISH", f"{prefix}/feed", "end")
            while (message := plain.get_message(timeout=30))["channel"] != f"{prefix}:end".encode():
                found[0].append(message["channel"])
            while (message := sharded.get_sharded_message(timeout=30))["data"] != b"end":
                found[1].append(message["channel"])
            return found

        caller.configure(node, sharded=True)
        both = [f"{prefix}{channel}".encode() for channel in (":users.7.mail", "/users.7")]
        assert published() == ([], [*both, f"{prefix}/feed".encode()])
        caller.configure(node, sharded=False)
        assert published() == (both, [])
        caller.call(node, "DEL", caller.log, caller.log.removesuffix("log") + "head")
        caller.configure(node, sharded=True, knows_users=True)
        assert published() == ([], [both[1], f"{prefix}/feed".encode()])
