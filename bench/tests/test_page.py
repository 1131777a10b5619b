"""docs/benchmarks.md: its tables match the committed results, and it lists where a peer is better."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import page

PAUSED = "workload-1KiB-20000-paused"
MACHINE = {"cpu_model": "a CPU", "cores": 2, "kernel": "6.1-x", "python": "3.11", "bus": "valkey 9", "date": "2026-01-02"}


def written(folder: Path, scenario: str, rows: Mapping[str, Any]) -> Path:
    """Write a run with a row for each server."""
    found = {name: [{"outcome": "ok", **row}] for name, row in rows.items()}
    (folder / "run.json").write_text(json.dumps({"machine": MACHINE, "rows": {scenario: found}}))
    return folder


def results(folder: Path, **servers: float) -> Path:
    """Write a run in which each server has made so many events per CPU second."""
    rows = {name.replace("_", "-"): {"events_per_cpu_s": figure} for name, figure in servers.items()}
    return written(folder, "directed-5000", rows)


TEXT = "Before.\n<!-- summary run directed-5000 -->\n<!-- end -->\nThen:\n<!-- losses -->\nold\n<!-- end -->\n"


def test_a_summary_comes_from_the_run_with_date_and_machine(tmp_path: Path) -> None:
    """Handwritten text stays; a second run changes nothing."""
    found = page.filled(TEXT, results(tmp_path, headgate=20_000, node=10_000))
    assert found.startswith("Before.\n<!-- summary run directed-5000 -->\n")
    assert "| 20,000 | 10,000 (2.00 ×) |" in found
    assert "*2026-01-02 · a CPU, 2 cores · Linux 6.1 · Python 3.11 · valkey 9 · 1 round*" in found
    assert page.filled(found, tmp_path) == found


def test_headgate_is_the_one_that_a_publisher_uses(tmp_path: Path) -> None:
    """Its publishers check the payload themselves, as those of the peers do."""
    found = page.filled(TEXT, results(tmp_path, headgate=20_000, headgate_append=30_000, node=10_000))
    assert "| 30,000 | 10,000 (3.00 ×) |" in found


def test_a_peer_that_is_better_is_named_and_a_bound_is_not(tmp_path: Path) -> None:
    """The C server without sessions is no peer; a few per cent are noise."""
    found = page.filled(TEXT, results(tmp_path, headgate=20_000, node=30_000, centrifugo=20_500, sink=90_000))
    losses = found.partition("<!-- losses -->")[2]
    assert "Node 30,000 against 20,000 (1.50 ×)" in losses
    assert losses.count(" against ") == 1
    assert "**30,000 (0.67 ×)**" in found


def test_no_loss_is_said_too(tmp_path: Path) -> None:
    """An empty section would look forgotten."""
    assert "In no table of this page" in page.filled(TEXT, results(tmp_path, headgate=20_000, node=10_000))


def test_a_server_that_lost_events_has_no_figure(tmp_path: Path) -> None:
    """The latency of the remaining events means nothing."""
    rows = {
        "headgate-append": {"outcome": "undelivered", "closed": 1, "p99_9_ms": 1.0, "lost": 1234},
        "node": {"p99_9_ms": 5.0, "lost": 0},
    }
    found = page.filled(TEXT.replace("directed-5000", PAUSED), written(tmp_path, PAUSED, rows))
    assert "| 1,234 lost | 5 |" in found
    assert "Headgate: 1,234 lost" in found.partition("<!-- losses -->")[2]


def test_a_latency_beside_other_work_is_not_shown(tmp_path: Path) -> None:
    """Other programs that use the server's core make it wait; deliveries per CPU second hardly change."""
    rows = {
        "headgate": {"p99_ms": 9.0, "others_on_server_core_share": 0.5},
        "node": {"p99_ms": 5.0, "others_on_server_core_share": 0.01},
    }
    found = page.filled(TEXT.replace("directed-5000", "bursts"), written(tmp_path, "bursts", rows))
    assert "| disturbed | 5 |" in found
    assert "others used 26% of the server's core (median), at most 50%" in found
    assert "In no table of this page" in found


def test_what_never_came_is_a_loss_and_no_small_figure(tmp_path: Path) -> None:
    """A client that was not live again to the end of the run has no time."""
    rows = {"headgate-append": {"live_again_s": "never", "lost": 0}, "node": {"live_again_s": 0.3, "lost": 0}}
    found = page.filled(TEXT.replace("directed-5000", f"{PAUSED}:live_again_s"), written(tmp_path, PAUSED, rows))
    assert "| never | 0.30 |" in found
    assert "Headgate: never" in found.partition("<!-- losses -->")[2]


def test_a_whole_table_can_be_shown(tmp_path: Path) -> None:
    """Where a scenario has no peers, its columns are the comparison."""
    found = page.filled("<!-- bench run directed-5000 -->\n<!-- end -->\n", results(tmp_path, headgate=20_000, node=10_000))
    assert "| 20,000 |" in found
    assert "2.00 ×" in found


@pytest.mark.parametrize(
    "asked", ["no-such-run directed-5000", "run memory", "run no-such-scenario", "run directed-5000:no_such"]
)
@pytest.mark.parametrize("kind", ["bench", "summary"])
def test_a_run_or_a_scenario_that_is_not_there_is_told(tmp_path: Path, asked: str, kind: str) -> None:
    """A table without measurements is not shown empty."""
    with pytest.raises(ValueError, match=asked.split()[0]):
        page.filled(f"<!-- {kind} {asked} -->\n<!-- end -->\n", results(tmp_path, headgate=1))


def test_the_page_names_its_scenarios() -> None:
    """One run of everything for the page is a run of these."""
    assert page.scenarios("<!-- summary a x:y x z -->\n<!-- end --><!-- bench b w -->\n<!-- end -->") == ["x", "z", "w"]
