"""The cost of asking the wrong worker: `python -m bench.scale.hand_over [--requests 3000] [--idle 9]`.

Two workers of one gateway, each on a port of its own. One client sends small POST requests of one polling session, each over a
new connection: to the worker that owns the session, to its sibling (which passes the socket on), and to its sibling with another
request behind it over the connection that was passed on. Prints each one's latency, from the connection's beginning to the whole
answer, and in a second round, which has only one of them at a time, the processor time of all workers for each. With `--idle`
each worker has so many connections beside, over which nothing comes: a hand-over must not cost more for them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.child import cpu_s
from tests.support.epoll_sets import children_of

ROOT = Path(__file__).parents[2]
PATH = "/engine.io/?EIO=4&transport=polling"
WHERE = ("own worker", "sibling (socket passed)", "sibling, and one more behind it")


async def ask(port: int, sid: str | None = None, body: bytes | None = None) -> tuple[int, bytes]:
    """Send one request over a connection of its own; return the status and the body of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        path = PATH if sid is None else f"{PATH}&sid={sid}"
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        writer.write(f"{head}{length}\r\n".encode() + (body or b""))
        answer = await reader.read()
        head_bytes, _, found = answer.partition(b"\r\n\r\n")
        return int(head_bytes.split(b" ", 2)[1]) if head_bytes else 0, found
    finally:
        writer.close()


async def ask_at(where: int, ports: list[int], sid: str) -> None:
    """Send a small POST request as WHERE says."""
    if where < 2:
        answer = await ask(ports[where], sid, b"3")
        assert answer == (200, b"ok"), answer
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", ports[1])
    try:
        for more in ("", "Connection: close\r\n"):
            writer.write(f"POST {PATH}&sid={sid} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: 1\r\n\r\n3".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            assert await reader.readexactly(2) == b"ok"
    finally:
        writer.close()


async def open_session(port: int) -> str:
    """Return the id of a new session."""
    status, body = await ask(port)
    assert status == 200, (status, body)
    return str(json.loads(body[1:])["sid"])


async def latencies(ports: list[int], requests: int) -> list[list[float]]:
    """Return the seconds of each request, for each of WHERE."""
    sid = await open_session(ports[0])
    took: list[list[float]] = [[] for _ in WHERE]
    for number in range(requests + 100):
        for where in range(len(WHERE)):
            began_s = time.perf_counter()
            await ask_at(where, ports, sid)
            if number >= 100:  # the first ones bring every part to life
                took[where].append(time.perf_counter() - began_s)
    return took


async def seconds_each(ports: list[int], requests: int) -> list[float]:
    """Return the processor seconds of all workers for each request, for each of WHERE: the median of five turns."""
    sid = await open_session(ports[0])
    found: list[list[float]] = [[] for _ in WHERE]
    for _ in range(5):
        for where in range(len(WHERE)):
            before = processor_seconds()
            for _ in range(requests // 5):
                await ask_at(where, ports, sid)
            found[where].append((processor_seconds() - before) / (requests // 5))
    return [sorted(each)[2] for each in found]


def processor_seconds() -> float:
    """Return the processor time of this process's children's children: the workers."""
    return sum(cpu_s(worker) for started in children_of(os.getpid()) for worker in children_of(started))


async def idle_at(ports: list[int], connections: int) -> list[asyncio.StreamWriter]:
    """Open so many WebSockets at each worker, over which nothing comes."""
    opened: list[asyncio.StreamWriter] = []
    for port in ports:
        for _ in range(connections):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                f"GET {PATH.replace('polling', 'websocket')} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            )
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 101"), answer
            opened.append(writer)
    return opened


async def measure(ports: list[int], requests: int, idle: int) -> tuple[list[list[float]], list[float]]:
    """Return the seconds of each request, and the processor seconds of all workers for one, for each of WHERE."""
    opened = await idle_at(ports, idle)
    took = await latencies(ports, requests)
    spent = await seconds_each(ports, requests)
    for each in opened:
        each.transport.abort()
    return took, spent


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--idle", type=int, default=0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    limits = {"ping_interval_s": 3600, "handshake_deadline_s": 3600, "inbound_per_s": 100_000}
    cluster = json.dumps({"workers": 2, "own_ports": True, "limits": limits})
    command = [sys.executable, "-m", "tests.support.worker_cluster", cluster]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as workers:
        assert workers.stdin is not None
        assert workers.stdout is not None
        with workers.stdin:  # its end is that of the workers
            ports = [int(port) for port in workers.stdout.readline().split()]
            took, spent = asyncio.run(measure(ports, given.requests, given.idle))
    print(f"{given.idle} idle connections at each worker:")
    print("| where | p50 ms | p90 ms | p99 ms | more at p50 | more at p99 | processor ms |")
    print("|---|---|---|---|---|---|---|")
    at = [{share: sorted(each)[int(len(each) * share)] * 1000 for share in (0.5, 0.9, 0.99)} for each in took]
    for name, here, seconds in zip(WHERE, at, spent, strict=True):
        print(
            f"| {name} | {here[0.5]:.2f} | {here[0.9]:.2f} | {here[0.99]:.2f} | {here[0.5] - at[0][0.5]:.2f} "
            f"| {here[0.99] - at[0][0.99]:.2f} | {seconds * 1000:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
