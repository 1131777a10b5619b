"""A gateway with one or several workers on one port, for a measurement: `headgate serve`, on the cores that it is given."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from bench.child import Child, cpu_s

START_S = 60.0


class Serving(Child):
    """A running gateway; a context manager. `pids` are those of its workers, or its own if it is one process."""

    def __init__(
        self, redis_url: str, port: int, workers: int, folder: Path, cores: Collection[int] = (), **settings: str
    ) -> None:
        self.port, self._workers, self.pids = port, workers, list[int]()
        super().__init__(
            [str(Path(sys.executable).with_name("headgate")), "serve", "--workers", str(workers), "--port", str(port)],
            core=cores or os.sched_getaffinity(0),
            log=folder / "gateway.log",
            env={
                "HEADGATE_REDIS_URL": redis_url,
                "HEADGATE_DEV": "1",
                "HEADGATE_DRAIN_S": "0",
                "HEADGATE_LOG_LEVEL": "error",
                "HEADGATE_HANDSHAKE_DEADLINE_S": "120",
                "HEADGATE_REBALANCE_PER_S": "0",
                **settings,
            },
        )

    def __enter__(self) -> Serving:
        self.wait_ready(self._all_serve, START_S)
        return self

    def cpu_s(self) -> float:
        """Return the CPU time of all workers so far."""
        return sum(map(cpu_s, self.pids))

    def private_bytes(self) -> int:
        """Return the workers' private memory: pages shared since the fork are no cost per client."""
        return sum(_private_bytes(pid) for pid in self.pids)

    def _all_serve(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
            workers = json.load(answer).get("workers") or [{"state": "serving", "process": self.pid}]
            self.pids = [each["process"] for each in workers if each["state"] == "serving"]
        return len(self.pids) == self._workers


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:"))) * 1024
