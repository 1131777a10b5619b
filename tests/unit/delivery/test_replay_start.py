"""Where a past begins: the same events as by going through the whole log for each pattern, out of one reading for all."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.replay_start import TOPIC_PAGE_OFFSETS, TopicPage, find_starts, page_of
from headgate.events.topic import matches
from headgate.events.wire.requests import Since

TOPICS = ["a", "a.b", "b", "b.a.b"]
PATTERNS = ["a", "#", "*", "a.#", "#.b", "c"]


@dataclass
class Log:
    """A log: at offsets 1, 2, … a topic and a time (0: none), or nothing. `reads` counts how often each page is asked for."""

    first: int
    entries: list[tuple[str, int] | None]

    def __post_init__(self) -> None:
        self.reads: Counter[int] = Counter()

    @property
    def last(self) -> int:
        return len(self.entries)

    def read(self, number: int) -> TopicPage:
        assert page_of(self.first) <= number <= page_of(self.last)
        self.reads[number] += 1
        begin = number * TOPIC_PAGE_OFFSETS
        held = [
            entry if offset >= self.first else None
            for offset, entry in enumerate(self.entries[begin : begin + TOPIC_PAGE_OFFSETS], begin + 1)
        ]
        return TopicPage(begin + 1, [entry and entry[0] for entry in held], [entry[1] if entry else 0 for entry in held])

    def events(self, pattern: str) -> list[tuple[int, int]]:
        """Return offset and time of all that a pattern matches."""
        held = [(offset, entry) for offset, entry in enumerate(self.entries, 1) if entry and offset >= self.first]
        return [(offset, entry[1]) for offset, entry in held if matches(pattern, entry[0])]

    def starts(self, *wanted: tuple[str, Since]) -> list[int]:
        return find_starts(wanted, self.first, self.last, self.read, lambda: None)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log of up to some hundred positions, in runs of the same kind: pages that hold nothing are among them."""
    entries: list[tuple[str, int] | None] = []
    time = 1
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from([*TOPICS, "hole", "timeless"]))
        for _ in range(draw(st.sampled_from([1, 2, 7, 60, 150]))):
            time += draw(st.integers(0, 1))
            entries.append(None if kind == "hole" else ("a", 0) if kind == "timeless" else (kind, time))
    return Log(draw(st.integers(1, len(entries) + 1)), entries)


sinces = st.one_of(
    st.builds(Since, last=st.sampled_from([1, 2, 5, 100, 1000])),
    st.builds(Since, time_ms=st.integers(0, 400)),
    st.builds(Since, offset=st.integers(0, 1000)),
)


@settings(deadline=None)
@given(logs(), st.lists(st.tuples(st.sampled_from(PATTERNS), sinces), min_size=1, max_size=8))
def test_each_past_holds_exactly_what_was_asked_for(log: Log, wanted: list[tuple[str, Since]]) -> None:
    """Other patterns of the same request change nothing; a pattern may come twice."""
    for (pattern, since), start in zip(wanted, log.starts(*wanted), strict=True):
        events = log.events(pattern)
        told = [offset for offset, _ in events if offset > start]
        if since.last is not None:
            assert told == [offset for offset, _ in events][-since.last :]
        elif since.offset is not None:
            assert told == [offset for offset, _ in events if offset > since.offset]
        else:
            times = dict(events)
            assert set(told) >= {offset for offset, time in events if time >= (since.time_ms or 0) and time}
            assert all(times[offset] == 0 or times[offset] >= (since.time_ms or 0) for offset in told)


@settings(deadline=None)
@given(
    logs(), st.lists(st.tuples(st.sampled_from(PATTERNS), st.builds(Since, last=st.integers(1, 1000))), min_size=1, max_size=128)
)
def test_the_log_is_read_once_for_all_patterns(log: Log, wanted: list[tuple[str, Since]]) -> None:
    """No page twice, and none that is not needed."""
    starts = log.starts(*wanted)
    assert set(log.reads.values()) <= {1}
    if all(len(log.events(pattern)) >= (since.last or 0) for pattern, since in wanted):
        assert all(number >= page_of(min(starts) + 1) for number in log.reads)


def test_a_past_that_holds_nothing_begins_at_the_end() -> None:
    """No client has to read the log only to learn that there is nothing."""
    assert Log(1, [("a", 1)] * 500).starts(("b", Since(last=1000))) == [500]


def test_many_times_are_looked_for_in_few_pages() -> None:
    """Of 100 pages, 128 different times need each at most once for every step of a search."""
    log = Log(1, [("a", offset) for offset in range(1, 10_001)])
    times = [("a", Since(time_ms=number * 78)) for number in range(1, 129)]
    assert log.starts(*times) == [number * 78 - 1 for number in range(1, 129)]
    assert set(log.reads) <= set(range(100))


def test_others_have_their_turn_while_the_log_is_gone_through() -> None:
    """At least once for every eight events."""
    log, pauses = Log(1, [("a", 1)] * 1000), 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1

    find_starts([("b", Since(last=1))], 1, 1000, log.read, pause)
    assert pauses >= 1000 // 8
