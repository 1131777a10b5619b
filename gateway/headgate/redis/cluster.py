"""The slot of a key in a Redis Cluster, and the topology with the node that owns a slot.

In: a RedisUrl with some nodes of a Cluster, the seeds. Any answering seed names all other nodes. User, password and options
apply to every node. Out: the owner of a slot, from a node's answer to `ask`. The answer is kept until it is in doubt.

The keys of one namespace share a slot (keys.py), so a step with several of them runs on one node.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from redis.crc import key_slot

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.settings.addresses.redis_url import Node, RedisKind, RedisUrl, read_url
from headgate.settings.addresses.redis_url import shown_node as shown

from .budget import left_s
from .faults import refused, unavailable
from .pool import reset_in_child

SLOTS = 16384
# A node that does not answer must not use up the time of the others.
ASK_TIMEOUT_S = 0.5
# A process remembers the nodes of this many Clusters. Beyond that it forgets them all and starts from the seeds.
MAX_REMEMBERED = 100


def is_cluster(url: str) -> bool:
    """Return whether a URL names nodes of a Cluster. Raises BusRefused for an invalid URL."""
    return read_url(url).kind is RedisKind.CLUSTER


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key, a number below 16,384, from the part in braces if there is one."""
    return int(key_slot(key if isinstance(key, bytes) else key.encode()))


# Commands without a key, and those with a key elsewhere than in their first argument.
_WITHOUT_KEY = frozenset({
    "ACL", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FLUSHALL", "FLUSHDB", "FUNCTION",
    "INFO", "PING", "PSUBSCRIBE", "PUBSUB", "ROLE", "SCAN", "SCRIPT", "SUBSCRIBE", "TIME", "WAIT", "WAITAOF",
})  # fmt: skip
_BEHIND_SUBCOMMAND = frozenset({"MEMORY", "OBJECT", "XGROUP", "XINFO"})
_BEHIND_COUNT = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_BEHIND_STREAMS = frozenset({"XREAD", "XREADGROUP"})


def key_of(command: Sequence[str | bytes | int]) -> str | bytes | None:
    """Return the argument that selects the node of a command, its first key or the channel of a PUBLISH, or None."""
    name = str(command[0]).upper()
    if name in _BEHIND_COUNT:
        at = 3 if int(command[2]) else len(command)
    elif name in _BEHIND_SUBCOMMAND:
        at = 2
    elif name in _BEHIND_STREAMS:
        words = [str(word).upper() for word in command]
        at = words.index("STREAMS", 4 if name == "XREADGROUP" else 1) + 1  # a group may have that name
    elif name in _WITHOUT_KEY:
        return None
    else:
        at = 1
    word = command[at] if at < len(command) else None
    return str(word) if isinstance(word, int) else word


def shown_command(command: Sequence[str | bytes | int]) -> str:
    """Return the name and the key of a command, for errors."""
    words = [command[1] if str(command[0]).startswith("FCALL") else command[0], key_of(command)]
    return " ".join(word.decode(errors="backslashreplace") if isinstance(word, bytes) else str(word) for word in words if word)


# The first and the last slot of a range, and its primary.
Range = tuple[int, int, Node]


def read_slots(reply: Any, asked: Node) -> list[Range]:
    """Return the ranges in a node's answer to CLUSTER SLOTS.

    An unknown host (none, empty or `?`) means the asked node's. Raises BusRefused for an invalid answer.
    """
    try:
        return [(int(first), int(last), (_text(host) or asked[0], int(port))) for first, last, (host, port, *_), *_ in reply]
    except (TypeError, ValueError) as error:
        raise refused(f"{shown(asked)} does not say which node owns which slot") from error


# The nodes in the last answer of each Cluster, because the seeds may be gone at the next connection.
_known: dict[str, tuple[Node, ...]] = {}


class Topology:
    """The owners of a Cluster's slots. Threads and greenlets may share it. One of them asks, and the others wait for it.

    Args:
        ask: returns a node's reply to CLUSTER SLOTS within ASK_TIMEOUT_S, or raises BusUnavailable or BusRefused.
    """

    def __init__(self, address: RedisUrl, ask: Callable[[Node], Any]) -> None:
        self._address, self._ask = address, ask
        self.reset()
        reset_in_child(self)
        self._moved: dict[int, Node] = {}
        known = _known.get(str(address), ())
        # In the order of asking. A node moves to the end after an answer or a failure.
        self._order = [*known, *(seed for seed in address.hosts if seed not in known)]

    def reset(self) -> None:
        """Forget the owners of slots, and an asking thread, which a forked child does not have."""
        self._lock = threading.RLock()
        # The ranges in order, according to one node, and slots that have moved since. Replaced as a whole.
        self._slots: tuple[list[Range], dict[int, Node]] = [], {}
        self._doubted = True

    def owner(self, slot: int) -> Node:
        """Return the primary that owns a slot. Asks the Cluster if in doubt.

        Raises:
            BusUnavailable: no node answers, or none owns the slot.
            BusRefused: the nodes refuse to answer, or are not in a Cluster.
        """
        asked = self._settle_doubts()
        node = self._known_owner(slot)
        if node is None and not asked:
            self.doubt()
            self._settle_doubts()
            node = self._known_owner(slot)
        if node is None:
            self.doubt()
            raise unavailable(f"{self._address}: it is down for slot {slot}, which no node owns", "CLUSTERDOWN")
        return node

    def primaries(self) -> tuple[Node, ...]:
        """Return every node that owns a slot, in the order of their slots. Asks the Cluster if in doubt.

        Raises as `owner`, and BusUnavailable if no node owns any slot.
        """
        self._settle_doubts()
        nodes = self.known()
        if not nodes:
            self.doubt()
            raise unavailable(f"{self._address}: it is down, as no node owns a slot", "CLUSTERDOWN")
        return nodes

    def without_owner(self) -> int:
        """Return how many slots no node owns. Asks and raises as `owner`."""
        self._settle_doubts()
        return SLOTS - sum(last - first + 1 for first, last, _ in self._slots[0])

    def known(self) -> tuple[Node, ...]:
        """Return the known owners of slots. Never waits."""
        ranges, moved = self._slots
        return tuple(dict.fromkeys([*(owner for _, _, owner in ranges), *moved.values()]))

    def doubt(self) -> None:
        """Ask again before the next answer. Never waits."""
        self._doubted = True

    def moved(self, slot: int, to: Node) -> None:
        """Record a slot's new owner from a MOVED reply. The Cluster is asked about the other slots, the new owner first."""
        self._moved = {**self._moved, slot: to}  # replaced, because another thread may be reading it
        self._doubted = True

    def _known_owner(self, slot: int) -> Node | None:
        ranges, moved = self._slots
        at = bisect_right(ranges, slot, key=itemgetter(0)) - 1
        return moved.get(slot) or (ranges[at][2] if at >= 0 and slot <= ranges[at][1] else None)

    def _settle_doubts(self) -> bool:
        """Ask if in doubt; return whether it was."""
        if not self._doubted:
            return False
        with self._lock:
            if self._doubted:
                moved, self._moved = self._moved, {}
                self._doubted = False  # a doubt from now on concerns this answer, too
                try:
                    self._slots = self._asked(moved), moved
                except BaseException:
                    self._doubted = True
                    raise
        return True

    def _asked(self, moved: dict[int, Node]) -> list[Range]:
        """Ask one node after the other until one knows owners of slots."""
        faults: list[HeadgateError] = []
        silent: list[Node] = []
        order = list(dict.fromkeys([*reversed(moved.values()), *self._order]))
        for node in order:
            if faults and (left := left_s()) is not None and left <= 0:
                break  # otherwise the caller's budget would make each other node look silent
            try:
                ranges = sorted(read_slots(self._ask(node), node))
            except (BusUnavailable, BusRefused) as error:
                faults.append(error)
                silent.append(node)
                continue
            if ranges:
                self._remember(order, node, silent, [owner for _, _, owner in ranges])
                return ranges
            faults.append(unavailable(f"{shown(node)} knows no node that owns a slot", "CLUSTERDOWN"))
            silent.append(node)
        others = [node for node in (*self._address.hosts, *order) if node not in silent]
        self._order = list(dict.fromkeys([*others, *silent]))
        try:
            raise _worst(self._address, faults)
        finally:
            faults.clear()  # this frame is in their tracebacks, so they would be a cycle

    def _remember(self, order: list[Node], answered: Node, silent: list[Node], owners: Iterable[Node]) -> None:
        """Begin with another node next time, because a node cut off from the others would give old answers for ever."""
        alive = [node for node in dict.fromkeys([*owners, *order]) if node != answered and node not in silent]
        present = {*owners, *self._address.hosts}
        self._order = [node for node in [*alive, answered, *silent] if node in present]
        if len(_known) >= MAX_REMEMBERED:
            _known.clear()
        _known[str(self._address)] = tuple(self._order)


def _worst(address: RedisUrl, faults: Sequence[HeadgateError]) -> HeadgateError:
    """Return the most specific error, which is a refusal if a node has answered."""
    for error in faults:
        if isinstance(error, BusRefused):
            return error
    if len(faults) == 1:
        return faults[0]
    reasons = "; ".join(dict.fromkeys(str(error.parts.get("reason", error.message)) for error in faults))
    worst = unavailable(f"{address}: none of its nodes answers ({reasons[:500]})")
    for note in getattr(faults[0], "__notes__", ())[:1] if faults else ():
        worst.add_note(note)
    return worst


def _text(host: bytes | str | None) -> str:
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host or ""
    return "" if text == "?" else text
