"""The keeper of the private Redis, on a server that dies when the test says so, and on a clock of the test's own."""

from typing import cast

from headgate.cli.children import FIRST_PAUSE_S, LAST_PAUSE_S, POLL_S, STEADY_S, RedisKeeper
from headgate.errors import BusUnavailable
from headgate.redis.embedded import EmbeddedRedis
from headgate.runtime.loop import Signal, sleep, spawn


class DyingServer:
    """A server that dies, and that starts again as often as it may."""

    def __init__(self) -> None:
        self.is_running = True
        self.starts = 0
        self.may_start = True
        self._ended = Signal()

    def die(self) -> None:
        self.is_running = False
        self._ended.set()

    def wait(self) -> None:
        self._ended.wait()

    def start_again(self) -> None:
        self.starts += 1
        if not self.may_start:
            raise BusUnavailable("the private Redis died at its start: no space left")
        self.is_running = True
        self._ended.clear()

    def last_words(self) -> str:
        return "Out Of Memory"


class Clock:
    """Seconds that pass during a wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


def kept() -> tuple[DyingServer, Clock, RedisKeeper]:
    """Return a server, a clock and the keeper."""
    server, clock = DyingServer(), Clock()
    return server, clock, RedisKeeper(cast(EmbeddedRedis, server), clock.wait, lambda: clock.now_s)


def test_a_server_that_has_died_is_started_again() -> None:
    """Once, after a moment. One that runs is left alone."""
    server, clock, keeper = kept()
    keeper.check()
    assert (server.starts, clock.waits) == (0, [])
    server.is_running = False
    keeper.check()
    keeper.check()
    assert (server.is_running, server.starts, clock.waits) == (True, 1, [FIRST_PAUSE_S])


def test_a_server_that_cannot_start_is_tried_ever_more_seldom() -> None:
    """Up to a longest pause; and it is started when it can be."""
    server, clock, keeper = kept()
    server.is_running = server.may_start = False
    for _ in range(12):
        keeper.check()
    assert clock.waits[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert clock.waits[-1] == LAST_PAUSE_S
    server.may_start = True
    keeper.check()
    assert server.is_running


def test_a_server_that_has_run_for_a_while_is_started_at_once_again() -> None:
    """The earlier trouble is over. A server that dies soon after its start keeps its longer pause."""
    server, clock, keeper = kept()
    for _ in range(4):
        server.is_running = False
        keeper.check()
    assert clock.waits[-1] == 8 * FIRST_PAUSE_S
    clock.now_s += STEADY_S
    server.is_running = False
    keeper.check()
    assert clock.waits[-1] == FIRST_PAUSE_S


def test_an_idle_keeper_sleeps_until_the_server_ends() -> None:
    """To look now and then would wake an idle process."""
    server, clock, keeper = kept()
    keeping = spawn(keeper.keep)
    for _ in range(10):
        sleep()
    assert clock.waits == []
    server.die()
    while not server.starts:
        sleep()
    keeping.kill()
    assert (server.is_running, clock.waits) == (True, [POLL_S, FIRST_PAUSE_S])
