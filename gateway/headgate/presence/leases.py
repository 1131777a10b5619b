"""Leases of processes: which of them are dead. No I/O.

In: each process's last beat, as Redis has it, whenever this process has looked. Out: those that are dead.

Rules. 1. A process is dead when its beat has not changed for LEASE_S by our own monotonic clock, and we were in touch with
Redis all that time. So is one whose beat is not there any more: Redis may have lost it. 2. Redis' clock counts at our first
look only. One that looks dead then may have died before we came; or Redis has been away until now, for others as for us, and
all of them are about to beat again. So it is `unsure` for BACK_S. 3. When that is over and nobody else has beaten since we
came, we are alone, and it is dead as soon as it is by Redis' clock: it must not live another lease. Where another one has, that
one has looked for longer than we have, and rule 1 is ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.redis.presence_entries import LEASE_S

# Between two beats of a process, and so between two looks.
BEAT_S = 1.0
# Looks that are further apart than this say nothing about the time between them, nor do those between which something failed.
IN_TOUCH_S = 2.5 * BEAT_S
# A process that lives has beaten so soon after Redis is there again: a command may hang for 2 s, is tried again, and we look
# once a second.
BACK_S = 4.0


class Leases:
    """See the module. `now_s` is monotonic.

    Args:
        own: the process that asks; its own beats say nothing about others.
    """

    def __init__(self, own: str = "") -> None:
        self.own = own
        self._seen: dict[str, tuple[int, float]] = {}  # process → its beat, and since when we have seen that one
        self._first_look_s: float | None = None
        self._looked_s = 0.0
        self._missed = False
        self._ages: dict[str, tuple[int, float]] = {}  # process → its beat at our first look, and since when by Redis' clock
        self._alone = True
        self._unsure: set[str] = set()

    def heard(self, beats: Mapping[str, int], redis_now_ms: int, now_s: float) -> list[str]:
        """Take what Redis has; return those that are dead."""
        if self._first_look_s is None:
            self._first_look_s = self._looked_s = now_s
            self._ages = {process: (at, now_s - max(0.0, (redis_now_ms - at) / 1000)) for process, at in beats.items()}
            self._unsure = {process for process, (_, since_s) in self._ages.items() if now_s - since_s > LEASE_S}
        was_in_touch = not self._missed and now_s - self._looked_s <= IN_TOUCH_S
        self._looked_s, self._missed = now_s, False
        seen: dict[str, tuple[int, float]] = {}
        for process, at in beats.items():
            known = self._seen.get(process)
            seen[process] = known if known is not None and known[0] == at and was_in_touch else (at, now_s)
            if process != self.own and at > 0 and self._ages.get(process, (at, 0.0))[0] != at:
                self._alone = False
        for process, known in self._seen.items():
            if process not in beats and process != self.own:
                seen[process] = known if was_in_touch else (known[0], now_s)
        self._seen = seen
        dead = [process for process, (at, since_s) in seen.items() if at <= 0 or now_s - since_s > LEASE_S]
        if now_s - self._first_look_s >= BACK_S:
            if was_in_touch and self._alone:
                dead += [
                    each for each, (at, since_s) in self._ages.items() if beats.get(each) == at and now_s - since_s > LEASE_S
                ]
            self._ages.clear()
        self._unsure = {each for each in self._unsure if each in self._ages and beats.get(each) == self._ages[each][0]}
        self._seen = {process: known for process, known in seen.items() if process in beats or process not in dead}
        return list(dict.fromkeys(dead))

    def missed(self) -> None:
        """Redis was out of reach since the last look, for others too perhaps."""
        self._missed = True

    def is_unsure(self, process: str) -> bool:
        """Whether it is not known yet if a process is dead: its members are neither to be shown nor left out."""
        return self._first_look_s is None or process in self._unsure
