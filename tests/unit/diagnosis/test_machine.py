"""The clocks, the machine's limits, and those that gateways report."""

import socket
from pathlib import Path

import pytest

from headgate.diagnosis.doctor import check_clocks, check_machine
from headgate.redis.loads import Load
from headgate.runtime.check_result import CheckResult, Verdict

HERE = f"{socket.gethostname()}/7"


def look(proc: Path, *loads: Load) -> dict[str, CheckResult]:
    return {finding.name: finding for finding in check_machine({str(place): load for place, load in enumerate(loads)}, proc)}


@pytest.mark.parametrize(
    ("text", "verdict"), [("4096\n", Verdict.OK), ("128\n", Verdict.WARNING), ("many", Verdict.UNKNOWN), (None, Verdict.UNKNOWN)]
)
def test_the_queue_of_new_connections_is_looked_at_where_there_is_one(tmp_path: Path, text: str | None, verdict: Verdict) -> None:
    if text is not None:
        (tmp_path / "sys/net/core").mkdir(parents=True)
        (tmp_path / "sys/net/core/somaxconn").write_text(text)
    assert look(tmp_path)["net.core.somaxconn"].verdict is verdict


@pytest.mark.parametrize(
    ("limit", "sessions", "verdict"),
    [(65536, 10_000, Verdict.OK), (1024, 10, Verdict.WARNING), (1024, 900, Verdict.FAULT), (65536, 60_000, Verdict.FAULT)],
)
def test_few_descriptors_are_told_with_the_setting(tmp_path: Path, limit: int, sessions: int, verdict: Verdict) -> None:
    """Too few for the present use, or for the possible one."""
    found = look(tmp_path, Load(sessions, 0, "n", name=HERE, max_files=limit))[f"open files of gateway {HERE}"]
    assert found.verdict is verdict
    assert (found.fix is None) == (verdict is Verdict.OK)


def test_the_shell_counts_only_where_no_gateway_runs_here(tmp_path: Path) -> None:
    """Its limit is that of a gateway that would be started from it."""
    assert not any("this shell" in name for name in look(tmp_path, Load(1, 0, "n", name=HERE, max_files=65536)))
    assert any("this shell" in f"{name} {found.text}" for name, found in look(tmp_path, Load(1, 0, "n", name="other/1")).items())


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
    [found] = check_clocks(skew_s, {})
    assert (found.name, found.verdict) == ("clock of this machine", verdict)
    assert found.text.startswith(says)
    assert (found.fix is None) == (verdict is Verdict.OK)


def test_each_gateway_that_tells_its_clock_is_looked_at() -> None:
    """An older one does not report it."""
    loads = {
        "a": Load(1, 0, "n", name="web-2/9", skew_ms=9000),
        "b": Load(1, 0, "n", name="web-1/9", skew_ms=1),
        "c": Load(1, 0, "n"),
    }
    found = list(check_clocks(0, loads))[1:]
    assert [(each.name, each.verdict) for each in found] == [
        ("clock of gateway web-1/9", Verdict.OK),
        ("clock of gateway web-2/9", Verdict.FAULT),
    ]
