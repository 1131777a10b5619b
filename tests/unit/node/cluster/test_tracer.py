"""The tracer: tallies go to Redis once a second and at the end, and a fault costs nothing else."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.delivery.tally import Tallies
from headgate.node.cluster.tracer import EVERY_S, Tracer
from headgate.node.namespace import Namespace
from headgate.redis.loads import process_name
from headgate.redis.traces import read
from headgate.runtime import periodic as rounds
from tests.support.loop_clock import LoopClock
from tests.support.small_redis import SmallRedis


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    clock = LoopClock()
    monkeypatch.setattr(rounds, "Signal", clock.signal)
    return clock


def namespace(every: int = 1) -> Any:
    return SimpleNamespace(tallies=Tallies(every, lambda: "e1"), traced=None)


@pytest.fixture
def traced(server: SmallRedis, clock: LoopClock) -> Iterator[tuple[Tracer, Any]]:
    here = namespace()
    tracer = Tracer(server.client(), {"n": cast(Namespace, here)})
    tracer.start()
    tracer.start()
    gevent.idle(-2)
    yield tracer, here
    tracer.close()
    gevent.idle(-2)


def test_changes_are_told_each_second_and_at_the_end(traced: tuple[Tracer, Any], clock: LoopClock, server: SmallRedis) -> None:
    """Under the name of this process."""
    tracer, here = traced
    here.tallies.of(7).matched = 3
    clock.advance(EVERY_S)
    assert read(server.client(), "n", "e1", 7)[process_name()][:2] == [3, 3]
    server.asked.clear()
    clock.advance(EVERY_S)
    assert server.asked == []
    here.tallies.of(7).from_log += 1
    tracer.close()
    tracer.close()
    assert read(server.client(), "n", "e1", 7)[process_name()][-1] == 1


def test_faults_cost_a_hint_and_nothing_else(traced: tuple[Tracer, Any], clock: LoopClock, server: SmallRedis) -> None:
    """Redis unreachable. The bus reports that, and they come later. Our own fault is logged whole, and tracing goes on."""
    _, here = traced
    server.up = False
    here.tallies.of(1)
    with capture_logs() as lines:
        clock.advance(EVERY_S)
    assert lines == []
    server.up = True
    clock.advance(EVERY_S)
    assert read(server.client(), "n", "e1", 1)
    tallies, here.tallies = here.tallies, None
    with capture_logs() as lines:
        clock.advance(EVERY_S)
    assert [line["event"] for line in lines] == ["tracing failed"]
    here.tallies = tallies
    here.tallies.of(2)
    clock.advance(EVERY_S)
    assert read(server.client(), "n", "e1", 2)


def test_where_nothing_is_traced_nothing_runs(server: SmallRedis, clock: LoopClock) -> None:
    """Nor is Redis asked."""
    tracer = Tracer(server.client(), {"n": cast(Namespace, namespace(0))})
    tracer.start()
    clock.advance(3 * EVERY_S)
    tracer.close()
    assert server.asked == []
