"""The application under test as a process, started with the limits of a test, ended with the test.

Its parent's death ends it too, because it reads its standard input to the end. A traceback on its standard error fails the test.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Protocol

import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_S = 30.0
# Unless a test is about these, no client is late to join, however slow the machine is, and no ping comes between two events.
PATIENT = {"handshake_deadline_s": 60.0, "ping_interval_s": 3600.0}


class ServerProcess:
    """One application process on loopback."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.transport.application", json.dumps(configuration)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server did not start: {self.errors}"
        self.port = int(line)

    @property
    def errors(self) -> str:
        """Its standard error, with the lines of its loggers."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def debug(self, command: str, **arguments: Any) -> Any:
        """Run a debug command inside the process."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)) as connection:
            # Closed after the answer by the server itself, because the next look at its descriptors is not to find this one.
            connection.request("POST", f"/debug/{command}", json.dumps(arguments), {"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            return json.loads(body)

    def state(self) -> dict[str, Any]:
        """Return the present objects of the process."""
        state: dict[str, Any] = self.debug("state")
        return state

    def until(self, met: Callable[[dict[str, Any]], Any], what: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Return the first state that meets a condition.

        Raises:
            AssertionError: none did within the deadline.
        """
        give_up = time.monotonic() + deadline_s
        while not met(state := self.state()):
            assert time.monotonic() < give_up, f"not within {deadline_s:g} s: {what}; last seen: {state}"
            time.sleep(0.02)
        return state

    def memory_kb(self) -> int:
        """Resident memory now."""
        return self._status("VmRSS")

    def peak_memory_kb(self) -> int:
        """The most resident memory since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Start measuring the peak again (proc(5), clear_refs)."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def stop(self) -> None:
        """End it. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))


class StartServer(Protocol):
    """Call with TransportLimits' names; those in PATIENT have its values otherwise."""

    def __call__(self, **limits: float) -> ServerProcess: ...


def _starter() -> Iterator[StartServer]:
    started: list[ServerProcess] = []

    def start(**limits: float) -> ServerProcess:
        server = ServerProcess({"limits": PATIENT | limits})
        started.append(server)
        return server

    try:
        yield start
        for server in started:
            assert "Traceback" not in server.errors, server.errors[-4000:]
    finally:
        for server in started:
            server.stop()


start_server = pytest.fixture(_starter)
start_shared_server = pytest.fixture(_starter, scope="module")
