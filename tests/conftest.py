"""The fixtures of every test: a real Redis, a real gateway process, a real browser. Each is one separate file."""

import os
import signal
import sys
from itertools import groupby
from pathlib import Path

import pytest
import structlog
from coverage import Coverage
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

pytest_plugins = [
    "tests.support.chromium",
    "tests.support.gateway_process",
    "tests.support.redis_server",
    "tests.support.bus_here",
    "tests.support.gateway_here",
    "tests.support.people_here",
    "tests.support.smtp_server",
    "tests.support.mailer",
    "tests.support.consume_process",
    "tests.support.answering",
    "tests.support.shop",
    "tests.support.unstarted_gateway",
    "tests.support.wanted_password",
    "tests.support.recording_consumer",
    "tests.support.stepped_worker",
    "tests.support.supervised",
]

# The tests do not use a developer's own settings. Above all they must not write to that Redis.
_FOR_TESTS = (
    *("HEADGATE_CHROMIUM", "HEADGATE_HISTORIES", "HEADGATE_PIECES"),
    *("HEADGATE_PURE", "HEADGATE_REDIS_SERVER", "HEADGATE_RELOAD_CLIENTS", "HEADGATE_SEED", "HEADGATE_SOAK_S"),
)
for _name in [name for name in os.environ if name.startswith("HEADGATE_")]:
    if _name not in _FOR_TESTS:
        del os.environ[_name]

# The processes of the tests have the packages of a user's. Two that structlog and redis-py would load are hidden there, but not
# here, where a process of xdist has the path of the one that started it.
_HIDING = str(Path(__file__).with_name("not_installed"))
sys.path[:] = [path for path in sys.path if path != _HIDING]
_others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", _HIDING)]
os.environ["PYTHONPATH"] = os.pathsep.join([_HIDING, *_others])

# A command that a test runs in this process configures the loggers, and a logger keeps the configuration and the streams that it
# was first used with. No test may decide where the lines of the next one go.
_configure = structlog.configure
structlog.configure = lambda **options: _configure(**{**options, "cache_logger_on_first_use": False})

# A shell starts background programs with SIGINT ignored, and nohup any program with SIGHUP ignored. Every process started from
# here would inherit that, and one that a test interrupts would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A slow or busy machine is no fault of the code under test. The timeout of each test catches hangs instead. New examples are
# for `make fuzz`, and more of them; the test command tries the same ones each time, so that it is a change that makes it red, and
# not luck. A hundred each took a seventh of the processor time of the unit tests.
settings.register_profile(
    "headgate",
    deadline=None,
    max_examples=100 if "FUZZ" in os.environ else 30,
    derandomize="FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("headgate")
# Hypothesis draws from the constants of every module of ours loaded by then, too. Its examples are the same only if it knows of
# none. Which ones are depends on the tests that this process was given before.
if "FUZZ" not in os.environ:
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Stop the first of the two measurements that pytest-cov begins in a process of xdist.

    It reads only the second, and the first would go on in tests marked `no_cover`.
    """
    first = Coverage.current()
    if first is not None and hasattr(session.config, "workerinput"):
        first.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report to tools/part.sh, at the end of a part of the test command, which tests failed: its last lines name them again."""
    failed = [report.nodeid for word in ("failed", "error") for report in terminalreporter.stats.get(word, [])]
    if failed and "FAILED_TESTS" in os.environ:
        with Path(os.environ["FAILED_TESTS"]).open("a", encoding="utf-8") as notes:
            notes.writelines(f"{name}\n" for name in failed)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long files first, every other one short, because a long one that starts last would run alone at the end.

    A file is long that needs a browser, that builds packages, that starts several workers, or that runs random histories (the
    unit tests of this run). Those with a browser are spread evenly among the long ones, because several at once would leave none
    of them a processor.
    """
    # Hypothesis's own steps are traced, too, which makes such a test four times as long; examples written by hand run the same
    # lines, but for those of delivery.
    for item in items:
        if item.path.parent.name != "delivery" and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("no_cover")
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    with_browser = [tests for tests in files if "e2e" in tests[0].path.parts]
    if not with_browser:
        return
    busy = [tests for tests in files if {"packaging", "unit", "workers"} & set(tests[0].path.parts)]
    short = [tests for tests in files if tests not in with_browser and tests not in busy]
    long = _spread(busy, with_browser)
    begin = _spread(short[: len(long)], long)
    items[:] = [test for tests in [*begin, *short[len(long) :]] for test in tests]


def _spread(some: list[list[pytest.Item]], others: list[list[pytest.Item]]) -> list[list[pytest.Item]]:
    """Return both lists as one, in their order and evenly mixed."""
    placed = [((place + 0.5) / len(files), file) for files in (others, some) for place, file in enumerate(files)]
    return [file for _, file in sorted(placed, key=lambda found: found[0])]
