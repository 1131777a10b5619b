"""A gateway with one or several workers on one port, for a measurement: `headgate serve`, on the cores that it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType

from bench.child import Failed, cpu_s
from bench.variants import held_port

START_S = 60.0
STOP_S = 30.0


class Serving:
    """A running gateway; a context manager. `pids` are those of its workers, or its own if it is one process."""

    def __init__(self, redis_url: str, workers: int, folder: Path, cores: Collection[int] = (), **settings: str) -> None:
        self._workers, self._folder, self._cores = workers, folder, cores or os.sched_getaffinity(0)
        self._settings: Mapping[str, str] = {
            "HEADGATE_REDIS_URL": redis_url,
            "HEADGATE_DEV": "1",
            "HEADGATE_DRAIN_S": "0",
            "HEADGATE_LOG_LEVEL": "error",
            "HEADGATE_HANDSHAKE_DEADLINE_S": "120",
            "HEADGATE_REBALANCE_PER_S": "0",
            **settings,
        }
        self.pids: list[int] = []

    def __enter__(self) -> Serving:
        self._port = held_port()
        self.port = self._port.__enter__()
        command = [str(Path(sys.executable).with_name("headgate")), "serve", "--workers", str(self._workers)]
        with (self._folder / f"gateway-{self.port}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                env={**os.environ, **self._settings},
                stdout=log,
                stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, self._cores),
            )
        self.pids = self._wait_until_all_serve()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._port.__exit__(kind, error, trace)

    def cpu_s(self) -> float:
        """Return the CPU time of all workers so far."""
        return sum(map(cpu_s, self.pids))

    def private_bytes(self) -> int:
        """Return the memory that is the workers' own: pages that they share since the fork are nobody's cost per client."""
        return sum(_private_bytes(pid) for pid in self.pids)

    def _wait_until_all_serve(self) -> list[int]:
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
                    told = json.load(answer).get("workers")
            except OSError:
                time.sleep(0.1)
                continue
            if told is None:
                return [self._process.pid]
            if [each["state"] for each in told] == ["serving"] * self._workers:
                return [each["process"] for each in told]
            time.sleep(0.1)
        raise Failed("the gateway did not start")


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:"))) * 1024
