"""F22: code of the application keeps the loop from running; and a process that was stopped, which is nobody's fault."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.gateway_process import GatewayProcess, StartGateway

from .figures import Figures
from .site import wait_for

ROOT = str(Path(__file__).parents[2])
BLOCKED = "loop blocked"


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """One that serves blocking_app.py."""
    return start_module_gateway({"PYTHONPATH": ROOT}, "tests.fault.blocking_app:app", "--dev")


def lines(gateway: GatewayProcess, what: str) -> list[str]:
    """Return the lines of its log that say so."""
    return [line for line in gateway.output.splitlines() if what in line]


def answers(gateway: GatewayProcess) -> bool:
    """Whether readiness is 200."""
    try:
        with urllib.request.urlopen(f"{gateway.url}/healthz", timeout=30) as answer:
            return int(answer.status) == 200
    except HTTPError as error:
        if error.code == 503:  # the feed's fence was late as well, for as long as it takes to connect again
            return False
        raise


@pytest.mark.parametrize("page", ["waits", "computes"])
def test_the_code_that_blocks_the_loop_is_named_while_it_does(gateway: GatewayProcess, figures: Figures, page: str) -> None:
    """By file, line and function, once, before the request is answered; readiness answers again afterwards."""
    before = len(lines(gateway, BLOCKED))
    asking = threading.Thread(target=lambda: urllib.request.urlopen(f"{gateway.url}/{page}", timeout=30).read())
    began_s = time.monotonic()
    asking.start()
    wait_for(lambda: len(lines(gateway, BLOCKED)) > before, "the watchdog to say so")
    named_s = time.monotonic() - began_s
    assert asking.is_alive(), "it was told only afterwards"
    asking.join()
    wait_for(lambda: answers(gateway), "the gateway to answer")
    (told,) = lines(gateway, BLOCKED)[before:]
    assert "fault/blocking_app.py:" in told
    assert f" {page} <" in told
    figures("F22", f"{page}: named after", named_s, "s", "≤ 1 s")


def test_a_process_that_was_stopped_blames_nobody(gateway: GatewayProcess) -> None:
    """SIGSTOP for longer than a stall takes; when it runs again it says so, and names no code."""
    before, again = len(lines(gateway, BLOCKED)), len(lines(gateway, "loop ran again"))
    os.kill(gateway.pid, signal.SIGSTOP)
    time.sleep(1.0)  # the length of the fault
    os.kill(gateway.pid, signal.SIGCONT)
    wait_for(lambda: len(lines(gateway, "loop ran again")) > again, "the loop to run again")
    wait_for(lambda: answers(gateway), "the gateway to answer")
    assert len(lines(gateway, BLOCKED)) == before
