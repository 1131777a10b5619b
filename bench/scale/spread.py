"""How evenly the workers of one machine share connections: `python -m bench.scale.spread [--connections 5000] [--workers 2,4]`.

It opens WebSockets to gunicorn with three ways to share a port, in two patterns: one after the other, and 200 at a time. The
first two letters of a session id name the worker. Prints the largest share of a worker, as a multiple of an equal share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from headgate.redis.embedded import start_private_redis

WAYS = {
    "inherited, with turns": ("headgate.gunicorn.Worker", []),
    "inherited, first come": ("bench.scale.spread_workers.FirstComesFirst", []),
    "SO_REUSEPORT": ("bench.scale.spread_workers.OwnListener", ["--reuse-port"]),
}
PATTERNS = {"one by one": 1, "200 at a time": 200}
REQUEST = (
    b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
START_S = 60.0


async def _open(port: int, held: list[asyncio.StreamWriter], owners: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    head = await reader.readuntil(b'"sid":"')
    assert b" 101 " in head, head
    owners[(await reader.readexactly(2)).decode()] += 1
    held.append(writer)


async def _open_all(port: int, connections: int, at_once: int) -> Counter[str]:
    owners: Counter[str] = Counter()
    held: list[asyncio.StreamWriter] = []
    left = connections

    async def opener() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await _open(port, held, owners)

    await asyncio.gather(*(opener() for _ in range(at_once)))
    for writer in held:
        writer.transport.abort()
    return owners


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_until_all_serve(port: int, workers: int) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                if [each["state"] for each in json.load(answer)["workers"]] == ["serving"] * workers:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit("the workers did not start")


def measure(way: str, workers: int, connections: int, at_once: int, redis_url: str) -> tuple[Counter[str], float]:
    """Return how many connections each worker has, and the seconds that opening took."""
    worker_class, options = WAYS[way]
    port = _free_port()
    environ = os.environ | {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_DEV": "1", "HEADGATE_HANDSHAKE_DEADLINE_S": "120"}
    command = [sys.executable, "-m", "gunicorn", "-k", worker_class, "-w", str(workers), "-b", f"127.0.0.1:{port}", *options]
    with subprocess.Popen(
        [*command, "--log-level", "error", "--no-control-socket", "headgate_server.app:create_app()"],
        env=environ,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            _wait_until_all_serve(port, workers)
            began_s = time.monotonic()
            owners = asyncio.run(_open_all(port, connections, at_once))
            return owners, time.monotonic() - began_s
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait(30)


def main() -> None:
    """Measure each way with each number of workers, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print("| workers | pattern | way | largest share | connections of each | s |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, start_private_redis(Path(folder) / "redis") as redis:
        for workers in map(int, given.workers.split(",")):
            for pattern in given.patterns.split(","):
                for way in WAYS:
                    owners, took_s = measure(way, workers, given.connections, PATTERNS[pattern], redis.url)
                    counts = sorted(owners.values(), reverse=True)
                    share = counts[0] * workers / given.connections
                    each = ", ".join(map(str, counts))
                    print(f"| {workers} | {pattern} | {way} | {share:.3f} | {each} | {took_s:.1f} |", flush=True)


if __name__ == "__main__":
    main()
