"""The faults in the view of `headgate status`."""

from typing import Any

import pytest

from headgate.consumers.work.groups import GroupStatus
from headgate.diagnosis.overview import NamespaceState, wrong
from headgate.redis.loads import Load
from headgate.runtime.check_result import Verdict

SILENT = "gateways: none has told of itself, which it cannot while Redis refuses writes"
AT_WORK = {"gateway": Load(1, 0, "n", name="web-1/7")}


def namespace(gateways: int, seen_s_ago: int | None = 5) -> NamespaceState:
    return NamespaceState("n", gateways, seen_s_ago, "e", 1, 1, 1, 1.0)


def consumer(idle_s: float | None, **counts: int) -> GroupStatus:
    lag, leased, waiting, dead, missed = (counts.get(name, 0) for name in ("lag", "leased", "waiting", "dead", "missed"))
    return GroupStatus("mail", "n", lag, leased, waiting, dead, missed, idle_s)


@pytest.mark.parametrize(
    ("given", "verdict", "says"),
    [
        ((AT_WORK, [namespace(1)], [consumer(1, lag=7)], {}), None, ""),
        ((AT_WORK, [namespace(1)], [consumer(None)], {}), None, ""),
        (({}, [namespace(0)], [], {}), Verdict.FAULT, "gateways: none is at work: start one"),
        ((AT_WORK, [namespace(0)], [], {}), Verdict.WARNING, "namespace n: no gateway serves it; the last one was seen 5 s ago"),
        ((AT_WORK, [namespace(0, None)], [], {}), Verdict.WARNING, "namespace n: no gateway serves it"),
        (
            (AT_WORK, [], [consumer(61, lag=7)], {}),
            Verdict.FAULT,
            "consumer mail: not at work, with 7 events and 0 tasks before it",
        ),
        ((AT_WORK, [], [consumer(None, waiting=1)], {}), Verdict.FAULT, "not at work, with 0 events and 1 tasks"),
        ((AT_WORK, [], [consumer(1, dead=3)], {}), Verdict.WARNING, "3 dead letters: headgate dead-letters list mail"),
        ((AT_WORK, [], [], {"namespace:n": None}), Verdict.WARNING, "paused: namespace n: headgate resume namespace n"),
    ],
)
def test_only_what_somebody_should_look_at_is_wrong(given: Any, verdict: Verdict | None, says: str) -> None:
    """A consumer with a backlog that is at work catches up; one that never ran and has nothing to do holds up nothing."""
    found = list(wrong(*given))
    assert [finding.verdict for finding in found] == ([] if verdict is None else [verdict])
    assert all(says in finding.line for finding in found)


def test_a_gateway_that_cannot_say_that_it_is_there_is_not_taken_for_gone() -> None:
    """While Redis refuses writes their words run out, and no second gateway is wanted beside a working one."""
    [found] = wrong({}, [], [], {}, takes_writes=False)
    assert (found.verdict, found.fix) == (Verdict.UNKNOWN, None)
    assert found.line.startswith(SILENT)


def test_a_consumer_that_cannot_take_work_is_not_taken_for_stopped() -> None:
    """Its heartbeat is a write as well."""
    [found] = wrong(AT_WORK, [namespace(1)], [consumer(90, lag=7)], {}, takes_writes=False)
    assert (found.verdict, found.fix) == (Verdict.UNKNOWN, None)


def test_a_gateway_that_is_registered_alone_is_at_work() -> None:
    """It has not reported its state yet, or may not."""
    [found] = wrong({}, [namespace(1)], [], {})
    assert (found.verdict, "1 registered" in found.text) == (Verdict.WARNING, True)
