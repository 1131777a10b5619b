"""The clocks of machine and gateways beside Redis'."""

from __future__ import annotations

import pytest

from headgate.diagnosis.clocks import look_at_clocks
from headgate.redis.loads import Load
from headgate.runtime.check_result import Verdict


@pytest.mark.parametrize(
    ("skew_s", "verdict", "says"),
    [
        (0.02, Verdict.OK, "20 ms ahead of Redis"),
        (-0.02, Verdict.OK, "20 ms behind Redis"),
        (0.3, Verdict.WARNING, "300 ms ahead of Redis; times from publish to socket"),
        (-5, Verdict.FAULT, "5000 ms behind Redis; tokens are refused"),
    ],
)
def test_a_clock_that_is_off_is_named_with_what_it_spoils(skew_s: float, verdict: Verdict, says: str) -> None:
    """Each with what to run."""
    [found] = look_at_clocks(skew_s, {})
    assert (found.name, found.verdict) == ("clock of this machine", verdict)
    assert found.text.startswith(says)
    assert (found.fix is None) == (verdict is Verdict.OK)


def test_each_gateway_that_tells_its_clock_is_looked_at() -> None:
    """An older one does not tell it."""
    loads = {
        "a": Load(1, 0, "n", name="web-2/9", skew_ms=9000),
        "b": Load(1, 0, "n", name="web-1/9", skew_ms=1),
        "c": Load(1, 0, "n"),
    }
    found = list(look_at_clocks(0, loads))[1:]
    assert [(each.name, each.verdict) for each in found] == [
        ("clock of gateway web-1/9", Verdict.OK),
        ("clock of gateway web-2/9", Verdict.FAULT),
    ]
