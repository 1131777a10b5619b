"""How far a write must have come before it counts: into Redis' memory, onto replicas, onto the disk. No I/O.

In: the wish of a publisher (`durable`). Out: the command that goes behind the write on its connection (WAIT, WAITAOF), and the
meaning of its reply. Redis replicates and writes in order, so a reply that confirms a write confirms all before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.errors import HeadgateError, InvalidRequest

MAX_REPLICAS = 16


@dataclass(frozen=True, slots=True)
class Durability:
    """A wish: `replicas` that must have the write, and whether it must be synced to the primary's disk.

    Raises:
        InvalidRequest: from `read_durable`.
    """

    replicas: int
    disk: bool

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


def read_durable(durable: object) -> Durability | None:
    """Return the wish that `durable` is: None, "replica" (one), "disk", or a number of replicas from 1 to MAX_REPLICAS.

    Raises:
        InvalidRequest: it is anything else.
    """
    if durable is None:
        return None
    if durable == "replica":
        return Durability(1, disk=False)
    if durable == "disk":
        return Durability(0, disk=True)
    if isinstance(durable, int) and not isinstance(durable, bool) and 1 <= durable <= MAX_REPLICAS:
        return Durability(durable, disk=False)
    raise InvalidRequest(f"durable={durable!r}: expected 'replica', 'disk' or a number of replicas from 1 to {MAX_REPLICAS}")


def not_waited(reply: HeadgateError) -> str:
    """Return why Redis did not wait at all: it keeps no append-only file, or is older than WAITAOF (7.2)."""
    return f"Redis did not wait for it: {reply.message}"
