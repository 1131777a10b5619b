"""`headgate bench`: finds the bench of the sources, and says where it is to those who have the wheel only."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli import bench
from headgate.cli.main import main


def make_sources(root: Path) -> Path:
    """Make what a checkout is known by."""
    (root / "bench" / "load").mkdir(parents=True)
    (root / "bench" / "load" / "load.c").touch()
    (root / "gateway" / "headgate" / "cli").mkdir(parents=True)
    return root


def test_an_installed_checkout_runs_its_own_bench_wherever_it_is_called(tmp_path: Path) -> None:
    """`pip install --editable`, as `make build` does."""
    sources = make_sources(tmp_path / "sources")
    assert bench.find_sources(sources / "gateway" / "headgate" / "cli" / "bench.py", tmp_path) == sources


def test_a_wheel_runs_the_bench_of_the_checkout_that_it_is_called_in_and_of_no_other_folder(tmp_path: Path) -> None:
    """A folder that happens to have a module `bench` is not run."""
    sources = make_sources(tmp_path / "sources")
    installed = tmp_path / "site-packages" / "headgate" / "cli" / "bench.py"
    assert bench.find_sources(installed, sources) == sources
    (tmp_path / "other" / "bench").mkdir(parents=True)
    assert bench.find_sources(installed, tmp_path / "other") is None


def test_without_the_sources_it_says_where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line for the fault, one for what to do, and exit code 1."""
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "bench.py"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["bench", "--quick"])
    assert result.exit_code == 1
    assert "not part of the installed package" in result.output
    assert "make build" in result.output


def test_arguments_go_to_the_bench() -> None:
    """The list of scenarios is the bench's own."""
    result = CliRunner().invoke(main, ["bench", "--list"])
    assert result.exit_code == 0
    assert "directed-5000" in result.output
