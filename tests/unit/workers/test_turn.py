"""The turn: a worker above its share leaves a connection for a moment to the others, and never for good."""

from __future__ import annotations

import random

from headgate.workers.board import LEAVE_S, Turn


def test_a_worker_alone_takes_every_connection_at_once() -> None:
    """Nobody else could."""
    assert [Turn().leave_s(count, [count]) for count in (0, 10, 10_000)] == [0, 0, 0]


def test_few_connections_are_not_balanced() -> None:
    """A moment for each would cost more than it is worth."""
    assert Turn().leave_s(5, [5, 0]) == 0


def test_a_worker_above_its_share_leaves_one_moment_and_takes_what_nobody_has_taken() -> None:
    """So a blocked sibling costs a moment for each connection, and never the connection."""
    turn = Turn()
    assert [turn.leave_s(100, [100, 0]) for _ in range(4)] == [LEAVE_S, 0, LEAVE_S, 0]


def test_a_worker_below_its_share_takes_at_once() -> None:
    """It is for this one that the others wait."""
    assert Turn().leave_s(10, [10, 100]) == 0


def test_no_worker_gets_above_its_share_when_one_is_always_the_first_to_be_asked() -> None:
    """5,000 connections, four workers; the first worker is woken first each time, as an inherited listener may do."""
    random.seed(5)
    counts, turns = [0] * 4, [Turn() for _ in range(4)]
    for _ in range(5000):
        order = [0, *random.sample([1, 2, 3], 3)]
        taker = next((each for each in order if not turns[each].leave_s(counts[each], counts)), 0)
        counts[taker] += 1
    assert sum(counts) == 5000
    assert max(counts) <= 1.2 * 5000 / 4
