"""The keeper of the private Redis, on a server that dies when the test says so, and on a clock of the test's own."""

from contextlib import suppress
from typing import cast

from gevent import GreenletExit

from headgate.cli.children import FIRST_PAUSE_S, LAST_PAUSE_S, POLL_S, STEADY_S, keep
from headgate.errors import BusUnavailable
from headgate.redis.embedded import EmbeddedRedis


class World:
    """A server that dies after each of its `lives_s`, after which the keeper is killed, and a clock that stands otherwise."""

    def __init__(self, *lives_s: float, refused_starts: int = 0, starts_itself: bool = False) -> None:
        self.lives_s, self.refused_starts, self.starts_itself = list(lives_s), refused_starts, starts_itself
        self.now_s = 0.0
        self.waits: list[float] = []
        self.starts = 0
        self.is_running = True
        with suppress(GreenletExit):
            keep(cast(EmbeddedRedis, self), self.waits.append, lambda: self.now_s)

    @property
    def pauses(self) -> list[float]:
        return self.waits[1::2]

    def wait(self) -> None:
        if not self.lives_s:
            raise GreenletExit
        self.now_s += self.lives_s.pop(0)
        self.is_running = self.starts_itself

    def start_again(self) -> None:
        self.starts += 1
        if self.starts <= self.refused_starts:
            raise BusUnavailable("the private Redis died at its start: no space left")
        self.is_running = True

    def last_words(self) -> str:
        return "Out Of Memory"


def test_a_server_that_has_died_is_started_again() -> None:
    """Once, after a moment. The keeper of one that runs waits for its end, and wakes nobody."""
    world = World(1.0)
    assert (world.is_running, world.starts, world.waits) == (True, 1, [POLL_S, FIRST_PAUSE_S])


def test_a_server_that_starts_by_itself_is_left_alone() -> None:
    world = World(1.0, starts_itself=True)
    assert (world.starts, world.waits) == (0, [POLL_S])


def test_a_server_that_cannot_start_is_tried_ever_more_seldom() -> None:
    world = World(1.0, *[0.0] * 12, refused_starts=12)
    assert world.pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert (world.pauses[-1], world.is_running) == (LAST_PAUSE_S, True)


def test_a_server_that_has_run_for_a_while_is_started_at_once_again() -> None:
    """The earlier trouble is over. A server that dies soon after its start keeps its longer pause."""
    pauses = World(0.0, 0.0, 0.0, 0.0, STEADY_S).pauses
    assert pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S, FIRST_PAUSE_S]
