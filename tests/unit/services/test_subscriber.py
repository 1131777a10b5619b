"""The subscriber without a Redis: its arguments, random histories of its log, and its patience."""

import random
from collections.abc import Callable
from datetime import datetime
from threading import Thread, current_thread
from typing import Any
from unittest.mock import Mock

import pytest

from headgate import BusUnavailable, InvalidPattern, InvalidRequest, Subscriber, UnknownNamespace
from headgate.redis.lineage import Entry, Head
from headgate.services.subscriber import EXPECTED_SINCE, _DaemonThread
from tests.support import event_loop
from tests.support.model_log import PAGE, WANTED, Beliefs, ModelLog, happen, random_step

NOWHERE = "unix:///nonexistent/no.sock"
EPOCH = "0123456789abcdef"
NO_CURSORS: list[Any] = ["", "now", "1", "0123:5", EPOCH, f"{EPOCH}:", f"{EPOCH}:-1", -1, 1.5, True, b"1"]
NO_CURSORS += [{}, {"epoch": EPOCH}, {"epoch": EPOCH, "offset": "x"}, datetime.fromisoformat("2026-01-01")]
HISTORIES = 60


class LogInRedis:
    """The log that subscribers read in place of `EventLog`; it cannot be reached now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.model = ModelLog()
        self.failures = 0
        self._rng = rng

    def head(self, *known: str | int) -> Head:
        if self._rng.random() < 0.1:
            self.failures += 1
            raise BusUnavailable("it is restarting")
        return self.model.head()

    def page(self, after: int, upto: int, *, epoch: str, wanted: Callable[[str], bool]) -> list[Entry]:
        return self.model.wanted_page(after, upto, epoch, wanted)


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_that_begins_again_at_its_cursor_misses_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over crashes of the reader, of Redis, lost ends and trims, its events are the log, or a gap has the missing ones."""
    rng = random.Random(seed)
    for name, value in (("PAGE_EVENTS", PAGE), ("FIRST_PAUSE_S", 0.0)):
        monkeypatch.setattr(f"headgate.services.subscriber.{name}", value)

    for _ in range(HISTORIES):
        log = LogInRedis(rng)
        monkeypatch.setattr("headgate.services.subscriber.EventLog", lambda *_, log=log, reached: log)
        reader = Subscriber(NOWHERE, "a.#", since=0, wait_s=0)
        beliefs = Beliefs(0)
        for _ in range(rng.randrange(80)):
            name, count = random_step(rng)
            happen(log.model, name, count)
            if name == "read":
                for _ in range(count):
                    if (item := next(reader, None)) is not None:
                        beliefs.believe(item)
                if rng.random() < 0.3:  # it crashes, and has stored its cursor
                    reader = Subscriber(NOWHERE, "a.#", since=reader.cursor or 0, wait_s=0)
        log.model.add(WANTED)  # a process without its end shows it with its next event
        for item in reader:
            beliefs.believe(item)

        beliefs.check(log.model)
        assert reader.cursor == f"{log.model.head().epoch}:{log.model.offset}"


def test_all_pages_of_an_async_for_are_read_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each would cost more than most pages."""
    monkeypatch.setattr("headgate.services.subscriber.PAGE_EVENTS", PAGE)
    log, threads = ModelLog(), set[Thread]()
    for _ in range(5 * PAGE):
        log.add(WANTED)

    class Read(LogInRedis):
        def page(self, after: int, upto: int, *, epoch: str, wanted: Callable[[str], bool]) -> list[Entry]:
            threads.add(current_thread())
            return log.wanted_page(after, upto, epoch, wanted)

    reading = Read(random.Random(0))
    reading.model = log
    monkeypatch.setattr("headgate.services.subscriber.EventLog", lambda *_, reached: reading)

    async def read() -> int:
        return len([item async for item in Subscriber(NOWHERE, "#", since=0, wait_s=0)])

    assert event_loop.run(read()) == 5 * PAGE
    assert len(threads) == 1


def test_an_idle_thread_ends_and_work_that_comes_later_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception ends neither."""
    monkeypatch.setattr("headgate.services.subscriber.THREAD_REST_S", 0.01)
    daemon, threads = _DaemonThread(), list[Thread]()

    def work() -> bool:
        threads.append(current_thread())
        raise ValueError

    for _ in range(2):
        assert isinstance(daemon.run(work).exception(30), ValueError)
        threads[-1].join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_work_is_done_once_threads_can_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system had no more of them. What failed then is not done later."""
    daemon, refused = _DaemonThread(), Mock()
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError):
            daemon.run(refused)
    assert daemon.run(Mock(return_value=True)).result(30)
    refused.assert_not_called()


def test_it_is_patient_as_long_as_it_is_asked_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it raises, each time that it is asked."""
    monkeypatch.setattr("headgate.services.subscriber.FIRST_PAUSE_S", 0.0)
    reader = Subscriber(NOWHERE, "a.#", since="oldest", wait_s=0, patience_s=0)
    for _ in range(2):
        with pytest.raises(BusUnavailable, match="nonexistent"):
            next(reader)


def test_a_closed_subscriber_is_at_its_end() -> None:
    """Whatever else it would have had to do, and as often as it is closed."""
    reader = Subscriber(NOWHERE, "a")
    reader.close()
    reader.close()

    assert list(reader) == []
    assert reader.cursor is None


@pytest.mark.parametrize("since", NO_CURSORS, ids=repr)
def test_garbage_is_no_cursor(since: Any) -> None:
    """One error, before Redis is asked, that names the value and the allowed ones."""
    with pytest.raises(InvalidRequest) as caught:
        Subscriber(NOWHERE, "a", since=since)

    assert caught.value.message.endswith(f"since={since!r}: expected {EXPECTED_SINCE}")


def test_other_arguments_are_checked_too() -> None:
    for patterns in ((), ("a..b",), ("a", "b.*c"), ("a",) * 101):
        with pytest.raises(InvalidPattern):
            Subscriber(NOWHERE, *patterns)
    with pytest.raises(UnknownNamespace):
        Subscriber(NOWHERE, "a", namespace="no name")
    options: list[dict[str, Any]] = [{"wait_s": -1}, {"wait_s": float("nan")}, {"patience_s": "1"}, {"wait_s": True}]
    for option in options:
        with pytest.raises(InvalidRequest, match="expected 0 to 1e"):
            Subscriber(NOWHERE, "a", **option)
