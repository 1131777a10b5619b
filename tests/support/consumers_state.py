"""A consumer's state: in memory, with a clock that the test moves, for pure tests; and the count of leased tasks of a real one.

`on_call` is called with the name of every method before it does anything, and a test makes it raise to play a crash or an outage.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from headgate.consumers.base import Progress
from headgate.consumers.work.state import State
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.redis.client import Client, call
from headgate.redis.keys import group_in_log, group_key, log_key


def count_leased(client: Client, group: str) -> int:
    """Return how many entries of the log a consumer has been handed and has not answered."""
    epoch = call(client, "HGET", group_key(DEFAULT_NAMESPACE, group), "epoch").decode()
    pending: int = call(client, "XPENDING", log_key(DEFAULT_NAMESPACE), group_in_log(group, epoch))["pending"]
    return pending


class MemoryState(State):
    """As State, without what only routing uses. `handled_ms` is where the group stands; None: at the end."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s
        self.handled_ms: int | None = None
        self.leased = True
        self.on_call: Callable[[str], None] = lambda method: None
        self.calls: list[str] = []
        self._rates: dict[str, dict[object, float]] = defaultdict(dict)
        self._counters: dict[tuple[str, int], float] = defaultdict(float)
        self._kept: dict[str, bytes] = {}

    def within_rate(self, name: str, limit: int, period_s: float, one: str | None = None) -> float | None:
        self._called("within_rate")
        counted = {each: at_s for each, at_s in self._rates[name].items() if at_s > self.now_s - period_s}
        if len(counted) >= limit and one not in counted:
            return min(counted.values()) + period_s
        self._rates[name] = {one or object(): self.now_s} | counted
        return None

    def add(self, amounts: Mapping[tuple[str, int], float], ttl_s: float) -> None:
        """As base.State, but that nothing ends."""
        self._called("add")
        for key, amount in amounts.items():
            self._counters[key] += amount

    def sums(self, wanted: Sequence[tuple[str, range]]) -> list[float]:
        self._called("sums")
        return [sum(self._counters.get((name, bucket), 0.0) for bucket in buckets) for name, buckets in wanted]

    def get(self, name: str) -> bytes | None:
        self._called("get")
        return self._kept.get(name)

    def put(self, name: str, value: bytes, ttl_s: float) -> None:
        """As base.State, but that nothing ends."""
        self._called("put")
        self._kept[name] = value

    def lease(self, name: str, for_s: float) -> bool:
        self._called("lease")
        return self.leased

    def progress(self) -> Progress:
        self._called("progress")
        now_ms = int(self.now_s * 1000)
        return Progress(now_ms, now_ms if self.handled_ms is None else self.handled_ms)

    def _called(self, method: str) -> None:
        self.calls.append(method)
        self.on_call(method)
