"""The command line with a real Redis: in this process if a command ends by itself, or as a process for tests of that."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.redis.client import Client, call
from tests.support.redis_server import DEADLINE_S, wait_until
from tests.support.registered import register

COMMAND = (sys.executable, "-m", "headgate")


@dataclass(frozen=True)
class Ended:
    """An ended command: its output, and its exit code."""

    stdout: str
    stderr: str
    returncode: int


Run = Callable[..., Ended]
Tail = Callable[..., Ended]


@pytest.fixture
def environment(redis_url: str, redis_client: Client) -> dict[str, str]:
    """The environment of a shell in which HEADGATE_REDIS_URL is set, and nothing else of ours. A gateway was there before."""
    register(redis_client, "a-gateway", ["notifications", "other"])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")},
        "HEADGATE_REDIS_URL": redis_url,
    }


@pytest.fixture
def run(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command to its end, in this process; a fault that is not reported in a line is raised here."""

    def run(*arguments: str, stdin: bytes | None = None, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
        if cwd is not None:
            monkeypatch.chdir(cwd)
        shown = {"HEADGATE_REDIS_URL": None, **(environment if env is None else env)}
        result = CliRunner().invoke(main, arguments, input=stdin, env=shown)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.stdout, result.stderr, result.exit_code)

    return run


@pytest.fixture
def run_process(environment: dict[str, str]) -> Run:
    def run(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
        result = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, timeout=60, check=False, env=env or environment, cwd=cwd, text=True
        )
        return Ended(result.stdout, result.stderr, result.returncode)

    return run


@pytest.fixture
def tail(run: Run, redis_client: Client) -> Tail:
    """Run `headgate tail` in this process: `tail("#", 2, then=publish)` calls `then` once it listens; it ends with event 2."""

    def start(pattern: str, count: int, since: str = "1", *, then: Callable[[], object]) -> Ended:
        def play() -> None:
            wait_until(lambda: call(redis_client, "PUBSUB", "NUMPAT") >= 1, "it listens")
            then()

        with ThreadPoolExecutor(1) as pool:
            played = pool.submit(play)
            ended = run("tail", pattern, "--since", since, "--count", str(count))
            played.result(DEADLINE_S)
        return ended

    return start


def is_one_error_line(text: str) -> bool:
    return text.startswith("headgate: ") and text.count("\n") == 1 and text.endswith("\n")


def error_and_advice(text: str) -> tuple[str, str]:
    """Return the two lines of an error with its remedy."""
    lines = text.splitlines()
    assert len(lines) == 2, text
    assert all(line.startswith("headgate: ") for line in lines), text
    return lines[0], lines[1]
