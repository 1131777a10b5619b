"""The cost of asking the wrong worker: `python -m bench.scale.hand_over [--requests 3000] [--idle 9]`.

Two workers of one gateway, each on its own port. One client sends small POST requests of one polling session, each over a
new connection: to the worker that owns the session, to its sibling (which passes the socket on), and to its sibling with another
request behind it over the connection that was passed on. Prints each one's latency, from the connection's beginning to the whole
answer, and in a second round, which has only one of them at a time, the processor time of all workers for each. With `--idle`
each worker has so many idle connections too; a hand-over must not cost more because of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import sys
import time

from bench.child import cpu_s
from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.support.epoll_sets import children_of
from tests.support.line_program import LineProgram

WHERE = ("own worker", "sibling (socket passed)", "sibling, and one more behind it")
WARM_REQUESTS, TURNS = 100, 5


def ask_at(where: int, ports: list[int], sid: str) -> None:
    """Send a small POST request to WHERE, and read its answer."""
    with socket.create_connection(("127.0.0.1", ports[min(where, 1)])) as wire, wire.makefile("rb") as answers:
        for more in ("", "Connection: close\r\n")[where < 2 :]:
            path = f"/socket.io/?EIO=4&transport=polling&sid={sid}"
            wire.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: 1\r\n\r\n3".encode())
            status = answers.readline()
            assert status.startswith(b"HTTP/1.1 200"), status
            while answers.readline() != b"\r\n":
                pass
            assert answers.read(2) == b"ok"


def latencies(ports: list[int], requests: int) -> list[list[float]]:
    """Return the seconds of each request, for each of WHERE."""
    sid = Polling(ports[0]).sid
    took: list[list[float]] = [[] for _ in WHERE]
    for number in range(requests + WARM_REQUESTS):
        for where in range(len(WHERE)):
            began_s = time.perf_counter()
            ask_at(where, ports, sid)
            if number >= WARM_REQUESTS:  # the first ones bring every part to life
                took[where].append(time.perf_counter() - began_s)
    return took


def seconds_each(ports: list[int], requests: int) -> list[float]:
    """Return the processor seconds of all workers for each request, for each of WHERE: the median of some turns."""
    sid = Polling(ports[0]).sid
    spent: list[list[float]] = [[] for _ in WHERE]
    for _ in range(TURNS):
        for where in range(len(WHERE)):
            before_s = processor_seconds()
            for _ in range(requests // TURNS):
                ask_at(where, ports, sid)
            spent[where].append((processor_seconds() - before_s) / (requests // TURNS))
    return list(map(statistics.median, spent))


def processor_seconds() -> float:
    """Return the processor time of this process's children's children: the workers."""
    return sum(cpu_s(worker) for started in children_of(os.getpid()) for worker in children_of(started))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--idle", type=int, default=0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    limits = {"ping_interval_s": 3600, "handshake_deadline_s": 3600, "inbound_per_s": 100_000}
    cluster = json.dumps({"workers": 2, "own_ports": True, "limits": limits})
    with LineProgram(sys.executable, "-m", "tests.support.worker_cluster", cluster) as workers:
        ports = [int(port) for port in workers.line().split()]
        with closing(*(WebSocket(port) for port in ports for _ in range(given.idle))):
            took, spent = latencies(ports, given.requests), seconds_each(ports, given.requests)
    print(f"{given.idle} idle connections at each worker:")
    print("| where | p50 ms | p90 ms | p99 ms | more at p50 | more at p99 | processor ms |\n|---|---|---|---|---|---|---|")
    at = [{share: sorted(each)[int(len(each) * share)] * 1000 for share in (0.5, 0.9, 0.99)} for each in took]
    for name, here, seconds in zip(WHERE, at, spent, strict=True):
        print(
            f"| {name} | {here[0.5]:.2f} | {here[0.9]:.2f} | {here[0.99]:.2f} | {here[0.5] - at[0][0.5]:.2f} "
            f"| {here[0.99] - at[0][0.99]:.2f} | {seconds * 1000:.2f} |"
        )


if __name__ == "__main__":
    main()
