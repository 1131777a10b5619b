"""The official suites of Engine.IO 4 and Socket.IO 5 over several workers of one port.

    python -m bench.scale.suites PATH [--workers 4] [--times 1]

PATH is a checkout of github.com/socketio/socket.io, in whose docs/engine.io-protocol/v4-test-suite and
docs/socket.io-protocol/v5-test-suite `npm install` has been run. The workers
(tests/support/worker_cluster.py) listen on port 3000, as the suites expect. Ends with 1 if a test has failed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITES = {
    "Engine.IO 4": Path("docs/engine.io-protocol/v4-test-suite"),
    "Socket.IO 5": Path("docs/socket.io-protocol/v5-test-suite"),
}
PORT = 3000
# As the suites expect of their server.
LIMITS = {"ping_interval_s": 0.3, "ping_timeout_s": 0.2, "max_message_bytes": 1_000_000}


@contextmanager
def printing(*command: str) -> Iterator[list[int]]:
    """Run a program that ends with its standard input; yield the ports that it prints."""
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{command[0]} did not start")
        try:
            yield [int(each) for each in line.split()]
        finally:
            process.stdin.close()
            process.wait(30)


def serving(port: int, workers: int, **given: Any) -> AbstractContextManager[list[int]]:
    """Run workers of one gateway on a port."""
    cluster = json.dumps({"port": port, "workers": workers, **given})
    return printing(sys.executable, "-m", "tests.support.worker_cluster", cluster)


def run(suite: Path) -> tuple[int, int, str]:
    """Run a suite; return how many of its tests passed and failed, and what it printed."""
    done = subprocess.run(["npx", "mocha", "test-suite.js"], cwd=suite, capture_output=True, text=True, check=False, timeout=300)
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passing|failing)", done.stdout)}
    return counts.get("passing", 0), counts.get("failing", 0), done.stdout + done.stderr


def main() -> int:
    """Run the suites, and print what passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    failures = 0
    with serving(PORT, given.workers, limits=LIMITS):
        for name, folder in list(SUITES.items()) * given.times:
            passed, failed, printed = run(given.checkout / folder)
            print(f"{name}: {passed}/{passed + failed} over {given.workers} workers", flush=True)
            if failed or not passed:
                failures += 1
                print(printed[-6000:])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
