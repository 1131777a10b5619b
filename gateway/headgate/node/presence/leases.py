"""Leases of processes, which decide which of them are dead. No I/O.

In: each process's last beat in Redis, at each of our checks. Out: the dead processes.

Rules.
1. A process is dead when its beat has not changed for LEASE_S on our monotonic clock while we were in touch with Redis the whole
   time. A process that has no beat any more is treated the same, because Redis may have lost it. Two checks further apart than
   IN_TOUCH_S, or with a failure between them, prove nothing about the time between them.
2. Redis' clock counts only at our first check. A process that looks dead then may have died earlier, or Redis was unreachable for
   all processes until now, and they are about to beat again. It is `unsure` for BACK_S.
3. If no other process has beaten by the end of that time, we are alone, and it is dead as soon as its lease ends by Redis' clock,
   rather than one lease later. If another has, that one has watched for longer, and we apply rule 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.redis.presence_entries import LEASE_S

# Time between beats, and between checks.
BEAT_S = 1.0
IN_TOUCH_S = 2.5 * BEAT_S
# A live process beats within this time after Redis is back. A command may hang for 2 s before a retry, and we check each second.
BACK_S = 4.0


class Leases:
    """See the module. `now_s` is monotonic. The beats of the asking process, `own`, prove nothing about others.

    `in_touch_since_s` is when we came in touch with Redis, None while we are not.
    """

    def __init__(self, own: str = "") -> None:
        self.own = own
        self.in_touch_since_s: float | None = None
        self._seen: dict[str, tuple[int, float]] = {}  # process → its beat, and when we first saw that value
        self._first_read_s: float | None = None
        self._checked_s = 0.0
        self._ages: dict[str, tuple[int, float]] = {}  # process → its beat at our first check, and its age by Redis' clock
        self._alone = True
        self._unsure: set[str] = set()

    def received(self, beats: Mapping[str, int], redis_now_ms: int, now_s: float) -> list[str]:
        """Apply the beats that Redis holds; return the dead processes."""
        if self._first_read_s is None:
            self._first_read_s = now_s
            self._ages = {process: (at, now_s - max(0.0, (redis_now_ms - at) / 1000)) for process, at in beats.items()}
            self._unsure = {process for process, (_, since_s) in self._ages.items() if now_s - since_s > LEASE_S}
        if self.in_touch_since_s is None or now_s - self._checked_s > IN_TOUCH_S:
            self.in_touch_since_s = now_s
        self._checked_s = now_s
        for process, at in beats.items():
            if process not in self._seen or self._seen[process][0] != at:
                self._seen[process] = at, now_s
            if process != self.own and at > 0 and self._ages.get(process, (at, 0.0))[0] != at:
                self._alone = False
        in_touch_s = now_s - self.in_touch_since_s
        dead = [each for each, (at, since_s) in self._seen.items() if at <= 0 or min(now_s - since_s, in_touch_s) > LEASE_S]
        if now_s - self._first_read_s >= BACK_S:
            if in_touch_s and self._alone:
                dead += [
                    each for each, (at, since_s) in self._ages.items() if beats.get(each) == at and now_s - since_s > LEASE_S
                ]
            self._ages.clear()
        self._unsure = {each for each in self._unsure if each in self._ages and beats.get(each) == self._ages[each][0]}
        self._seen = {process: known for process, known in self._seen.items() if process in beats or process not in dead}
        return list(dict.fromkeys(dead))

    def missed(self) -> None:
        """Note that Redis was unreachable since the last check, perhaps for others too."""
        self.in_touch_since_s = None

    def is_unsure(self, process: str) -> bool:
        """Whether it is undecided if a process is dead. Its members are then neither shown nor removed."""
        return self._first_read_s is None or process in self._unsure
