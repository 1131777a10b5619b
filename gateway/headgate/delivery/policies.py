"""The subscriptions of one client, each with its overflow policy. No I/O.

In: `put` and `remove` of a valid pattern. Out: the subscriptions that a topic reaches, and the policy that decides among them.
The matcher (matcher.py) finds the clients of an event. Only a slow client needs its own subscriptions, so their map is made on
first use, and forgotten (`forget_map`) when the client keeps up again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headgate.events.topic import is_wildcard
from headgate.events.wire.packets import Overflow

from .pattern_map import PatternMap

_STRENGTH = (Overflow.CATCH_UP, Overflow.LATEST, Overflow.DROP)


class Policies(Mapping[str, Overflow]):
    """Overflow policies by pattern, in the order of the subscriptions. `wildcards`: how many patterns have a wildcard."""

    __slots__ = ("_by_pattern", "_key", "_map", "_only", "_only_policy", "wildcards")

    def __init__(self) -> None:
        # Most clients have one subscription. A dict for it would take 200 bytes, a sixteenth of an idle client.
        self._only: str | None = None
        self._only_policy = Overflow.CATCH_UP
        self._by_pattern: dict[str, Overflow] | None = None
        self._key: tuple[str, ...] | None = None
        self._map: PatternMap[tuple[str, Overflow]] | None = None
        self.wildcards = 0

    def __getitem__(self, pattern: str) -> Overflow:
        if self._by_pattern is not None:
            return self._by_pattern[pattern]
        if pattern != self._only:
            raise KeyError(pattern)
        return self._only_policy

    def __contains__(self, pattern: object) -> bool:
        # Mapping's version raises and catches an error for each missing pattern.
        return pattern in self._by_pattern if self._by_pattern is not None else pattern is not None and pattern == self._only

    def __iter__(self) -> Iterator[str]:
        if self._by_pattern is not None:
            return iter(self._by_pattern)
        return iter(() if self._only is None else (self._only,))

    def __len__(self) -> int:
        return len(self._by_pattern) if self._by_pattern is not None else self._only is not None

    @property
    def key(self) -> tuple[str, ...]:
        """The sorted patterns. Clients with the same ones share their part of a log page."""
        if self._key is None:
            self._key = tuple(sorted(self))
        return self._key

    def put(self, pattern: str, policy: Overflow) -> bool:
        """Add a subscription or change its policy; return whether the pattern is new."""
        if is_new := pattern not in self:
            self.wildcards += is_wildcard(pattern)
            self._key = None
        self._map = None
        if self._by_pattern is not None:
            self._by_pattern[pattern] = policy
        elif self._only is None or self._only == pattern:
            self._only, self._only_policy = pattern, policy
        else:
            self._by_pattern = {self._only: self._only_policy, pattern: policy}
            self._only = None
        return is_new

    def remove(self, pattern: str) -> bool:
        """Remove a subscription; False if there was none."""
        if pattern not in self:
            return False
        if self._by_pattern is not None:
            del self._by_pattern[pattern]
        else:
            self._only = None
        self.wildcards -= is_wildcard(pattern)
        self._key = self._map = None
        return True

    def clear(self) -> None:
        self._only = self._by_pattern = self._key = self._map = None
        self.wildcards = 0

    def reached(self, topic: str) -> list[tuple[str, Overflow]]:
        """Return the subscriptions that a topic reaches. A loop over 128 patterns would take 0.3 ms."""
        if self._map is None:
            self._map = PatternMap()
            for pattern, policy in self.items():
                self._map.add(pattern, (pattern, policy))
        return self._map.reached(topic)

    def forget_map(self) -> None:
        """Free the memory of `reached` while the client keeps up."""
        self._map = None


def strongest(reached: Sequence[tuple[str, Overflow]]) -> Overflow:
    """Return the policy that decides about an event: `catch_up` before `latest` before `drop`, the default."""
    if len(reached) == 1:
        return reached[0][1]  # the common case, for every event of a slow client
    return min((policy for _, policy in reached), key=_STRENGTH.index, default=Overflow.DROP)
