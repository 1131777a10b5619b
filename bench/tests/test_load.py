"""The load generator against the C sink: it counts everything, and its latency counts from the planned time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from bench import generator
from bench.child import Failed
from bench.stage import Stage, stage
from bench.variants import VARIANTS

CLIENTS = 20


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    generator.build()


@pytest.fixture
def on() -> Iterator[Stage]:
    """A sink with twenty clients."""
    with stage(VARIANTS["sink"], size_bytes=256, room=100) as found:
        found.generator.connects(CLIENTS)
        yield found


def test_open_schedule_counts_every_delivery_once(on: Stage) -> None:
    """What was published, times the clients, is what was delivered; each is in the histogram."""
    answer = on.generator.ask("open", 200, 500, takes_s=1)
    assert answer["outcome"] == "ok"
    assert answer["published"] == 100
    assert answer["deliveries"] == answer["microseconds"]["count"] == 100 * CLIENTS
    assert (answer["missing"], answer["late"], answer["undelivered"]) == (0, 0, 0)


def test_latency_counts_from_the_planned_time_while_the_server_stands_still(on: Stage) -> None:
    """Events due while the server is stopped wait as long as it was: no coordinated omission."""
    os.kill(on.server.pid, signal.SIGSTOP)
    on.generator.tell("open", 100, 1000)
    with pytest.raises(Failed):
        on.generator.answer(takes_s=1.2 - generator.ANSWER_MARGIN_S)
    os.kill(on.server.pid, signal.SIGCONT)
    answer = on.generator.answer(takes_s=1)
    shares = dict(answer["microseconds"]["distribution"])
    assert answer["deliveries"] == 100 * CLIENTS
    assert answer["microseconds"]["max"] >= 1_000_000
    # They were due over one second, evenly, so half of them waited at least until half of it was over.
    assert shares[50] >= 500_000


def test_window_keeps_no_more_events_under_way_than_asked(on: Stage) -> None:
    """With the server stopped, exactly one window is published; after it goes on, all of it arrives."""
    os.kill(on.server.pid, signal.SIGSTOP)
    on.generator.tell("window", 8, 0, 300)
    with pytest.raises(Failed):
        on.generator.answer(takes_s=0.5 - generator.ANSWER_MARGIN_S)
    os.kill(on.server.pid, signal.SIGCONT)
    answer = on.generator.answer(takes_s=1)
    assert answer["published"] == 8
    assert answer["undelivered"] == 0


def test_a_stopped_client_is_not_waited_for_and_catches_up(on: Stage) -> None:
    """The others' run ends well; what the stopped one was owed is counted apart once it reads again."""
    on.generator.ask("stall", 1)
    answer = on.generator.ask("open", 100, 200, takes_s=1)
    assert answer["outcome"] == "ok"
    assert answer["deliveries"] == 20 * (CLIENTS - 1)
    assert on.generator.ask("unstall", 500, takes_s=1)["caught_up"] == 20


def test_a_server_that_dies_is_reported_not_waited_for(on: Stage) -> None:
    """Every client's end is counted, and the run ends."""
    on.server.process.kill()
    answer = on.generator.ask("open", 50, 200, takes_s=1)
    assert answer["closed"] == CLIENTS
    assert answer["clients"] == 0


def test_clients_that_cannot_connect_fail_with_the_reason() -> None:
    """A refused connection names why."""
    with stage(VARIANTS["sink"], size_bytes=256, room=10) as found:
        found.server.process.kill()
        found.server.process.wait()
        with pytest.raises(Failed, match="refused"):
            found.generator.connects(3)
