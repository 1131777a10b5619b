"""A real gateway: `headgate serve` as its own process, started, watched and ended by a test.

A test asks the fixture `start_gateway` for as many as it wants; all of them end with the test. Each listens on a free port
(settings' port 0) and, unless the test names a Redis, runs a private one in a folder of the test's.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import pytest

READY = re.compile(r"headgate: ready at (http://\S+?)/?(?:\s|$)")
# Less than a test may take. To start takes whole seconds of the processor, and others may want it too.
START_DEADLINE_S = 90.0
STOP_DEADLINE_S = 30.0
POLL_S = 0.02
# Kept for the report of a failed test; a gateway that logs without end must not take the test run with it.
MAX_LINES = 5000


class GatewayFailed(AssertionError):
    """The gateway ended, or was late with the expected output or act; the message ends with its last output."""


class GatewayProcess:
    """One `headgate serve`. Use as a context manager, or call `start` and `stop`.

    Args:
        settings: names as in the environment (`HEADGATE_…`); absent ones have their default, whatever the environment of the
            test run (HEADGATE_REDIS_SERVER alone is passed on).
        arguments: more words for the command line, such as `--demo` or `module:app`.
        folder: working directory; the private Redis lives in it.
    """

    subcommand = "serve"
    pass_fds: tuple[int, ...] = ()

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, arguments: tuple[str, ...] = ()) -> None:
        self.folder = folder
        # The console script beside the interpreter, as a user runs it.
        self.command = (str(Path(sys.executable).with_name("headgate")), self.subcommand, *arguments)
        self.url = ""
        self._settings = {
            "HEADGATE_PORT": "0",
            "HEADGATE_DATA_DIR": str(folder / "data"),
            "HEADGATE_DRAIN_S": "0",
            **(settings or {}),
        }
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._grown = threading.Condition()
        self._ended = False
        self._process: subprocess.Popen[str] | None = None

    def start(self, deadline_s: float = START_DEADLINE_S) -> GatewayProcess:
        """Start it and return when it has printed its URL and `/healthz` answers 200.

        Raises:
            GatewayFailed: not within `deadline_s` seconds, or it ended first; it is stopped then.
        """
        self._launch()
        give_up = time.monotonic() + deadline_s
        try:
            self.url = self.wait_for_line(READY, deadline_s)[1]
            self._wait_until_healthy(give_up)
        except GatewayFailed:
            self.stop()
            raise
        return self

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """End it as an operator would (SIGTERM), then by force after `deadline_s`; return its exit status. Idempotent.

        Its last output is then in `output`.
        """
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.wait_until_ended()

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and wait for nothing."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGTERM)

    def wait_until_ended(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Return its exit status after its own end, with its last output in `output`.

        Raises:
            GatewayFailed: not within `deadline_s` seconds.
        """
        assert self._process is not None, "not started"
        try:
            status = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not end within {deadline_s:g} s") from None
        with self._grown:  # a living child process may keep the other end open, which is no failure
            self._grown.wait_for(lambda: self._ended, deadline_s)
        return status

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop it (SIGSTOP), so that its connections stay, and nothing answers."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again; one that was killed in between stays so."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Process id, for /proc and the like."""
        assert self._process is not None, "not started"
        return self._process.pid

    def ask(self, path: str, body: object = None, bearer: str = "", method: str | None = None) -> tuple[int, Any]:
        """Return status and JSON of a request, which is a POST if it has a body."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
        data = None if body is None else json.dumps(body).encode()
        status, text = self._answer(urllib.request.Request(f"{self.url}{path}", data, headers, method=method))
        return status, json.loads(text) if text else None

    def get(self, path: str) -> tuple[int, str]:
        return self._answer(urllib.request.Request(f"{self.url}{path}"))

    def _answer(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=STOP_DEADLINE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """Return a number of its metrics, named with its labels as the page writes them; 0 where it is not there yet."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    @property
    def output(self) -> str:
        """Everything that it has written so far, standard output and error in one (the last MAX_LINES lines)."""
        with self._grown:
            return "\n".join(self._lines)

    def wait_for_line(self, pattern: str | re.Pattern[str], deadline_s: float = START_DEADLINE_S) -> re.Match[str]:
        """Return the first match of `pattern` in a line that it has written, now or within `deadline_s` seconds.

        Raises:
            GatewayFailed: the deadline passed, or it ended without writing one.
        """
        wanted = re.compile(pattern)
        give_up = time.monotonic() + deadline_s
        with self._grown:
            while True:
                for line in self._lines:
                    if match := wanted.search(line):
                        return match
                if self._ended:
                    raise self._failure(f"ended without writing {wanted.pattern!r}")
                if not self._grown.wait(give_up - time.monotonic()) and time.monotonic() >= give_up:
                    raise self._failure(f"did not write {wanted.pattern!r} within {deadline_s:g} s")

    def __enter__(self) -> GatewayProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._grown:  # of a life before this one nothing counts, and nothing that still comes of it is taken
            self._lines.clear()
            self._ended = False
            # A separate group, so that a Ctrl-C in the terminal of the test run reaches pytest, which then stops it.
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                bufsize=1,
                start_new_session=True,
                pass_fds=self.pass_fds,
            )
        threading.Thread(target=self._collect, args=(self._process,), name="gateway output", daemon=True).start()

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADGATE_") or k == "HEADGATE_REDIS_SERVER"}
        path = os.pathsep.join(filter(None, [self._settings.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]))
        return {**inherited, "PYTHONUNBUFFERED": "1", **self._settings, "PYTHONPATH": path}

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._grown:
                    if process is self._process:
                        self._lines.append(line.rstrip("\n"))
                        self._grown.notify_all()
        with self._grown:
            if process is self._process:
                self._ended = True
                self._grown.notify_all()

    def _wait_until_healthy(self, give_up: float) -> None:
        answer = "nothing"
        while time.monotonic() < give_up:
            if self._process is None or self._process.poll() is not None:
                raise self._failure("ended before it was healthy")
            try:
                status, text = self.get("/healthz")
                if status == 200:
                    return
                answer = f"{status} {text[:500]!r}"
            except OSError as error:
                answer = str(error)
            time.sleep(POLL_S)
        raise self._failure(f"was not healthy in time; the last answer of /healthz: {answer}")

    def _failure(self, what: str) -> GatewayFailed:
        written = "\n  | ".join(self.output.splitlines()[-60:]) or "(nothing)"
        return GatewayFailed(f"headgate {' '.join(self.command[1:])} {what}. It wrote:\n  | {written}")


class StartGateway(Protocol):
    """The fixture `start_gateway`: call it with settings and arguments, get a ready gateway."""

    def __call__(self, settings: Mapping[str, str] | None = None, *arguments: str) -> GatewayProcess: ...


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Start real gateways that end with the test: `start_gateway({"HEADGATE_DEMO": "1"}, "--dev")`."""
    yield from _starter(lambda number: tmp_path / f"gateway-{number}")


@pytest.fixture(scope="module")
def start_module_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """The same for gateways that all tests of a module share."""
    yield from _starter(lambda number: tmp_path_factory.mktemp(f"gateway-{number}"))


def _starter(folder: Callable[[int], Path]) -> Iterator[StartGateway]:
    started: list[GatewayProcess] = []

    def start(settings: Mapping[str, str] | None = None, *arguments: str) -> GatewayProcess:
        gateway = GatewayProcess(folder(len(started)), settings, arguments)
        started.append(gateway)
        return gateway.start()

    yield start
    for gateway in reversed(started):
        gateway.stop()
        # Captured by pytest and shown only beside a failed test.
        print(f"--- output of {gateway.url or 'a gateway that did not start'} ---\n{gateway.output}")
