"""docs/benchmarks.md: its tables are those of the committed results, and it says where a peer is better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import page

MACHINE = {"cpu_model": "a CPU", "cores": 2, "kernel": "6.1-x", "python": "3.11", "bus": "valkey 9", "date": "2026-01-02"}


def results(folder: Path, **servers: float) -> Path:
    """Write a run in which each server has made so many events per CPU second."""
    rows = {name.replace("_", "-"): [{"outcome": "ok", "events_per_cpu_s": figure}] for name, figure in servers.items()}
    (folder / "run.json").write_text(json.dumps({"machine": MACHINE, "rows": {"directed-5000": rows}}))
    return folder


TEXT = "Before.\n<!-- bench run directed-5000 -->\n<!-- end -->\nThen:\n<!-- losses -->\nold\n<!-- end -->\n"


def test_a_table_comes_from_the_run_with_date_and_machine(tmp_path: Path) -> None:
    """Text that is written by hand stays; a second time changes nothing."""
    found = page.filled(TEXT, results(tmp_path, headgate=20_000, node=10_000))
    assert found.startswith("Before.\n<!-- bench run directed-5000 -->\n")
    assert "| 20,000 |" in found
    assert "2.00 ×" in found
    assert "*2026-01-02 · a CPU, 2 cores · Linux 6.1 · Python 3.11 · valkey 9 · 1 round*" in found
    assert page.filled(found, tmp_path) == found


def test_a_peer_that_is_better_is_named_and_a_bound_is_not(tmp_path: Path) -> None:
    """The C server without sessions is no peer; a few per cent are noise."""
    found = page.filled(TEXT, results(tmp_path, headgate=20_000, node=30_000, stock=20_500, sink=90_000))
    losses = found.partition("<!-- losses -->")[2]
    assert "Node socket.io + redis adapter: events per server CPU second 30,000 against 20,000 (1.50 ×)" in losses
    assert losses.count(" against ") == 1


def test_no_loss_is_said_too(tmp_path: Path) -> None:
    """An empty section would look forgotten."""
    assert "In no table of this page" in page.filled(TEXT, results(tmp_path, headgate=20_000, node=10_000))


@pytest.mark.parametrize("asked", ["no-such-run directed-5000", "run memory", "run no-such-scenario"])
def test_a_run_or_a_scenario_that_is_not_there_is_told(tmp_path: Path, asked: str) -> None:
    """A table that nobody measured is not shown empty."""
    with pytest.raises(ValueError, match=asked.split()[0]):
        page.filled(f"<!-- bench {asked} -->\n<!-- end -->\n", results(tmp_path, headgate=1))


def test_the_committed_page_is_what_the_committed_results_say() -> None:
    """As `python -m bench.page --check`."""
    assert page.main(["--check"]) == 0
