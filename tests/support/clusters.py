"""A real Redis Cluster: primaries and replicas, each on a loopback port, in a folder of the test's own.

A node counts as failed after a second of silence, and the failure of one leaves the slots of the others in use. A slot is moved
key by key in steps of the test's own (`moving`), or in one step where the server has that (`move_at_once`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.errors import HeadgateError
from headgate.redis.client import call_many, open_client
from headgate.redis.cluster import slot_of
from headgate.redis.connections import Command
from headgate.redis.keys import log_key
from tests.support.held_port import HeldPort
from tests.support.redis_process import Server
from tests.support.redis_server import DEADLINE_S, wait_until

SLOTS = 16384
NODE_TIMEOUT_MS = 1000
KEYS_AT_ONCE = 10


class Node(Server):
    """A server of a Cluster. Attributes: `id`, its name in the Cluster; `bus_port`, where it talks to the others."""

    def __init__(self, folder: Path, *lines: str, password: str = "") -> None:
        self._held_bus = HeldPort()
        self.bus_port = self._held_bus.port
        own = [
            "cluster-enabled yes",
            f"cluster-config-file {folder}/nodes.conf",
            f"cluster-node-timeout {NODE_TIMEOUT_MS}",
            "cluster-require-full-coverage no",
            f"cluster-port {self.bus_port}",
            "save ''",
            "appendonly no",
            "repl-diskless-sync-delay 0",
        ]
        super().__init__(folder, *own, *lines, password=password)
        self.start()
        self.id = self.call("CLUSTER", "MYID").decode()

    @property
    def is_primary(self) -> bool:
        return bool(self.call("ROLE")[0] == b"master")

    def close(self) -> None:
        super().close()
        self._held_bus.close()


class Cluster:
    """Primaries that share all slots, and `replicas` for each of them.

    Attributes:
        nodes: all servers; the primaries at the start come first, each with an equal part of the slots, in order.
        url: for users.
    """

    def __init__(
        self,
        folder: Path,
        started: contextlib.ExitStack,
        primaries: int = 3,
        replicas: int = 0,
        *lines: str,
        requirepass: str = "",
    ) -> None:
        if requirepass:
            lines = (*lines, f"requirepass {requirepass}", f"masterauth {requirepass}")
        self.nodes: list[Node] = []
        for number in range(primaries * (1 + replicas)):
            self.nodes.append(Node(folder / f"node{number}", *lines, password=requirepass))
            started.callback(self.nodes[-1].close)
        first = self.nodes[0]
        self._primaries = self.nodes[:primaries]
        for number, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < primaries:
                node.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // primaries, SLOTS * (number + 1) // primaries - 1)
            if node is not first:
                node.call("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus_port)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes know each other")
        for number, node in enumerate(self.nodes[primaries:]):
            node.call("CLUSTER", "REPLICATE", self.nodes[number % primaries].id)
        wait_until(lambda: all(self._is_up(node) for node in self.nodes), "the Cluster is up")
        credentials = f":{requirepass}@" if requirepass else ""
        self.url = f"redis+cluster://{credentials}{','.join(f'127.0.0.1:{node.port}' for node in self._primaries)}"

    def owner(self, key: str) -> Node:
        return self.owner_of_slot(slot_of(key))

    def owner_of_namespace(self, namespace: str = "notifications") -> Node:
        return self.owner(log_key(namespace))

    def owner_of_slot(self, slot: int) -> Node:
        """Return the node that owns a slot by its own word. For a moment of a move none does."""
        owner: Node = wait_until(lambda: self._claimant(slot), f"a node owns slot {slot}")
        return owner

    def _claimant(self, slot: int) -> Node | None:
        for node in self.nodes:
            with contextlib.suppress(HeadgateError):
                for first, last, primary, *_ in node.call("CLUSTER", "SLOTS"):
                    if first <= slot <= last and primary[2].decode() == node.id:
                        return node
        return None

    def another(self, node: Node) -> Node:
        return next(other for other in self.nodes if other is not node and other.is_primary)

    def namespaces_on(self, node: Node, count: int, prefix: str = "n") -> list[str]:
        """Return `count` names of namespaces that a node owns now."""
        ranges = [(first, last) for first, last, primary, *_ in node.call("CLUSTER", "SLOTS") if primary[2].decode() == node.id]
        names = (f"{prefix}{number}" for number in range(SLOTS * 100))
        owned = (name for name in names if any(first <= slot_of(log_key(name)) <= last for first, last in ranges))
        return [next(owned) for _ in range(count)]

    @contextlib.contextmanager
    def moving(self, slot: int, to: Node) -> Iterator[Moving]:
        """Move a slot key by key. It begins with the block, moves keys in it, and finishes (the rest too) with its end."""
        move = Moving(self, slot, to)
        yield move
        move.finish()

    def move(self, slot: int, to: Node) -> None:
        """Move a slot key by key, without a pause."""
        with self.moving(slot, to):
            pass

    def move_at_once(self, slot: int, to: Node) -> None:
        """Move a slot in one atomic step (Valkey 9)."""
        source = self.owner_of_slot(slot)
        source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to.id)
        wait_until(lambda: self.owner_of_slot(slot) is to, "the slot has moved")

    def can_move_at_once(self) -> bool:
        """Return whether the servers have `CLUSTER MIGRATESLOTS`."""
        return any(b"MIGRATESLOTS" in line for line in self.nodes[0].call("CLUSTER", "HELP"))

    def promote(self, replica: Node, *, force: bool = False) -> None:
        """Make a replica the primary in the place of its own; `force`: without an election, though the primary is silent."""
        wait_until(lambda: replica.call("ROLE")[3] == b"connected" or force, "the replica follows its primary")
        replica.call("CLUSTER", "FAILOVER", *(["TAKEOVER"] if force else []))
        wait_until(lambda: replica.is_primary, "the replica is the primary")

    def replica_of(self, node: Node) -> Node:
        """Return a replica of a primary."""
        return next(other for other in self.nodes if (role := other.call("ROLE"))[0] == b"slave" and role[2] == node.port)

    def _knows_all(self, node: Node) -> bool:
        return self._said(node)["cluster_known_nodes"] == str(len(self.nodes))

    def _is_up(self, node: Node) -> bool:
        said = self._said(node)
        if said["cluster_state"] != "ok" or said["cluster_slots_assigned"] != str(SLOTS):
            return False
        roles = [other.call("ROLE") for other in self.nodes]
        return all(role[0] == b"master" or role[3] == b"connected" for role in roles)

    @staticmethod
    def _said(node: Node) -> dict[str, str]:
        text = node.call("CLUSTER", "INFO")
        found: dict[str, str] = text if isinstance(text, dict) else {}
        if not found:
            found = dict(line.split(":", 1) for line in text.decode().split("\r\n") if ":" in line)
        return found


class Moving:
    """A slot on its way from one node to another, key by key."""

    def __init__(self, cluster: Cluster, slot: int, to: Node) -> None:
        self._cluster, self._slot, self._to = cluster, slot, to
        self._source = cluster.owner_of_slot(slot)
        to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", self._source.id)
        self._source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        self._open = True

    def keys(self) -> list[str]:
        return sorted(key.decode() for key in self._source.call("CLUSTER", "GETKEYSINSLOT", self._slot, 10_000))

    def move_keys(self, *keys: str) -> None:
        """Move some keys; without any, all remaining ones, a few at a time."""
        left = list(keys) or self.keys()
        for first in range(0, len(left), KEYS_AT_ONCE):
            some = left[first : first + KEYS_AT_ONCE]
            timeout_ms = int(DEADLINE_S * 1000)
            self._source.call("MIGRATE", "127.0.0.1", self._to.port, "", 0, timeout_ms, *self._auth(), "KEYS", *some)

    def give_up(self) -> None:
        """Leave the slot where it was; keys that have moved are moved back."""
        self._source.call("CLUSTER", "SETSLOT", self._slot, "STABLE")
        with open_client(self._to.url, timeout_s=DEADLINE_S) as client:
            for key in self._to.call("CLUSTER", "GETKEYSINSLOT", self._slot, 10_000):
                move: Command = (
                    "MIGRATE",
                    "127.0.0.1",
                    self._source.port,
                    key,
                    0,
                    int(DEADLINE_S * 1000),
                    "REPLACE",
                    *self._auth(),
                )
                for reply in call_many(client, [("ASKING",), move]):
                    assert not isinstance(reply, HeadgateError), reply
        self._to.call("CLUSTER", "SETSLOT", self._slot, "STABLE")
        self._open = False

    def finish(self) -> None:
        """Move the rest, and give the slot to its new owner. Idempotent."""
        if not self._open:
            return
        self._open = False
        self.move_keys()
        for node in (self._to, self._source, *self._cluster.nodes):
            with contextlib.suppress(HeadgateError):  # replicas learn it from their primaries
                node.call("CLUSTER", "SETSLOT", self._slot, "NODE", self._to.id)

    def _auth(self) -> list[str]:
        password = self._to.password
        return ["AUTH", password] if password else []


@contextlib.contextmanager
def start_cluster(folder: Path, primaries: int = 3, replicas: int = 0, *lines: str, **options: Any) -> Iterator[Cluster]:
    """Start one, and end it with the block.

    Args:
        folder: where its files go.
        primaries, replicas: so many primaries, and so many replicas of each.
        lines: further lines of each node's configuration.
        options: `requirepass`.
    """
    with contextlib.ExitStack() as started:
        yield Cluster(folder, started, primaries, replicas, *lines, **options)
