"""The client for commands to a Redis Cluster sends each command to the node that owns the slot of its key.

In: commands from client.py. Out: replies in order. Each node that owns slots has one small pool of connections. The pool of a
node without slots is dropped.

After MOVED the command has not run, so it is sent once more, to the new owner. ASK and TRYAGAIN mean that a slot is being moved
key by key. The keys of one namespace are then on two nodes, and a step that needs several keys is right on neither. Both become
transient faults (BusUnavailable) and are never followed. Decision 19 (docs/decisions) has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import redis

from headgate.errors import BusUnavailable, HeadgateError
from headgate.settings.addresses.redis_url import Node, RedisUrl

from . import connections
from .cluster import Topology, key_of, shown_command, slot_of
from .connections import Command, cluster_topology, exchange, execute, failed
from .faults import FAULTS, reply_of, shown_cause, translate, unavailable

# Attempts for a command that meets MOVED. A slot may move again while the reply travels.
MAX_MOVES = 3
# The slot, and the host (empty: the answering node's) and port of its owner.
_MOVED = re.compile(r"(\d+) (.*):(\d+)$")
# Faults that do not contradict the topology. The slot is at the known node, and is being moved.
_MOVING = ("ASK", "TRYAGAIN")


class ClusterClient:
    """A client of a Cluster. Threads and greenlets may share it, like a client of one server.

    Args:
        open_node: returns a client of one node. A question about the topology takes more than its time.

    Attributes:
        topology: the owners of the slots.
    """

    def __init__(self, address: RedisUrl, open_node: Callable[[RedisUrl], redis.Redis]) -> None:
        self.address, self._open_node = address, open_node
        self.topology: Topology = cluster_topology(address)
        self._nodes: dict[Node, redis.Redis] = {}

    def run(self, *command: str | bytes | int, key: str | bytes | None = None) -> Any:
        """Run one command on the node of `key`, or of the command's own key, or on any primary. Raises as `client.call`."""
        key = key_of(command) if key is None else key
        for _ in range(MAX_MOVES + 1):
            node = self.topology.primaries()[0] if key is None else self.topology.owner(slot_of(key))
            client = self._client(node)
            try:
                return execute(client, *command)
            except FAULTS as error:
                if not self._has_moved(node, error):
                    raise self._doubted(failed(client, error, command)) from shown_cause(error)
        raise self._moving_on()

    def run_many(self, commands: Iterable[Command], *, shaped: bool = True) -> list[Any]:
        """Run commands in one round trip to each node; return a reply, or the error (a HeadgateError), for each in order.

        A command without a key (WAIT, WAITAOF) goes to the node of the command before it. A node without an answer does not
        stop the other nodes. Raises BusUnavailable if a connection breaks. It is then unknown which of that node's commands
        ran.
        """
        batch = list(commands)
        replies: list[Any] = [None] * len(batch)
        left: list[int] = list(range(len(batch)))
        broken: HeadgateError | None = None
        for _ in range(MAX_MOVES + 1):
            moved: set[int] = set()
            for node, indexes in self._by_node(batch, left).items():
                try:
                    answers = exchange(self._client(node), [batch[index] for index in indexes], shaped=shaped)
                except BusUnavailable as error:
                    broken = broken or self._doubted(error)
                    continue
                for index, answer in zip(indexes, answers, strict=True):
                    replies[index] = answer
                    waits_for_moved = index - 1 in moved and key_of(batch[index]) is None
                    if waits_for_moved or (isinstance(answer, redis.RedisError) and self._has_moved(node, answer)):
                        moved.add(index)
            left = sorted(moved)
            if not left:
                break
        if broken is not None:
            raise broken
        for index in left:
            replies[index] = self._moving_on()
        where = str(self.address)
        return [
            self._doubted(translate(reply, where, shown_command(command))) if isinstance(reply, redis.RedisError) else reply
            for command, reply in zip(batch, replies, strict=True)
        ]

    def node_of(self, key: str | bytes) -> redis.Redis:
        """Return the client of the node that owns a key. Raises as `Topology.owner`."""
        return self._client(self.topology.owner(slot_of(key)))

    def primaries(self) -> list[redis.Redis]:
        """Return the client of every node that owns slots. Raises as `Topology.primaries`."""
        return [self._client(node) for node in self.topology.primaries()]

    def drop_idle(self) -> None:
        """Close the idle connections, and doubt the topology. Never waits."""
        self.topology.doubt()
        for client in list(self._nodes.values()):
            connections.drop_idle(client)

    def close(self) -> None:
        """Close every connection. Idempotent. A later command opens new ones."""
        nodes, self._nodes = self._nodes, {}
        for client in nodes.values():
            client.close()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _by_node(self, batch: list[Command], indexes: list[int]) -> dict[Node, list[int]]:
        """Group commands by node, in order. A command without a key stays with the one before it."""
        by_node: dict[Node, list[int]] = {}
        node: Node | None = None
        for index in indexes:
            key = key_of(batch[index])
            if key is not None:
                node = self.topology.owner(slot_of(key))
            elif node is None:
                node = self.topology.primaries()[0]
            by_node.setdefault(node, []).append(index)
        return by_node

    def _client(self, node: Node) -> redis.Redis:
        client = self._nodes.get(node)
        if client is None:
            # Of two threads, one drops its client, which has no connection yet.
            client = self._nodes.setdefault(node, self._open_node(self.address.at(node)))
            for other in {*self._nodes} - {*self.topology.known(), node}:
                # Only idle connections. A connection in use closes when its command has ended and its last reference goes.
                if (gone := self._nodes.pop(other, None)) is not None:
                    connections.drop_idle(gone)
        return client

    def _has_moved(self, asked: Node, error: Exception) -> bool:
        """Return whether a node replied MOVED, and store the slot's new place.

        Reads the code of the reply, because older versions of redis-py know the class only in their own Cluster client.
        """
        code, text = reply_of(error)
        match = _MOVED.match(text) if code == "MOVED" else None
        if match is not None:
            self.topology.moved(int(match[1]), (match[2] or asked[0], int(match[3])))
        return match is not None

    def _doubted(self, error: HeadgateError) -> HeadgateError:
        if isinstance(error, BusUnavailable) and error.redis_code not in _MOVING:
            self.topology.doubt()
        return error

    def _moving_on(self) -> BusUnavailable:
        return unavailable(f"{self.address}: its slot moves from node to node", "MOVED")
