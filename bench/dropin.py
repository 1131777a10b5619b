"""`headgate.socketio.Server` compared with python-socketio's own in one run: the gain of a one-line change.

    python -m bench.dropin [--clients 1000] [--rounds 3] [--seconds 2]

Each server is a separate process (`serve`), with the same application; this process has its clients' WebSockets on epoll,
reads bytes and counts them. CPU is the server process's own, user and system. Rounds are interleaved: A B, A B, …; the
table has the medians and the extremes. The figures:

    one at a time    an event of 100 bytes to a room, emitted when all have the one before: deliveries per CPU second
    bare loop        the same frame by a bare loop of send() over the same sockets: what the kernel takes of each delivery
    bursts of 8      the same as the first, eight emits in a row
    memory           resident memory per idle client in a room
    joins            WebSocket handshake, CONNECT and a room: per CPU second
    slow client      200 events a second of 1 KB to 100 clients: p99 of the others, without and with one that reads nothing
    large frame      one binary event of 20 MB to one client; no figure where it has not arrived after LARGE_S
"""

from __future__ import annotations

import argparse
import re
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

from tests.support.line_program import LineProgram
from tests.support.websocket_codec import TEXT, handshake, masked

KINDS = ("stock", "headgate")
PAYLOAD = "x" * 100
LARGE_BYTES, LARGE_S = 20_000_000, 10.0
SLOW_RATE, SLOW_CLIENTS, SLOW_BYTES = 200, 100, 1000
_STAMP = re.compile(rb'\["event","(\d{20})')


def serve(kind: str) -> None:
    """Serve: a line is a command and how often, and is answered with CPU seconds and resident KB."""
    from gevent import monkey

    monkey.patch_all()
    import gevent
    import socketio
    from gevent import pywsgi
    from gevent.fileobject import FileObjectThread

    if kind == "stock":
        sio: Any = socketio.Server(async_mode="gevent", ping_interval=600)
        server = pywsgi.WSGIServer(("127.0.0.1", 0), socketio.WSGIApp(sio), log=None, backlog=4096)
    else:
        from headgate.socketio import HTTPServer, Server

        sio = Server(ping_interval=600)
        server = HTTPServer(("127.0.0.1", 0), socketio.WSGIApp(sio), backlog=4096)
    sids: list[str] = []

    def connect(sid: str, _environ: object, _auth: object = None) -> None:
        sids.append(sid)
        sio.enter_room(sid, "room")

    def emit(count: int) -> None:
        for _ in range(count):
            sio.emit("event", PAYLOAD, to="room")

    def paced(count: int) -> None:
        start = time.monotonic()
        for number in range(count):
            gevent.sleep(max(0.0, start + number / SLOW_RATE - time.monotonic()))
            sio.emit("event", f"{time.monotonic_ns():020}" + "x" * SLOW_BYTES, to="room")

    def bare(count: int) -> None:
        frame = event_frame(PAYLOAD)
        sends = [session.wire.send for session in sio.eio.sockets.values()]
        for _ in range(count):
            for send in sends:
                send(frame)

    def large(_count: int) -> None:
        sio.emit("blob", bytes(LARGE_BYTES), to=sids[-1])

    commands: dict[str, Callable[[int], None]] = {"emit": emit, "paced": paced, "bare": bare, "large": large}
    sio.on("connect", connect)
    server.start()
    print(server.server_port, flush=True)
    for line in FileObjectThread(sys.stdin):
        command, count = line.split()
        if command in commands:
            commands[command](int(count))
        print(time.process_time(), _rss_kb(), flush=True)


def _rss_kb() -> int:
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss"))


class Server(LineProgram):
    """One server process."""

    def __init__(self, kind: str) -> None:
        super().__init__(sys.executable, "-m", "bench.dropin", "serve", kind)
        self.port = int(self.line())

    def spent(self) -> tuple[float, int]:
        """Return its CPU seconds and its resident KB so far."""
        self.begin("nothing")
        return self.answer()

    def begin(self, command: str, count: int = 1) -> None:
        """Send a command."""
        self.say(f"{command} {count}")

    def answer(self) -> tuple[float, int]:
        """Return the answer to the oldest command."""
        cpu_s, rss_kb = self.line().split()
        return float(cpu_s), int(rss_kb)


class Clients:
    """Joined WebSockets; they read everything and count bytes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self.bytes = 0

    def join(self, count: int) -> None:
        """Let as many join, a few at once."""
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", self._port))
            sock.sendall(handshake("bench", "/socket.io/?EIO=4&transport=websocket"))
            _until(sock, b"maxPayload")
            sock.sendall(masked(TEXT, "40"))
            _until(sock, b'40{"sid"')
            sock.setblocking(False)
            self.sockets[sock.fileno()] = sock
            self._poll.register(sock, select.EPOLLIN)

    def read(self, until_bytes: int, seen: Callable[[bytes], object] | None = None, deadline_s: float = 60) -> None:
        """Read until so many bytes have come, all together."""
        give_up = time.monotonic() + deadline_s
        while self.bytes < until_bytes:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.bytes} of {until_bytes} bytes")
            for descriptor, _ in self._poll.poll(0.1):
                data = self.sockets[descriptor].recv(1 << 20)
                assert data, "the server closed"
                self.bytes += len(data)
                if seen is not None:
                    seen(data)

    def stop_reading(self) -> int:
        """Let the first client read nothing any more; return how many still do."""
        sock = next(iter(self.sockets.values()))
        self._poll.unregister(sock)
        return len(self.sockets) - 1

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.sockets.values():
            sock.close()
        self._poll.close()


def _until(sock: socket.socket, mark: bytes) -> None:
    data = b""
    while mark not in data:
        more = sock.recv(4096)
        assert more, "the server closed"
        data += more


def event_frame(payload: str) -> bytes:
    """Return an event's frame, as both servers send it."""
    return masked(TEXT, f'42["event","{payload}"]', mask=False)


def frame_bytes(payload_bytes: int) -> int:
    """Return the bytes of an event's frame on the wire."""
    return len(event_frame("x" * payload_bytes))


def rooms(kind: str, clients: int, seconds: float) -> dict[str, float]:
    """Measure joins, memory and emits to a room."""
    with Server(kind) as server, Clients(server.port) as crowd:
        crowd.join(1)  # imports and caches
        before_s, before_kb = server.spent()
        crowd.join(clients - 1)
        time.sleep(0.5)
        after_s, after_kb = server.spent()
        figures = {
            "joins per CPU second": (clients - 1) / (after_s - before_s),
            "memory per client, KB": (after_kb - before_kb) / (clients - 1),
        }
        ways = [("one at a time", "emit", 1), ("bursts of 8", "emit", 8)]
        if kind == "headgate":  # python-socketio's sockets are simple-websocket's, each with a greenlet that reads
            ways.insert(1, ("bare loop of send()", "bare", 1))
        for name, command, burst in ways:
            start_s, deliveries, stop = server.spent()[0], 0, time.monotonic() + seconds
            while time.monotonic() < stop:
                server.begin(command, burst)
                crowd.read(crowd.bytes + burst * clients * frame_bytes(len(PAYLOAD)))
                server.answer()
                deliveries += burst * clients
            figures[f"deliveries per CPU second, {name}"] = deliveries / (server.spent()[0] - start_s)
        return figures | _large_frame(server, crowd)


def _large_frame(server: Server, crowd: Clients) -> dict[str, float]:
    began, start_s, before = time.monotonic(), server.spent()[0], crowd.bytes
    server.begin("large")
    took_ms = cpu_ms = float("nan")
    with suppress(TimeoutError):  # simple-websocket writes what the socket takes of a frame, and forgets the rest
        crowd.read(before + LARGE_BYTES, deadline_s=LARGE_S)
        took_ms = (time.monotonic() - began) * 1000
        server.answer()
        cpu_ms = (server.spent()[0] - start_s) * 1000
    arrived = (crowd.bytes - before) / 1e6
    return {"20 MB frame, ms": took_ms, "20 MB frame, CPU ms": cpu_ms, "20 MB frame, MB that arrive": arrived}


def slow(kind: str, seconds: float, *, one_is_slow: bool) -> dict[str, float]:
    """Measure the latency of a room's members, of which one reads nothing, or all read."""
    latencies: list[float] = []

    def seen(data: bytes) -> None:
        now_ns = time.monotonic_ns()
        latencies.extend((now_ns - int(stamp)) / 1e6 for stamp in _STAMP.findall(data))

    with Server(kind) as server, Clients(server.port) as crowd:
        crowd.join(SLOW_CLIENTS)
        readers = crowd.stop_reading() if one_is_slow else SLOW_CLIENTS
        count = int(SLOW_RATE * seconds)
        server.begin("paced", count)
        crowd.read(readers * count * frame_bytes(SLOW_BYTES + 20), seen)
        server.answer()
    with_it = "with" if one_is_slow else "without"
    return {f"p99 {with_it} a client that does not read, ms": sorted(latencies)[int(len(latencies) * 0.99)]}


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.dropin")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    rows: dict[str, dict[str, list[float]]] = {}
    for _, kind in product(range(asked.rounds), KINDS):
        figures = rooms(kind, asked.clients, asked.seconds)
        for one_is_slow in (False, True):
            figures |= slow(kind, asked.seconds, one_is_slow=one_is_slow)
        for name, value in figures.items():
            rows.setdefault(name, {}).setdefault(kind, []).append(value)
    print("| figure | python-socketio | headgate.socketio | ratio |\n|---|---|---|---|")
    for name, values in rows.items():
        middle = {kind: statistics.median(values[kind]) for kind in KINDS if kind in values}
        cells = [
            f"{middle[kind]:,.4g} ({min(values[kind]):,.4g} to {max(values[kind]):,.4g})" if kind in middle else ""
            for kind in KINDS
        ]
        ratio = f"{middle['headgate'] / middle['stock']:.2f}" if "stock" in middle else ""
        print(f"| {name} | {' | '.join(cells)} | {ratio} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
