"""A consumer in this process that writes down its work, and its account: it has done all that the log has, and nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType

from headgate.consumers import Consumer, Delivery
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.settings import Settings
from tests.fault.checker import History
from tests.fault.site import DEADLINE_S, NAMESPACE, wait_for

Place = tuple[str, int]


class Consumed:
    """One consumer of everything, from the beginning of the log. Use as a context manager.

    Attributes:
        done: what it has done, by place and id, and how often.
    """

    def __init__(self, url: str, name: str) -> None:
        self.done: Counter[tuple[Place, str]] = Counter()
        lock, done = threading.Lock(), self.done

        class Writing(Consumer):
            def handle(self, delivery: Delivery) -> None:
                assert delivery.epoch is not None
                assert delivery.offset is not None
                with lock:
                    done[((delivery.epoch, delivery.offset), delivery.id or "")] += 1

        options = RunnerOptions(start="oldest", lease_s=2.0)
        self._runner = Runner(ConsumerSpec(name, Writing, Writing.Options(), ("#",), NAMESPACE, options), url, Settings())

    def __enter__(self) -> Consumed:
        self._runner.open()
        self._runner.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._runner.stop()

    def assert_kept(self, history: History, end: Place, deadline_s: float = DEADLINE_S) -> None:
        """Wait until it has done everything up to the end of the log; fail if it misses anything, or has done what never was.

        An event may be done again when Redis has lost the answer to it. A place is never that of two events.
        """
        epoch, last = end
        log = {((event.epoch, event.offset), event.id) for event in history.log(epoch) if event.offset <= last}
        wait_for(lambda: self._has_done(log), "the consumer to do everything that is in the log", deadline_s)
        places = Counter(place for place, _ in list(self.done))
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"two events at one place: {twice[:5]}"
        for place, event_id in list(self.done):
            known = history.events.get(place)
            assert known is not None or event_id in history.doubts or event_id in history.ids, f"nobody published {event_id}"
            assert known is None or known.id == event_id, f"{event_id} was done at {place}, the receipt there is {known}"

    def _has_done(self, log: set[tuple[Place, str]]) -> bool:
        return not log - set(self.done)
