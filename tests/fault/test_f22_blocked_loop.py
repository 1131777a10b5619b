"""F22: code of the application keeps the loop from running; and a process that was stopped, which is no fault of code."""

import contextlib
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fault.figures import Figures
from tests.fault.site import DEADLINE_S, wait_for
from tests.support.gateway_process import GatewayProcess, StartGateway

ROOT = str(Path(__file__).parents[2])
BLOCKED, AGAIN = "loop blocked", "loop ran again"


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """One that serves blocking_app.py."""
    return start_module_gateway({"PYTHONPATH": ROOT}, "tests.fault.blocking_app:app", "--dev")


def lines(gateway: GatewayProcess, *what: str) -> list[str]:
    """Return the lines of its log that say all that."""
    return [line for line in gateway.output.splitlines() if all(part in line for part in what)]


def answers(gateway: GatewayProcess) -> bool:
    """Whether readiness is 200. The feed's fence was late as well, and so it is 503 for as long as it takes to connect again."""
    status, _ = gateway.get("/healthz")
    assert status in (200, 503)
    return status == 200


@contextlib.contextmanager
def pipe(path: Path) -> Iterator[None]:
    """A page waits for this, until the end."""
    os.mkfifo(path)
    yield
    os.close(os.open(path, os.O_RDWR))


@contextlib.contextmanager
def flag(path: Path) -> Iterator[None]:
    """A page computes for this, until the end."""
    yield
    path.touch()


@pytest.mark.parametrize(("page", "until"), [("waits", pipe), ("computes", flag)], ids=["waits", "computes"])
def test_the_code_that_blocks_the_loop_is_named_while_it_does(
    gateway: GatewayProcess,
    figures: Figures,
    tmp_path: Path,
    page: str,
    until: Callable[[Path], contextlib.AbstractContextManager[None]],
) -> None:
    """By file, line and function, once, before the request is answered; readiness answers again afterwards."""
    again = len(lines(gateway, AGAIN))
    url = f"{gateway.url}/{page}?until={tmp_path / 'end'}"
    asking = threading.Thread(target=lambda: urllib.request.urlopen(url, timeout=2 * DEADLINE_S).read())
    with until(tmp_path / "end"):
        began_s = time.monotonic()
        asking.start()
        wait_for(lambda: lines(gateway, BLOCKED, f" {page} <"), "the watchdog to say so")
        named_s = time.monotonic() - began_s
    asking.join()
    wait_for(lambda: len(lines(gateway, AGAIN)) > again, "the loop to run again")
    wait_for(lambda: answers(gateway), "the gateway to answer")
    (told,) = lines(gateway, BLOCKED, f" {page} <")
    assert "fault/blocking_app.py:" in told
    figures("F22", f"a page that {page}: the log names it after", named_s, "s", "≤ 1 s")


def test_a_process_that_was_stopped_blames_nobody(gateway: GatewayProcess) -> None:
    """SIGSTOP for longer than a stall takes; when it runs again it says so, and names no code."""
    before, again = len(lines(gateway, BLOCKED)), len(lines(gateway, AGAIN))
    gateway.pause()
    time.sleep(1.0)  # the length of the fault
    gateway.go_on()
    wait_for(lambda: len(lines(gateway, AGAIN)) > again, "the loop to run again")
    wait_for(lambda: answers(gateway), "the gateway to answer")
    assert len(lines(gateway, BLOCKED)) == before
