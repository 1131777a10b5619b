"""Alert rules: when they fire, when they are over, and what a pause, a jump or a crash does to them."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.consumers.monitoring.alerts import (
    MAX_WINDOW_S,
    PAUSE_MS,
    Record,
    Rule,
    bucket,
    bucket_width_s,
    judge,
    notified,
    window_buckets,
)

T = 1_790_000_000_000
FIRING, RESOLVED = True, False


def rate(above: int = 10, window_s: int = 60, for_s: int = 0, **more: Any) -> Rule:
    return Rule(name="a", pattern="x.#", kind="rate", above=above, window_s=window_s, for_s=for_s, **more)


def absence(window_s: int = 60, for_s: int = 0) -> Rule:
    return Rule(name="a", pattern="x.#", kind="absence", window_s=window_s, for_s=for_s)


def run(rule: Rule, steps: list[tuple[float, int]]) -> list[tuple[float, bool]]:
    """Judge (second, count) one after the other, each notice notified at once; return (second, firing) of each."""
    record, notices = None, []
    for at_s, count in steps:
        record = judge(rule, record, T + round(at_s * 1000), count)
        if record.notice is not None:
            notices.append((at_s, record.firing))
            record = notified(record)
    return notices


@pytest.mark.parametrize(
    ("rule", "steps", "notices"),
    [
        pytest.param(rate(), [(0, 10), (1, 10)], [], id="the limit itself is allowed"),
        pytest.param(rate(), [(0, 11)], [(0, FIRING)], id="above it fires at once without for_s"),
        pytest.param(rate(), [(0, 11), (1, 11), (2, 99)], [(0, FIRING)], id="it fires once"),
        pytest.param(rate(), [(0, 11), (1, 10)], [(0, FIRING), (1, RESOLVED)], id="it is over at once without for_s"),
        pytest.param(rate(for_s=5), [(0, 11), (4.999, 11)], [], id="not before for_s"),
        pytest.param(rate(for_s=5), [(0, 11), (5, 11)], [(5, FIRING)], id="after for_s"),
        pytest.param(rate(for_s=5), [(0, 11), (3, 0), (4, 11), (8, 11)], [], id="an interruption starts for_s again"),
        pytest.param(rate(for_s=5), [(0, 11), (3, 0), (4, 11), (9, 11)], [(9, FIRING)], id="and it fires for_s after that"),
        pytest.param(rate(for_s=5), [(0, 11), (5, 11), (6, 0), (10, 0)], [(5, FIRING)], id="not over before for_s"),
        pytest.param(rate(for_s=5), [(0, 11), (5, 11), (6, 0), (11, 0)], [(5, FIRING), (11, RESOLVED)], id="over after for_s"),
        pytest.param(
            rate(for_s=5), [(0, 11), (5, 11), (6, 0), (8, 11), (9, 0), (13, 0)], [(5, FIRING)], id="flapping does not end it"
        ),
        pytest.param(rate(repeat_s=10), [(s, 11) for s in range(25)], [(0, FIRING), (10, FIRING), (20, FIRING)], id="repeats"),
        pytest.param(rate(repeat_s=10), [(0, 11), (9, 0), (20, 0)], [(0, FIRING), (9, RESOLVED)], id="no repeat when over"),
        pytest.param(absence(), [(0, 0), (59, 0)], [], id="silence is measured from the start"),
        pytest.param(absence(), [(0, 0), (30, 0), (60, 0)], [(60, FIRING)], id="a whole window of silence fires"),
        pytest.param(absence(), [(0, 1), (59, 1), (60, 1), (61, 0)], [(61, FIRING)], id="the count of the window decides"),
        pytest.param(absence(), [(0, 0), (60, 0), (61, 1)], [(60, FIRING), (61, RESOLVED)], id="one event ends it"),
        pytest.param(absence(for_s=5), [(0, 0), (60, 0), (64, 0), (65, 1)], [], id="absence waits for for_s too"),
        pytest.param(absence(for_s=5), [(0, 0), (60, 0), (65, 0)], [(65, FIRING)], id="absence after for_s"),
        pytest.param(rate(for_s=100), [(0, 11), (61, 11), (99, 11), (160, 11)], [], id="unwatched for a window, it starts again"),
        pytest.param(rate(for_s=100), [(0, 11), (60, 11), (100, 11)], [(100, FIRING)], id="a pause of a window is bridged"),
        pytest.param(rate(for_s=5), [(0, 11), (3600, 11), (3604, 11)], [], id="a clock that jumps ahead fires nothing"),
        pytest.param(
            rate(for_s=5), [(0, 11), (-3600, 11), (-3594, 11)], [(-3594, FIRING)], id="nor one that jumps back, at once"
        ),
        pytest.param(absence(), [(0, 9), (3600, 0), (3630, 0), (3659, 0)], [], id="a jump ahead is no silence"),
        pytest.param(absence(), [(0, 9), (3600, 0), (3630, 0), (3660, 0)], [(3660, FIRING)], id="silence after a jump is"),
        pytest.param(absence(), [(0, 0), (60, 0), (3660, 0), (3700, 0)], [(60, FIRING)], id="a pause does not end an absence"),
    ],
)
def test_notices(rule: Rule, steps: list[tuple[float, int]], notices: list[tuple[float, bool]]) -> None:
    """The notices and their times."""
    assert run(rule, steps) == notices


def test_a_repeat_is_told_as_one() -> None:
    """With its own number, and the same `since`."""
    rule = rate(repeat_s=10)
    record = notified(judge(rule, None, T, 11))
    record = judge(rule, record, T + 10_000, 12)
    assert record.notice is not None
    assert (record.number, record.repeats, record.since_ms) == (2, 1, T)


@pytest.mark.parametrize("window_s", [1, 59, 60, 61, 120, 121, 3600, MAX_WINDOW_S])
def test_a_window_has_few_buckets_and_covers_all_of_itself(window_s: int) -> None:
    """At most 61; from the first millisecond of the window to the last, and no more than one bucket beyond."""
    width_ms = bucket_width_s(window_s) * 1000
    for at_ms in (T, T + 1, T + width_ms - 1):
        buckets = window_buckets(window_s, at_ms)
        assert len(buckets) <= 61
        assert bucket(window_s, at_ms - window_s * 1000) in buckets
        assert bucket(window_s, at_ms) in buckets
        assert bucket(window_s, at_ms - window_s * 1000 - width_ms) not in buckets
        assert bucket(window_s, at_ms + width_ms) not in buckets


rules = st.builds(
    Rule,
    name=st.just("a"),
    pattern=st.just("x.#"),
    kind=st.sampled_from(["rate", "absence"]),
    above=st.integers(0, 3),
    window_s=st.integers(1, 60),
    for_s=st.integers(0, 20),
    repeat_s=st.sampled_from([0, 0, 7]),
)
# Also a step of nothing: two instances may judge within one millisecond.
steps = st.lists(
    st.tuples(st.one_of(st.integers(0, 30_000), st.integers(-4_000_000, 4_000_000)), st.integers(0, 5), st.booleans()),
    max_size=60,
)


def last_run(seen: list[tuple[int, bool]], so: bool) -> list[int]:
    """Return the times, newest first, since which it has always been `so`."""
    times: list[int] = []
    for when, alarming in reversed(seen):
        if alarming != so:
            break
        times.append(when)
    return times


@given(rules, steps)
@example(rate(above=0, window_s=1), [(0, 0, False), (0, 1, False)])
def test_notices_alternate_and_each_is_justified(rule: Rule, steps: list[tuple[int, int, bool]]) -> None:
    """Against a plain reading of the rule: at any pace, with pauses, jumps, and notices that are notified late or at once.

    Never firing twice without an end between (but for numbered repeats), and never before for_s without a pause in it.
    """
    record: Record | None = None
    at_ms, firing = T, False
    numbers: list[int] = []
    seen: list[tuple[int, bool]] = []  # (when, whether the count was alarming), since the last pause
    for step_ms, count, tell in steps:
        before, at_ms = record, at_ms + step_ms
        record = judge(rule, record, at_ms, count)
        if before is not None and before.notice is not None:
            assert record is before
        else:
            pause_ms = max(rule.window_s * 1000, PAUSE_MS)
            if before and not 0 <= at_ms - before.judged_ms <= pause_ms:
                seen.clear()
            seen.append((at_ms, count > rule.above if rule.kind == "rate" else count == 0))
            if record.notice is not None and record.firing == firing:
                assert firing
                assert record.repeats
            elif record.notice is not None:
                firing = record.firing
                held = last_run(seen, firing)
                assert at_ms - record.since_ms >= rule.for_s * 1000
                if rule.kind == "absence" and firing:  # not before a whole window was seen
                    assert record.since_ms in held
                    assert at_ms - seen[0][0] >= rule.window_s * 1000
                else:
                    assert record.since_ms == held[-1]
        if record.notice is not None and (not numbers or record.number != numbers[-1]):
            numbers.append(record.number)
        if tell:
            record = notified(record)
    assert numbers == list(range(1, len(numbers) + 1))
