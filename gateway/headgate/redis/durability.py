"""How far a write must get before it is confirmed (Redis' memory, replicas, or the disk). No I/O.

In: a publisher's requirement (`durable`). Out: the command that follows the write on its connection (WAIT, WAITAOF), and the
meaning of its reply. Redis replicates and writes in order, so a reply that confirms a write confirms all earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headgate.errors import BusUnavailable, HeadgateError, InvalidRequest
from headgate.events.numbers import is_whole

MAX_REPLICAS = 16
# How long a missing replica still counts. It may have been promoted, and the other replicas are about to follow it.
GONE_S = 10.0
# A publisher remembers the replicas of this many primaries. Beyond that it forgets them all.
MAX_PRIMARIES = 1000


@dataclass(frozen=True, slots=True)
class Durability:
    """A requirement: the number of replicas that must have the write, and whether the primary must sync it to its disk.

    `all_replicas` means every online replica (`count_online`), and at least `replicas`.
    """

    replicas: int
    disk: bool
    all_replicas: bool = False

    def of(self, online: int) -> Durability:
        """Replace the requirement for all replicas by one for their number."""
        return replace(self, replicas=max(self.replicas, online))

    def command(self, wait_ms: int) -> tuple[str | int, ...]:
        """Return the command that waits at most `wait_ms` and reports how far the write got."""
        return ("WAITAOF", 1, 0, wait_ms) if self.disk else ("WAIT", self.replicas, wait_ms)

    def confirmed(self, reply: Any) -> tuple[int, bool | None]:
        """Return from the reply how many replicas have the write, and whether the disk has it (None: not required)."""
        if self.disk:
            here, replicas = reply
            return int(replicas), bool(here)
        return int(reply), None

    def met(self, replicas: int, fsynced: bool | None) -> bool:
        """Return whether the requirement is met."""
        return bool(fsynced) if self.disk else replicas >= self.replicas

    def shortfall(self, replicas: int, wait_ms: int) -> str:
        """Describe what is missing."""
        if self.disk:
            return f"Redis has not synced it to its disk within {wait_ms / 1000:g} s"
        return f"{replicas} of {self.replicas} replicas have it after {wait_ms / 1000:g} s"


# The number of replicas of a primary, by its replication id, and when it was last seen. A Cluster has several primaries.
Replicas = dict[str, tuple[int, float]]


def count_online(known: Replicas, info: Mapping[str, Any], now_s: float) -> int:
    """Return the number of replicas that a write must reach to be on all of them.

    In a failover the promoted replica leaves the old primary at once, and the other replicas leave a moment later. Until then
    they confirm writes that they will soon discard. So a replica counts for GONE_S after it was last online, while the primary
    stays the same.

    Args:
        known: of a publisher, brought up to date. Threads may share it.
        info: the reply to INFO replication, as redis-py shapes it.
    """
    online = sum(1 for value in info.values() if isinstance(value, Mapping) and value.get("state") == "online")
    line = str(info.get("master_replid", ""))
    most, seen_s = known.get(line, (0, 0.0))
    if online < most and now_s - seen_s < GONE_S:
        return most
    if len(known) >= MAX_PRIMARIES:
        known.clear()
    known[line] = online, now_s
    return online


def read_durable(durable: object) -> Durability | None:
    """Read `durable`: None, "replica" (one), "all", "disk", or a number of replicas from 1 to MAX_REPLICAS.

    Raises InvalidRequest: `durable` is anything else.
    """
    if durable is None:
        return None
    if durable == "replica":
        return Durability(1, disk=False)
    if durable == "all":
        return Durability(1, disk=False, all_replicas=True)
    if durable == "disk":
        return Durability(0, disk=True)
    if is_whole(durable, 1, MAX_REPLICAS):
        return Durability(durable, disk=False)
    raise InvalidRequest(
        f"durable={durable!r}: expected 'replica', 'all', 'disk' or a number of replicas from 1 to {MAX_REPLICAS}"
    )


def not_waited(reply: HeadgateError) -> str:
    """Explain a missing confirmation. Redis may lack an append-only file, be older than WAITAOF (7.2), or still wait."""
    if isinstance(reply, BusUnavailable) and not reply.redis_code:
        return "Redis has not confirmed it within the time of the call"
    return f"Redis did not wait for it: {reply.message}"
