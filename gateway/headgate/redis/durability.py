"""How far a write must have come before it counts: into Redis' memory, onto replicas, onto the disk. No I/O.

In: the wish of a publisher (`durable`). Out: the command that goes behind the write on its connection (WAIT, WAITAOF), and the
meaning of its reply. Redis replicates and writes in order, so a reply that confirms a write confirms all before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headgate.errors import HeadgateError, InvalidRequest

MAX_REPLICAS = 16
# A replica that has gone is waited for so long: it may have been promoted, and the others are about to follow it.
GONE_S = 10.0


@dataclass(frozen=True, slots=True)
class Durability:
    """A wish: `replicas` that must have the write, and whether it must be synced to the primary's disk.

    `all_replicas`: every one that is online, at least `replicas`; `OnlineReplicas` says how many these are.

    Raises:
        InvalidRequest: from `read_durable`.
    """

    replicas: int
    disk: bool
    all_replicas: bool = False

    def of(self, online: int) -> Durability:
        """Return the wish for all replicas, of which so many are online, as one for a number of them."""
        return replace(self, replicas=max(self.replicas, online))

    def command(self, wait_ms: int) -> tuple[str | int, ...]:
        """Return the command that waits for it at most `wait_ms`; it answers how far the write has come."""
        return ("WAITAOF", 1, 0, wait_ms) if self.disk else ("WAIT", self.replicas, wait_ms)

    def confirmed(self, reply: Any) -> tuple[int, bool | None]:
        """Return from the reply how many replicas have the write, and whether it is on the primary's disk (None: not asked)."""
        if self.disk:
            here, replicas = reply
            return int(replicas), bool(here)
        return int(reply), None

    def met(self, replicas: int, fsynced: bool | None) -> bool:
        """Return whether the wish is fulfilled."""
        return bool(fsynced) if self.disk else replicas >= self.replicas

    def shortfall(self, replicas: int, wait_ms: int) -> str:
        """Return what is missing, in words."""
        if self.disk:
            return f"Redis has not synced it to its disk within {wait_ms / 1000:g} s"
        return f"{replicas} of {self.replicas} replicas have it after {wait_ms / 1000:g} s"


class OnlineReplicas:
    """The number of replicas that a write must reach to be on all. A publisher has one; threads may share it.

    A replica that is promoted leaves the old primary at once, and the others a moment later. Until then they confirm writes that
    they are about to throw away. So a replica that was online counts for GONE_S more, as long as the primary is the same.
    """

    def __init__(self) -> None:
        self._most = ("", 0, 0.0)  # the primary's line of replication, the number, and when it was last seen

    def count(self, info: Mapping[str, Any], now_s: float) -> int:
        """Return the number. `info`: the reply to INFO replication, as redis-py shapes it."""
        online = sum(1 for value in info.values() if isinstance(value, Mapping) and value.get("state") == "online")
        line = str(info.get("master_replid", ""))
        known_line, most, seen_s = self._most
        if line == known_line and online < most and now_s - seen_s < GONE_S:
            return most
        self._most = line, online, now_s
        return online


def read_durable(durable: object) -> Durability | None:
    """Return the wish that `durable` is: None, "replica" (one), "all", "disk", or a number of replicas from 1 to MAX_REPLICAS.

    Raises:
        InvalidRequest: it is anything else.
    """
    if durable is None:
        return None
    if durable == "replica":
        return Durability(1, disk=False)
    if durable == "all":
        return Durability(1, disk=False, all_replicas=True)
    if durable == "disk":
        return Durability(0, disk=True)
    if isinstance(durable, int) and not isinstance(durable, bool) and 1 <= durable <= MAX_REPLICAS:
        return Durability(durable, disk=False)
    raise InvalidRequest(
        f"durable={durable!r}: expected 'replica', 'all', 'disk' or a number of replicas from 1 to {MAX_REPLICAS}"
    )


def not_waited(reply: HeadgateError) -> str:
    """Return why Redis did not wait at all: it keeps no append-only file, or is older than WAITAOF (7.2)."""
    return f"Redis did not wait for it: {reply.message}"
