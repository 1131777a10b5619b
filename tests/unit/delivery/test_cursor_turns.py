"""Which client is sent its position next: by the clock, spread, and sooner only where the log would pass a client's place."""

from collections import Counter
from itertools import pairwise
from math import inf

import pytest

from headgate.delivery.live_feed import CURSOR_INTERVAL_S, CURSOR_SLOTS, cursor_turns

FENCE_S = 1.0


def turns_of(seconds: float, events_per_s: float, retained: float, every_s: float = FENCE_S) -> list[tuple[float, int, set[int]]]:
    """Return the turns of a namespace: when, at which offset, and which slots."""
    due = cursor_turns(0.0)
    found = []
    for step in range(1, int(seconds / every_s) + 1):
        now_s = step * every_s
        found.append((now_s, int(now_s * events_per_s), due(now_s, int(now_s * events_per_s), retained)))
    return found


@pytest.mark.parametrize("events_per_s", [0, 4000, 20_000])
@pytest.mark.parametrize("every_s", [0.05, 0.7, 1.0, 3.0])
def test_a_client_is_told_once_in_ten_seconds_whatever_the_rate(events_per_s: float, every_s: float) -> None:
    """As long as the log holds enough: 5,000 clients got 19,800 cursors in four seconds at 4,000 events per second."""
    turns = turns_of(60, events_per_s, retained=40 * max(events_per_s, 1), every_s=every_s)
    for slot in range(CURSOR_SLOTS):
        told_s = [now_s for now_s, _, slots in turns if slot in slots]
        assert len(told_s) >= 60 // (CURSOR_INTERVAL_S + every_s) - 1
        assert all(later - earlier >= CURSOR_INTERVAL_S - 1e-9 for earlier, later in pairwise(told_s))


def test_not_all_clients_are_told_at_once() -> None:
    """Phones would wake together, and events wait for thousands of writes."""
    for _, _, slots in turns_of(60, 100, inf):
        assert len(slots) <= 2
    clients = Counter(hash(f"session {number}") % CURSOR_SLOTS for number in range(5000))
    assert len(clients) == CURSOR_SLOTS
    assert max(clients.values()) < 2 * 5000 / CURSOR_SLOTS


@pytest.mark.parametrize("retained", [100, 10_000, 79_000])
def test_no_place_is_older_than_half_of_what_the_log_retains_and_the_events_between_two_fences(retained: int) -> None:
    """A busy log passes a place in less than ten seconds, so its client is notified sooner."""
    per_s = 4000
    turns = turns_of(60, per_s, retained)
    for slot in range(CURSOR_SLOTS):
        told = [offset for _, offset, slots in turns if slot in slots]
        assert all(later - earlier <= retained / 2 + per_s * FENCE_S for earlier, later in pairwise(told))


def test_a_log_that_has_lost_its_end_delays_nobody() -> None:
    """Offsets that come once more count from there."""
    due = cursor_turns(0.0)
    assert due(10, 5000, 1000) == set(range(CURSOR_SLOTS))
    assert due(11, 100, 1000) == set()
    assert due(12, 600, 1000) == set(range(CURSOR_SLOTS))
