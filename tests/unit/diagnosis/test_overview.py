"""The faults in the view of `headgate status`."""

from typing import Any

import pytest

from headgate.consumers.work.groups import GroupStatus
from headgate.diagnosis.overview import NamespaceState, wrong
from headgate.redis.loads import Load
from headgate.runtime.check_result import Verdict

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
        (({}, [namespace(1)], [], {}), Verdict.WARNING, "gateways: 1 registered, but none has reported its state yet"),
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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (({}, [], [], {}), "gateways: none is registered, and none can register while Redis refuses writes"),
        ((AT_WORK, [namespace(1)], [consumer(90, lag=7)], {}), "consumer mail: it cannot take work while Redis refuses writes"),
    ],
)
def test_what_redis_keeps_from_reporting_is_not_taken_for_gone(given: Any, says: str) -> None:
    """While it refuses writes, words of gateways and heartbeats run out, and no second one is wanted beside a working one."""
    [found] = wrong(*given, takes_writes=False)
    assert (found.verdict, found.fix) == (Verdict.UNKNOWN, None)
    assert found.line.startswith(says)
