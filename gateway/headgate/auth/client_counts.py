"""Client counts: how many clients a user, or an address, may have over processes that look at each other once in a while. No I/O.

In: this process's own counts, from admission.py; what the others have, from each look (redis/client_counts.py). Out: whether
one client more may join, without waiting; what the next look is to tell and to ask.

Rule. With a look at `total` clients of a user over `processes`, this process may let in `(max - total) // processes` more
before the next look, and one at least while there is room. Of a user about whom it has not looked, and of every user while
Redis does not answer, it may have its share: `max // processes`, and one at least. So `max` is exceeded by `processes - 1` at
most where looks lie between the joins, by `(processes - 1) * share` at most when all processes let a user in at one moment, and
never with one process. docs/decisions/0034 has the argument. A process that dies gives its places back when its lease ends.

Of addresses there are as many as clients, and few come near their limit: one that has fewer than QUIET_CLIENTS at a process is
neither told nor asked about there, so each other process may have let in so many more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

from headgate.errors import LimitReached

# A look at a user who has no client here is forgotten after this.
FRESH_S = 60.0
# Without any look for so long, two leases, this process does not know what the others have.
OUT_OF_TOUCH_S = 30.0
# After Redis has lost what was told, a flush or a long outage, the others have told theirs again within this.
SETTLE_S = 15.0
# A place is free again when some client leaves, at a time that cannot be known: a refused client asks again at this pace.
PLACE_RETRY_S = 10
# There may be room at the next look, which a refusal brings about.
LOOK_RETRY_S = 2
# Users in one look; the others wait for the next one.
MAX_ASKED = 1000
QUIET_CLIENTS = 16


class StillLooking(LimitReached):
    """There may be room for this client, which the next look tells."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit, LOOK_RETRY_S)


class Question(NamedTuple):
    """A look: `told` are this process's counts that have changed or matter, `asked` the users whose others are of interest."""

    told: dict[str, int]
    asked: list[str]


class _Look(NamedTuple):
    at_s: float
    may_have: int
    full: bool


class ClientCounts:
    """See the module. `wanted` is called when a look is worth making soon; `own_of` tells how many clients a user has here.

    `now_s` is monotonic.

    Args:
        max_clients: of one user; 0 for any number, and nothing is told or asked.
        name: of the limit.
        quiet: how many clients of one are not worth a word.
    """

    def __init__(
        self, max_clients: int, now_s: Callable[[], float] = monotonic, *, name: str = "clients_per_user", quiet: int = 0
    ) -> None:
        self.max_clients = max_clients
        self._name, self._most_quiet = name, quiet
        self._told: set[str] = set()  # those that are not quiet, where there are quiet ones
        self.wanted: Callable[[], None] = lambda: None
        self.own_of: Callable[[str], int] = lambda user: 0
        self.processes = 1
        self._now_s = now_s
        self._changed: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._looks: dict[str, _Look] = {}
        self._heard_s = self._swept_s = self._settled_s = -math.inf

    def check(self, user: str, own: int) -> None:
        """Refuse one client more of a user who has `own` here.

        Raises:
            StillLooking: this process cannot tell before the next look.
            LimitReached: by the name of the limit.
        """
        if not self.max_clients:
            return
        if self.processes == 1:
            if own >= self.max_clients:
                raise LimitReached(self._name, self.max_clients, PLACE_RETRY_S)
            return
        if own < self._quiet():
            return
        now_s = self._now_s()
        in_touch = now_s - self._heard_s <= OUT_OF_TOUCH_S and now_s >= self._settled_s
        look = self._looks.get(user) if in_touch else None
        self._ask(user, own)
        if own >= (self._share() if look is None else look.may_have):
            if look is None or not look.full:
                raise StillLooking(self._name, self.max_clients)
            raise LimitReached(self._name, self.max_clients, PLACE_RETRY_S)

    def changed(self, user: str, own: int) -> None:
        """A user has so many clients here now."""
        if self.max_clients and self._is_told(user, own):
            told = own if own >= self._quiet() else 0
            self._changed[user] = told
            look = self._looks.get(user)
            if look is not None and look.may_have > own + self._share():
                # The places of clients that have left are everyone's again.
                self._looks[user] = look._replace(may_have=own + self._share())
            self.wanted()  # alone too: a process that starts must find what is here, and this one learns of it
            if user in self._asked:
                self._asked[user] = told

    def all_told(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return what there is to tell of so many clients of each user, to a Redis that has lost what was told."""
        found = {user: own for user, own in counts.items() if own >= self._quiet()} if self.max_clients else {}
        if self._most_quiet:
            self._told = set(found)
        return found

    def next_question(self) -> Question:
        """Return what the next look is to tell and to ask. If it fails, the one after it has to tell all counts."""
        asked = dict(list(self._asked.items())[:MAX_ASKED])
        question = Question({**self._changed, **asked}, list(asked))
        self._changed.clear()
        for user in asked:
            del self._asked[user]
        return question

    def heard(self, question: Question, processes: int, others: Mapping[str, int], *, lost: bool = False) -> None:
        """The look is over: so many processes there are, and the asked users have so many clients at the others.

        `lost`: Redis had lost what this process told before, so what it knows of the others may not be all.
        """
        now_s = self._heard_s = self._now_s()
        if lost:
            self._settled_s = now_s + SETTLE_S
            self._looks.clear()
        self.processes = max(1, processes, self.processes if now_s < self._settled_s else 0)
        if now_s - self._swept_s > FRESH_S:
            self._swept_s = now_s
            self._looks = {user: look for user, look in self._looks.items() if now_s - look.at_s <= FRESH_S or self.own_of(user)}
        if now_s < self._settled_s:
            return
        for user in question.asked:
            own = question.told[user]
            room = self.max_clients - own - others.get(user, 0)
            more = max(1, room // self.processes) if room > 0 else 0
            self._looks[user] = _Look(now_s, own + more, room <= 0)
        if self._asked:
            self.wanted()

    def _share(self) -> int:
        return max(1, self.max_clients // self.processes)

    def _quiet(self) -> int:
        return min(self._most_quiet, self._share() // 2)

    def _is_told(self, user: str, own: int) -> bool:
        """Return whether a count is worth a word: there are enough, or there were."""
        if not self._most_quiet:
            return True
        was_told = user in self._told
        if own >= self._quiet():
            self._told.add(user)
            return True
        self._told.discard(user)
        return was_told

    def _ask(self, user: str, own: int) -> None:
        self._asked[user] = own
        self.wanted()
