"""Leases of processes, which decide which of them are dead. No I/O.

In: each process's last beat in Redis, at each of our checks. Out: the dead processes.

Rules.
1. A process is dead when its beat has not changed for LEASE_S on our monotonic clock while we were in touch with Redis the whole
   time. A process that has no beat any more is treated the same, because Redis may have lost it.
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
# Two checks further apart than this, or with a failure between them, prove nothing about the time between them.
IN_TOUCH_S = 2.5 * BEAT_S
# A live process beats within this time after Redis is back. A command may hang for 2 s before a retry, and we check each second.
BACK_S = 4.0


class Leases:
    """See the module. `now_s` is monotonic. The beats of the asking process, `own`, prove nothing about others."""

    def __init__(self, own: str = "") -> None:
        self.own = own
        self._seen: dict[str, tuple[int, float]] = {}  # process → its beat, and when we first saw that value
        self._first_read_s: float | None = None
        self._checked_s = 0.0
        self._missed = False
        self._ages: dict[str, tuple[int, float]] = {}  # process → its beat at our first check, and its age by Redis' clock
        self._alone = True
        self._unsure: set[str] = set()

    def received(self, beats: Mapping[str, int], redis_now_ms: int, now_s: float) -> list[str]:
        """Apply the beats that Redis holds; return the dead processes."""
        if self._first_read_s is None:
            self._first_read_s = self._checked_s = now_s
            self._ages = {process: (at, now_s - max(0.0, (redis_now_ms - at) / 1000)) for process, at in beats.items()}
            self._unsure = {process for process, (_, since_s) in self._ages.items() if now_s - since_s > LEASE_S}
        was_in_touch = not self._missed and now_s - self._checked_s <= IN_TOUCH_S
        self._checked_s, self._missed = now_s, False
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
        if now_s - self._first_read_s >= BACK_S:
            if was_in_touch and self._alone:
                dead += [
                    each for each, (at, since_s) in self._ages.items() if beats.get(each) == at and now_s - since_s > LEASE_S
                ]
            self._ages.clear()
        self._unsure = {each for each in self._unsure if each in self._ages and beats.get(each) == self._ages[each][0]}
        self._seen = {process: known for process, known in seen.items() if process in beats or process not in dead}
        return list(dict.fromkeys(dead))

    def missed(self) -> None:
        """Note that Redis was unreachable since the last check, perhaps for others too."""
        self._missed = True

    def is_unsure(self, process: str) -> bool:
        """Whether it is undecided if a process is dead. Its members are then neither shown nor removed."""
        return self._first_read_s is None or process in self._unsure
