"""Limits the clients of a user or an address over all processes, which exchange counts now and then. No I/O.

In: the counts of this process, from admission.py, and those of the others, from each exchange. Out: whether another client may
join, without waiting, and the contents of the next exchange. The exchange is a turn of the shared table (redis/shared_table.py),
soon after a join.

Rule. After an exchange that reports `total` clients of a user over `processes`, this process may admit
`(max - total) // processes` more before the next one, and at least one while there is room. For a user without an exchange, and
for every user while Redis is unreachable, its share is `max // processes`, and at least one. So `max` is exceeded by at most
`processes - 1` when exchanges happen between the joins, by at most `(processes - 1) * share` when all processes admit a user at
the same moment, and never with one process. docs/decisions/0034 has the argument. The places of a dead process are free again
when its lease ends.

There are as many addresses as clients, and few come near their limit. A process neither sends nor asks about an address with
fewer than QUIET_CLIENTS clients, so each other process may have admitted that many more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from headgate.errors import LimitReached
from headgate.runtime.shared_rates import OUT_OF_TOUCH_S, SETTLE_S

# The result for a user without clients here expires after this.
FRESH_S = 60.0
# It is unpredictable when a client leaves, so a refused client retries at this interval.
PLACE_RETRY_S = 10
# A refusal starts the next exchange, which may find room.
ASK_RETRY_S = 2
# Users per exchange; the rest wait for the next one.
MAX_ASKED = 1000
QUIET_CLIENTS = 16


class CountsPending(LimitReached):
    """There may be room for this client. The next exchange decides."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit, ASK_RETRY_S)


class _Answer(NamedTuple):
    at_s: float
    may_have: int
    full: bool


class ClientCounts:
    """See the module. `wanted` is called when an exchange would help soon. `own` are the clients of each user in this process.

    Args:
        max_clients: maximum per user; 0 means no limit and no exchange.
        kind: the name of this use of the shared table.
        quiet: counts below this are not exchanged.
    """

    def __init__(
        self,
        max_clients: int,
        now_s: Callable[[], float] = monotonic,
        *,
        kind: str = "clients",
        name: str = "clients_per_user",
        quiet: int = 0,
    ) -> None:
        self.max_clients, self.kind = max_clients, kind
        self._name, self._most_quiet = name, quiet
        self._shared: set[str] = set()  # with `quiet`, users with a last sent count above it
        self.wanted: Callable[[], None] = lambda: None
        self.own: dict[str, int] = {}
        self.processes = 1
        self._now_s = now_s
        self._changed: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._asking: dict[str, int] = {}  # the users asked about in the exchange under way, with their counts here
        self._answers: dict[str, _Answer] = {}
        self._received_s = self._swept_s = self._settled_s = -math.inf

    def check(self, user: str) -> None:
        """Refuse another client of a user if that may exceed the limit.

        Raises CountsPending if only the next exchange can decide, and LimitReached with the name of the limit.
        """
        if not self.max_clients:
            return
        own = self.own.get(user, 0)
        if self.processes == 1:
            if own >= self.max_clients:
                raise LimitReached(self._name, self.max_clients, PLACE_RETRY_S)
            return
        if own < self._quiet():
            return
        now_s = self._now_s()
        in_touch = now_s - self._received_s <= OUT_OF_TOUCH_S and now_s >= self._settled_s
        answer = self._answers.get(user) if in_touch else None
        self._asked[user] = own
        self.wanted()
        if own >= (self._share() if answer is None else answer.may_have):
            if answer is None or not answer.full:
                raise CountsPending(self._name, self.max_clients)
            raise LimitReached(self._name, self.max_clients, PLACE_RETRY_S)

    def changed(self, user: str, own: int) -> None:
        """Record the number of clients that a user now has in this process."""
        if own:
            self.own[user] = own
        else:
            self.own.pop(user, None)
        if self.max_clients and (not self._most_quiet or self._is_shared(user, own)):
            shown = own if not self._most_quiet or own >= self._quiet() else 0
            self._changed[user] = shown
            answer = self._answers.get(user)
            if answer is not None and answer.may_have > own + self._share():
                # Every process may use the places of departed clients.
                self._answers[user] = answer._replace(may_have=own + self._share())
            self.wanted()  # even without other processes, because a starting process must find these counts
            if user in self._asked:
                self._asked[user] = shown

    def fields(self, *, whole_row: bool) -> dict[str, int | None]:
        """Begin an exchange; return the counts here that changed or matter, or all."""
        self._asking = dict(list(self._asked.items())[:MAX_ASKED])
        shown = {**self._changed, **self._asking}
        self._changed.clear()
        for user in self._asking:
            del self._asked[user]
        if whole_row:
            shown = {user: own for user, own in self.own.items() if own >= self._quiet()} if self.max_clients else {}
            if self._most_quiet:
                self._shared = set(shown)
        return {user: own or None for user, own in shown.items()}

    def wanted_fields(self) -> list[str]:
        """Return the users to ask about."""
        return list(self._asking)

    def receive(self, others: Mapping[str, Mapping[str, bytes | None]], *, lost: bool) -> None:
        """Apply the result of an exchange, with the counts of each other process.

        With `lost`, Redis had lost the counts of this process, so those of the others may be incomplete.
        """
        now_s = self._received_s = self._now_s()
        if lost:
            self._settled_s = now_s + SETTLE_S
            self._answers.clear()
        self.processes = max(len(others) + 1, self.processes if now_s < self._settled_s else 0)
        if now_s - self._swept_s > FRESH_S:
            self._swept_s = now_s
            self._answers = {
                user: answer for user, answer in self._answers.items() if now_s - answer.at_s <= FRESH_S or user in self.own
            }
        asking, self._asking = self._asking, {}
        if now_s < self._settled_s:
            return
        for user, own in asking.items():
            room = self.max_clients - own - sum(_count(fields.get(user)) for fields in others.values())
            more = max(1, room // self.processes) if room > 0 else 0
            self._answers[user] = _Answer(now_s, own + more, room <= 0)
        if self._asked:
            self.wanted()

    def _share(self) -> int:
        return max(1, self.max_clients // self.processes)

    def _quiet(self) -> int:
        return min(self._most_quiet, self._share() // 2)

    def _is_shared(self, user: str, own: int) -> bool:
        """Return whether to send a count, because it or the last one sent is large enough."""
        was_shared = user in self._shared
        if own >= self._quiet():
            self._shared.add(user)
            return True
        self._shared.discard(user)
        return was_shared


def _count(value: bytes | None) -> int:
    """Return a count of another process, or 0 for an invalid one."""
    return int(value) if value is not None and len(value) <= 9 and value.isdigit() else 0
