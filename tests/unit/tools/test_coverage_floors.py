"""The floors of branch coverage: how a package is measured, and the lines that name the fault."""

from tools.coverage_floors import faults, measured, possible_floor


def file(statements: int, lines: int, branches: int = 0, taken: int = 0) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": lines,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


def test_a_package_is_the_sum_of_its_files_lines_and_branches_together() -> None:
    """A folder below a package counts as the package, a module at the top as `headgate`; no other, and none without code."""
    report = {
        "files": {
            "gateway/headgate/bus/feed.py": file(10, 10, 10, 5),
            "/elsewhere/gateway/headgate/bus/deep/fence.py": file(20, 15),
            "gateway/headgate/errors.py": file(4, 3),
            "server/headgate_server/app.py": file(9, 0),
            "gateway/headgate/node/__init__.py": file(0, 0),
        }
    }
    assert measured(report) == {"bus": 75.0, "headgate": 75.0}


def test_a_package_fails_below_its_floor_only() -> None:
    """At its floor, or above it, it passes."""
    assert faults({"bus": 95.0, "auth": 99.0}, {"bus": 95, "auth": 95}) == []
    (line,) = faults({"bus": 94.99}, {"bus": 95})
    assert line == "bus: 95.0 % is below its floor of 95 %: add tests, or delete dead code"


def test_floors_and_packages_belong_together() -> None:
    """A new package needs a floor, and a floor needs its package."""
    assert faults({"bus": 95.4}, {"feed": 90}) == [
        "feed: no such package; remove its floor",
        "bus: has no floor; write 94 into pyproject.toml",
    ]


def test_a_floor_stays_one_percent_below_what_was_measured() -> None:
    """Runs differ a little, and a floor must not fail for that."""
    assert (possible_floor(96.99), possible_floor(97.0)) == (95, 96)
