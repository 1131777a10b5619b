"""The parts without processes: templates, medians, ratios, verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import loads, publishing, report
from bench.scenario import Row
from bench.scenarios import SCENARIOS
from bench.variants import VARIANTS

SCENARIO = SCENARIOS["throughput-1000x256B-w8"]


@pytest.mark.parametrize("size_bytes", [50, 256, 60_000])
def test_payload_is_json_of_exactly_the_size(size_bytes: int) -> None:
    """The payload has the size that the table names, and holds the marker once."""
    text = publishing.payload(size_bytes)
    assert len(text.encode()) == size_bytes
    assert json.loads(text)["n"] == publishing.MARKER
    assert text.count("~") == 2


def test_payload_too_small_for_the_marker_is_refused() -> None:
    """A payload that cannot carry its own time is no measurement."""
    with pytest.raises(ValueError, match="at least"):
        publishing.payload(20)


def test_command_is_resp() -> None:
    """Lengths count bytes, not characters."""
    assert publishing.command("PUBLISH", "é", b"\0") == b"*3\r\n$7\r\nPUBLISH\r\n$2\r\n\xc3\xa9\r\n$1\r\n\0\r\n"


def test_a_command_is_read_from_monitor_byte_for_byte() -> None:
    """The template is what the peer sent, whatever bytes are in it."""
    line = rb'''1700000000.5 [0 unix:/bus.sock] "PUBLISH" "a b" "\x00\xff\"\\\r\n'] \"x\""''' + b"\n"
    assert publishing.monitored(line) == [b"PUBLISH", b"a b", b'\x00\xff"\\\r\n\'] "x"']


def test_a_command_of_a_script_is_not_the_one_that_came() -> None:
    """A peer that publishes with a script sends the script's name; what the script does follows from it."""
    assert publishing.monitored(b'1700000000.5 [0 lua] "XADD" "stream" "*"\n') == []


def test_median_ignores_rounds_that_failed() -> None:
    """A failed round has no figure; it shows up as a fault instead."""
    rows: list[Row] = [{"x": 1.0}, {"outcome": "failed", "error": "no"}, {"x": 3.0}]
    assert report.median(rows, "x") == 2.0
    assert "no" in report.faults(rows)


def test_faults_name_lost_and_disturbed_rounds() -> None:
    """Loss, a full generator and a neighbour on the server's core are never silent."""
    row: Row = {"outcome": "ok", "missing": 3, "load_core_share": 0.99, "others_on_server_core_share": 0.4}
    found = " ".join(report.faults([row]))
    assert "missing: 3" in found
    assert "generator" in found
    assert "40%" in found


def test_ratio_turns_round_when_less_is_better() -> None:
    """Twice the throughput and half the latency are both 2 ×."""
    assert report.ratio(SCENARIO, 200, 100) == "2.00 ×"
    assert report.ratio(SCENARIOS["schedule"], 5, 10) == "2.00 ×"


def test_verdict_says_met_or_missed() -> None:
    """The target is compared with the median."""
    assert report.verdicts(SCENARIO, [{"deliveries_per_cpu_s": 700_000.0}])[0].startswith("met")
    assert report.verdicts(SCENARIO, [{"deliveries_per_cpu_s": 699_999.0}])[0].startswith("**missed**")


def test_a_time_that_never_came_misses_its_target() -> None:
    """It has no figure that could be compared."""
    found = report.verdicts(SCENARIOS["workload-1KiB-20000-paused"], [{"live_again_s": "never"}])
    assert found == ["**missed**: live again after (s) at most 3, found never"]


def test_a_run_that_is_added_makes_further_rounds_of_the_same_page(tmp_path: Path) -> None:
    """Long measurements can be made in pieces."""
    machine = {"cpu_model": "a CPU"}
    for figure in (100.0, 300.0):
        rows: dict[str, dict[str, list[Row]]] = {SCENARIO.name: {"headgate": [{"outcome": "ok", "deliveries_per_cpu_s": figure}]}}
        page = report.write(tmp_path, "pieces", machine, rows, add=True)
    assert "| Headgate (logged publish) | 200 |" in page.read_text()
    assert len(report.read(tmp_path / "pieces.json")) == 2


def test_each_scenario_names_servers_and_columns_that_exist() -> None:
    """A misspelt name would only be noticed after an hour of measuring."""
    for name, scenario in SCENARIOS.items():
        assert name == scenario.name
        assert set(scenario.variants) <= set(VARIANTS)
        assert scenario.ratio in scenario.columns
        assert set(scenario.targets) <= set(scenario.columns)


@pytest.mark.parametrize("limit", [100, 101, 500, 799, 5000])
def test_the_search_ends_at_the_highest_rate_that_is_borne(limit: float) -> None:
    """To the last step of its halving: every rate tried above it was not borne, and it misses one step at most."""
    tried: list[float] = []

    def borne(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = loads.search(borne, 100, 1000, steps=6)
    assert found == max(rate for rate in tried if rate <= limit)
    assert min(limit, 1000) - found <= 900 / 2**6
    assert len(tried) == 7


def test_the_search_ends_at_once_when_not_even_the_lowest_rate_is_borne() -> None:
    """A server too slow to start has no figure."""
    assert loads.search(lambda rate: False, 100, 1000, steps=6) is None
