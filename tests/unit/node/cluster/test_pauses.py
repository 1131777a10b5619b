"""Pauses: refused while they last, with a time to come back after. On a clock of the test's own; no Redis answers here."""

import math
from random import Random

import pytest
from structlog.testing import capture_logs

from headgate.errors import Paused
from headgate.node.cluster.pauses import CHECK_EVERY_S, GAP_S, RETRY_EVERY_S, RETRY_S, Pauses
from headgate.redis.pauses import CONNECTS, PUBLISHES, pause, resume
from headgate.runtime import periodic as rounds
from tests.support.held_clock import HeldClock
from tests.support.loop_clock import LoopClock
from tests.support.small_redis import SmallRedis


@pytest.fixture
def pauses(server: SmallRedis, clock: HeldClock) -> Pauses:
    return Pauses(server.client(), clock, Random(1).randint)


def allowed(pauses: Pauses) -> dict[str, bool]:
    """Whether a session may open, and a client may join and publish in each of two namespaces."""

    def may(*arguments: str) -> bool:
        try:
            pauses.check(*arguments)
        except Paused:
            return False
        return True

    return {
        "open": may(CONNECTS),
        "join shop": may(CONNECTS, "shop"),
        "join chat": may(CONNECTS, "chat"),
        "publish shop": may(PUBLISHES, "shop"),
        "publish chat": may(PUBLISHES, "chat"),
    }


@pytest.mark.parametrize(
    ("paused", "refused"),
    [
        ([], set()),
        (["connects"], {"open", "join shop", "join chat"}),
        (["publishes"], {"publish shop", "publish chat"}),
        (["namespace:shop"], {"join shop", "publish shop"}),
        (["connects", "namespace:shop"], {"open", "join shop", "join chat", "publish shop"}),
    ],
)
def test_a_pause_refuses_what_it_names_and_nothing_else(pauses: Pauses, paused: list[str], refused: set[str]) -> None:
    """A namespace stands for its connects and its publishes."""
    pauses.replace(dict.fromkeys(paused, math.inf))
    assert {what for what, may in allowed(pauses).items() if not may} == refused
    assert pauses.names() == sorted(paused)


def test_a_refusal_says_what_is_paused_and_when_to_come_back(pauses: Pauses) -> None:
    """At a time that differs from caller to caller."""
    pauses.replace({"namespace:shop": math.inf})
    errors = []
    for _ in range(100):
        with pytest.raises(Paused) as refused:
            pauses.check(PUBLISHES, "shop")
        errors.append(refused.value)
    assert (errors[0].parts, errors[0].retry) == ({"what": "namespace", "namespace": "shop"}, True)
    assert {error.retry_after_s for error in errors} == set(range(RETRY_S[0], RETRY_S[1] + 1))


def test_a_pause_ends_by_itself_though_redis_is_away(pauses: Pauses, clock: HeldClock) -> None:
    """And one that comes shortly before its end is sent to a time shortly after it."""
    pauses.replace({"connects": 60.0})
    clock.now_s += 58
    with pytest.raises(Paused) as refused:
        pauses.check(CONNECTS)
    assert 2 <= (refused.value.retry_after_s or 0) <= 7
    clock.now_s += 2
    pauses.check(CONNECTS)
    assert pauses.names() == []


def test_the_beginning_and_the_end_of_a_pause_are_logged_once(pauses: Pauses) -> None:
    """However often Redis is asked."""
    with capture_logs() as entries:
        for left_s in ({}, {"connects": math.inf}, {"connects": math.inf, "publishes": 60.0}, {"publishes": 59.0}, {}, {}):
            pauses.replace(left_s)
    assert [(entry["event"], entry["what"], entry.get("for_s")) for entry in entries] == [
        ("paused", "connects", None),
        ("paused", "publishes", 60),
        ("resumed", "connects", None),
        ("resumed", "publishes", None),
    ]


def test_what_is_known_stays_in_force_while_redis_does_not_answer(pauses: Pauses, server: SmallRedis) -> None:
    """A user without the right to read the set, too; each fault is logged once."""
    pause(server.client(), "connects")
    with capture_logs() as entries:
        seen = []
        for up, refuses in ((True, ""), (False, ""), (False, ""), (True, "ZRANGE"), (True, "")):
            server.up, server.refuses = up, refuses
            pauses.read()
            seen.append(pauses.names())
        resume(server.client(), "connects")
        pauses.read()
    pauses.close()
    assert (seen, pauses.names()) == ([["connects"]] * 5, [])
    assert [entry["event"] for entry in entries] == ["paused", "pauses out of reach", "pauses out of reach", "resumed"]


@pytest.fixture
def loop_clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    """The clock of the rounds."""
    clock = LoopClock()
    monkeypatch.setattr(rounds, "Signal", clock.signal)
    monkeypatch.setattr(rounds, "sleep", clock.sleep)
    return clock


def test_it_looks_at_a_notice_and_seldom_without_and_sooner_after_a_fault(loop_clock: LoopClock) -> None:
    """Many notices at once cost one look."""
    server = SmallRedis()
    watch = Pauses(server.client())

    def looks_in(seconds: float) -> int:
        server.asked.clear()
        loop_clock.advance(seconds)
        return len(server.asked)

    watch.start()
    watch.start()
    assert looks_in(0.0) == 1
    assert looks_in(2.1 * CHECK_EVERY_S) == 2
    for _ in range(100):
        watch.hurry()
    assert looks_in(GAP_S) == 1
    server.refuses = "ZRANGE"
    assert looks_in(CHECK_EVERY_S + 3.5 * RETRY_EVERY_S) == 4
    watch.close()
    loop_clock.advance(CHECK_EVERY_S)
    assert looks_in(CHECK_EVERY_S) == 0
