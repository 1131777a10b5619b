"""Topics and times of the log, remembered: one reading of Redis for all clients, and only so much of it."""

from collections.abc import Callable
from typing import cast

from headgate.delivery.replay_start import TOPIC_PAGE_OFFSETS, LogTopics
from headgate.redis.log import EventLog


class FakeLog:
    """A log in memory: every even offset up to `last` holds an event of that time."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.asked: list[tuple[int, int]] = []
        self.during: Callable[[], None] = lambda: None

    def topics(self, after: int, upto: int) -> list[tuple[int, str, int]]:
        self.asked.append((after, upto))
        self.during()
        return [(offset, "a", offset) for offset in range(after + 1, min(upto, self.last) + 1) if not offset % 2]


def page(topics: LogTopics, log: FakeLog, number: int) -> list[int]:
    """Read a page up to the log's end; return its times."""
    return topics.read(number, log.last, cast(EventLog, log)).times_ms


def test_a_page_is_read_once() -> None:
    """Holes included."""
    topics, log = LogTopics(), FakeLog(250)
    assert topics.known(0, 250) is None
    assert page(topics, log, 0) == [0, 2] + [n if not n % 2 else 0 for n in range(3, 101)]
    assert page(topics, log, 0) == page(topics, log, 0)
    assert log.asked == [(0, 100)]
    assert topics.known(0, 250) is not None


def test_of_a_page_at_the_logs_end_only_what_is_new_is_read() -> None:
    """Up to where the log is, and on from there."""
    topics, log = LogTopics(), FakeLog(3)
    assert page(topics, log, 0) == [0, 2, 0]
    log.last = 6
    assert topics.known(0, 6) is None
    assert page(topics, log, 0) == [0, 2, 0, 4, 0, 6]
    assert log.asked == [(0, 3), (3, 6)]


def test_only_so_many_pages_are_remembered() -> None:
    """The one unused for longest goes first."""
    topics, log = LogTopics(max_pages=2), FakeLog(3 * TOPIC_PAGE_OFFSETS)
    for number in (0, 1, 0, 2):
        page(topics, log, number)
    assert [topics.known(number, log.last) is not None for number in range(3)] == [True, False, True]


def test_of_a_log_that_has_lost_its_end_only_what_lies_above_is_read_again() -> None:
    """There it may hold other events."""
    topics, log = LogTopics(), FakeLog(250)
    for number in range(3):
        page(topics, log, number)
    log.asked.clear()
    topics.cut(150)
    for number in range(3):
        assert len(page(topics, log, number)) == (50 if number == 2 else 100)
    assert log.asked == [(150, 200), (200, 250)]


def test_entries_read_while_the_log_loses_its_end_go_into_no_page_that_is_kept() -> None:
    """The read adds to a partly known page."""
    topics, log = LogTopics(), FakeLog(30)
    page(topics, log, 0)
    log.last = 60
    log.during = lambda: topics.cut(20)
    page(topics, log, 0)
    log.during = lambda: None
    assert topics.known(0, 21) is None
    assert topics.known(0, 20) is not None
    page(topics, log, 0)
    assert log.asked == [(0, 30), (30, 60), (20, 60)]


def test_pages_of_a_log_that_was_lost_meanwhile_are_not_remembered() -> None:
    """Its offsets are other events now."""
    topics, log = LogTopics(), FakeLog(10)
    log.during = lambda: topics.cut(0)
    page(topics, log, 0)
    assert topics.known(0, 10) is None
