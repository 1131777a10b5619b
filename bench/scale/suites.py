"""The official suites of Engine.IO 4 and Socket.IO 5 over several workers of one port.

    python -m bench.scale.suites PATH [--workers 4] [--times 1] [--client]

PATH is a checkout of github.com/socketio/socket.io, in whose docs/engine.io-protocol/v4-test-suite and
docs/socket.io-protocol/v5-test-suite `npm install` has been run. The workers
(tests/support/worker_cluster.py) listen on port 3000, as the suites expect. Ends with 1 if a test has failed.

With --client it runs socket.io-client's own tests instead, in packages/socket.io-client, which is built there (`build/`). It
prints the tests that failed: some ask for what only the Node server has. Compare with --workers 1.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITES = {
    "Engine.IO 4": Path("docs/engine.io-protocol/v4-test-suite"),
    "Socket.IO 5": Path("docs/socket.io-protocol/v5-test-suite"),
}
PORT, CLIENT_PORT = 3000, 3210
CLIENT = Path("packages/socket.io-client")
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


def run_client(checkout: Path, workers: int) -> int:
    """Run socket.io-client's own tests, and print what passed and what failed; return 1 if anything did."""
    limits = {"ping_interval_s": 2, "inbound_per_s": 10_000, "inbound_burst": 10_000}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(CLIENT_PORT, workers, application="client suite", limits=limits),
    ):
        told = Path(folder) / "report.json"  # a pipe would lose what is not read when mocha ends
        command = ["npx", "mocha", "--import=tsx", "--reporter", "json", "--reporter-option", f"output={told}", "--exit"]
        subprocess.run([*command, "test/index.ts"], cwd=checkout / CLIENT, stdout=subprocess.DEVNULL, check=False, timeout=300)
        report = json.loads(told.read_text())
    stats = report["stats"]
    print(f"socket.io-client: {stats['passes']}/{stats['tests']} over {workers} workers")
    for failed in report["failures"]:
        print("  failed:", failed["fullTitle"])
    return 1 if report["failures"] else 0


def main() -> int:
    """Run the suites, and print what passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--client", action="store_true")
    given = parser.parse_args()
    if given.client:
        return run_client(given.checkout, given.workers)
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
