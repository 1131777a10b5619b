"""Reads the status of consumers' groups in Redis, configured or not, and removes them by name.

In: a command client from redis/client.py. Out: the status of each consumer of a namespace. A consumer removed from the
configuration leaves its group, its waiting tasks and its dead letters in Redis, because only the operator knows whether it will
return.

All methods raise BusUnavailable and BusRefused as `redis.client.call`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headgate.errors import InvalidRequest
from headgate.redis.client import Client, call, call_at, doubt_owner
from headgate.redis.keys import group_key, log_key
from headgate.redis.registry import read_elsewhere

from .spec import CONSUMER_NAME
from .store import GROUP_LIBRARY

# A running consumer sends a heartbeat every half second, and every third of its lease while it works on one event.
QUIET_S = 60.0
_SCAN_KEYS = 1000


def check_consumer(name: str) -> str:
    """Return the name of a consumer. Raises InvalidRequest for an invalid name."""
    if not CONSUMER_NAME.fullmatch(name):
        raise InvalidRequest(f"a consumer {name[:80]!r}; expected a name of 1 to 64 characters of [A-Za-z0-9_-]")
    return name


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a consumer of a namespace.

    `lag` counts the events of the log not taken yet, or returned. `leased`, `waiting` and `dead` count tasks, and `missed`
    counts events. `idle_s` is the time since the last heartbeat of an instance (None if unknown). `elsewhere` names the
    instances with a last heartbeat at another Redis server (redis/registry.py), for which `lag` is meaningless.
    """

    name: str
    namespace: str
    lag: int
    leased: int
    waiting: int
    dead: int
    missed: int
    idle_s: float | None
    elsewhere: tuple[str, ...] = ()

    @property
    def is_at_work(self) -> bool:
        """Whether one of its instances has sent a heartbeat within QUIET_S."""
        return self.idle_s is not None and self.idle_s <= QUIET_S


class Groups:
    """The consumers in the Redis of a namespace. `scanned` is called after each thousand key names of a scan, and may raise."""

    def __init__(self, client: Client, namespace: str, scanned: Callable[[], None] = lambda: None) -> None:
        self._client, self._namespace, self._scanned = client, namespace, scanned
        self._log = log_key(namespace)

    def statuses(self) -> list[GroupStatus]:
        """Return the status of all, by name. Scans the names of all keys, a thousand at a time."""
        return [status for name in self.names() if (status := self.status_of(name)) is not None]

    def status_of(self, name: str) -> GroupStatus | None:
        """Return the status of one, or None if Redis does not know it. Raises InvalidRequest for an invalid name."""
        if not (reply := GROUP_LIBRARY.call(self._client, "FCALL_RO", "headgate_group_look", 1, self._log, name)):
            return None
        lag, leased, waiting, dead, missed, idle_ms = reply
        idle_s = None if idle_ms < 0 else idle_ms / 1000
        elsewhere = read_elsewhere(self._client, group_key(self._namespace, name))
        return GroupStatus(name, self._namespace, lag, leased, waiting, dead, missed, idle_s, elsewhere)

    def remove(self, name: str) -> tuple[int, int]:
        """Remove a consumer's group, deferred tasks, dead letters and state. Returns the numbers of tasks and letters.

        Raises InvalidRequest for an unknown consumer, or if one of its instances has sent a heartbeat within QUIET_S.
        """
        if self.status_of(name) is None:
            known = ", ".join(status.name for status in self.statuses()) or "none"
            raise InvalidRequest(f"there is no consumer {name} in {self._namespace}; there are: {known}")
        removed = GROUP_LIBRARY.call(
            self._client, "FCALL", "headgate_group_remove", 1, self._log, name, round(QUIET_S * 1000)
        )  # fmt: skip
        if len(removed) == 1:
            raise InvalidRequest(
                f"{name} was at work {removed[0] / 1000:.0f} s ago; stop all of its instances, and wait until it has been "
                f"quiet for {QUIET_S:.0f} s"
            )
        for keys in self._scan(f"{group_key(self._namespace, name)}:state:*"):
            if keys:
                call(self._client, "UNLINK", *keys)
        waiting, dead = removed
        return waiting, dead

    def names(self) -> list[str]:
        """Return the names of all, in order. Scans as `statuses` does."""
        prefix = group_key(self._namespace, "")
        name_of = re.compile(rf"{re.escape(prefix)}({CONSUMER_NAME.pattern})(?::|$)", re.ASCII)
        all_names: set[str] = set()
        for keys in self._scan(f"{prefix}*"):
            all_names.update(match[1] for key in keys if (match := name_of.match(key.decode())))
        return sorted(all_names)

    def _scan(self, pattern: str) -> Iterator[list[Any]]:
        cursor = 0
        doubt_owner(self._client)
        while True:
            cursor, keys = call_at(self._client, self._log, "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_KEYS)
            self._scanned()
            yield keys
            if not int(cursor):
                return
