"""The hot modules, compiled and not: CPU of the path of an event in one process, from Redis' replies to the clients' sockets.

    make compiled                 build/compiled has both forms of the modules
    python -m bench.compiled      run both in turns; print µs for each, and their ratio

The clients are TCP connections over loopback, which a process of its own reads. The figure is the tenth percentile of many slices
of CPU time, the best of all rounds: what other processes take from a slice is left out that way.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.delivery.live_feed import LiveFeed

COMPILED = Path(__file__).parents[1] / "build" / "compiled"
NAMESPACE, EPOCH = "bench", "0123456789abcdef"
PAYLOAD = json.dumps({"text": "x" * 244}).encode()
CLIENTS = 1000
_TITLES = {
    "own-64": "event for 1 of 1,000 users, reads of 64",
    "own-1": "event for 1 of 1,000 users, reads of one",
    "broadcast": "delivery of a broadcast to 1,000 clients, reads of 4",
    "join-20": "20 exact patterns of a client, in the matcher",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run both builds in turns, and print what they took; `--one` is what a child does."""
    parser = argparse.ArgumentParser("python -m bench.compiled", description="Compare the compiled modules with their sources.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args(words)
    if wanted.one:
        print(json.dumps(_measured()))
        return 0
    if not COMPILED.exists():
        print("there is no build/compiled: run `make compiled`", file=sys.stderr)
        return 1
    best: dict[str, dict[str, float]] = {}
    for _ in range(wanted.rounds):
        for pure in ("1", "0"):
            environment = {**os.environ, "HEADGATE_PURE": pure, "PYTHONPATH": str(COMPILED)}
            command = [sys.executable, "-m", "bench.compiled", "--one"]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            known = best.setdefault(found.pop("build"), found)
            known.update({name: min(known[name], found[name]) for name in found})
    print("| work | Python µs | compiled µs | ratio |\n|---|---|---|---|")
    for name, title in _TITLES.items():
        python, compiled = best["python"][name], best["compiled"][name]
        print(f"| {title} | {python:.2f} | {compiled:.2f} | {python / compiled:.2f} × |")
    return 0


def _measured() -> Mapping[str, float | str]:
    from headgate.compiled import build_in_use

    sockets, reader = connections(CLIENTS)
    gc.disable()
    try:
        return {
            "build": build_in_use().value,
            "own-64": _path([f"users.{n}.#" for n in range(CLIENTS)], sockets, 64, 500) / 64,
            "own-1": _path([f"users.{n}.#" for n in range(CLIENTS)], sockets, 1, 4000),
            "broadcast": _path(["#"] * CLIENTS, sockets, 4, 60) / (4 * CLIENTS),
            "join-20": _joins(3000),
        }
    finally:
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)


def connections(count: int) -> tuple[list[socket.socket], int]:
    """Return connections, and the process that reads from their other ends."""
    ours, theirs = [], []
    with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
        for _ in range(count):
            ours.append(socket.create_connection(server.getsockname()))
            theirs.append(server.accept()[0])
    reader = os.fork()
    if not reader:
        poll = select.epoll()
        by_number = {sock.fileno(): sock for sock in theirs}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                by_number[number].recv(65536)
    for sock in ours:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, reader


def _path(patterns: Sequence[str], sockets: Sequence[socket.socket], read: int, reads: int) -> float:
    """Return the µs that a read of so many messages takes. One of `users.` patterns listens to each, in random order."""
    feed, live, reply = path_to(patterns, sockets, budget_s=1.0)

    def slice_() -> Callable[[], None]:
        replies = [reply() for _ in range(read)]

        def act() -> None:
            feed.receive(replies, 0)
            while (action := feed.next_action()) is not None:
                for _ in live.route(action.events):
                    pass

        return act

    return _tenth_percentile_us(slice_, reads)


def path_to(
    patterns: Sequence[str], sockets: Sequence[socket.socket], budget_s: float
) -> tuple[Any, LiveFeed, Callable[[], list[bytes]]]:
    """Return the path of an event to clients, each with a pattern and a socket: the bus' feed, the live feed, a maker of replies.

    A reply of Redis holds an event for a random one of the clients with `users.` patterns, or for all of those with `#`.
    """
    from headgate.delivery.client import Client
    from headgate.delivery.live_feed import LiveFeed
    from headgate.delivery.matcher import SubscriptionMatcher
    from headgate.delivery.router import Router
    from headgate.redis.keys import channel, user_channel

    feed = _synced_feed()
    matcher: SubscriptionMatcher[Client] = SubscriptionMatcher()
    clients: dict[str, Client] = {}
    for number, (pattern, sock) in enumerate(zip(patterns, sockets, strict=True)):
        connection: Any = SimpleNamespace(wire=sock, ready=True, closed=False)
        nobody: Any = None
        client = clients[str(number)] = Client(NAMESPACE, str(number), nobody, connection, nobody)
        matcher.add(pattern, client)
    readers: Any = SimpleNamespace(handover=set())
    live = LiveFeed(NAMESPACE, feed, clients, Router(NAMESPACE, matcher), readers, lambda entry: None, budget_s=budget_s)
    draw = random.Random(1)
    is_own = patterns[0] != "#"

    def reply() -> list[bytes]:
        header = b"hg1 %b %d 1700000000000 0123456789abcdef-0123" % (EPOCH.encode(), next(offsets))
        if not is_own:
            return [b"pmessage", b"*", channel(NAMESPACE, "orders.new").encode(), b"%b\n%b" % (header, PAYLOAD)]
        user = str(draw.randrange(len(patterns)))
        topic = f"users.{user}.mail.new".encode()
        return [b"pmessage", b"*", user_channel(NAMESPACE, user).encode(), b"%b\n%b\n%b" % (topic, header, PAYLOAD)]

    offsets = iter(range(1, 1 << 40))
    return feed, live, reply


def _synced_feed() -> Any:
    """Return a feed that listens to everything, on a connection to nothing."""
    from headgate.bus.actions import Configure, ReadHead, ReadLinkHead, Subscribe
    from headgate.bus.feed import Feed
    from headgate.bus.interest import by_command
    from headgate.redis.entries import Head

    feed = Feed(NAMESPACE, 65536, 1.0)
    feed.acquire("#")
    feed.connected()
    while (action := feed.next_action()) is not None or not feed.sources:
        if isinstance(action, Configure | ReadHead | ReadLinkHead):
            feed.answer(Head(EPOCH, 0, 1, 0))
        elif isinstance(action, Subscribe):
            for command, *sources in by_command(action.sources):
                feed.receive([[command.lower(), source, b"1"] for source in sources], 0)
    return feed


def _joins(clients: int) -> float:
    """Return the µs that the matcher takes for the patterns of a client: 20 of 10,000 exact topics."""
    from headgate.delivery.matcher import SubscriptionMatcher

    matcher: SubscriptionMatcher[object] = SubscriptionMatcher()
    numbers = iter(range(clients))

    def slice_() -> Callable[[], None]:
        each = [(object(), [f"topics.{(number * 20 + nth) % 10_000}" for nth in range(20)]) for number in _next(numbers, 50)]

        def act() -> None:
            for subscriber, patterns in each:
                for pattern in patterns:
                    matcher.add(pattern, subscriber)

        return act

    return _tenth_percentile_us(slice_, clients // 50 - 10) / 50


def _next(numbers: Any, count: int) -> list[int]:
    return [next(numbers) for _ in range(count)]


def _tenth_percentile_us(slice_: Callable[[], Callable[[], None]], count: int) -> float:
    took_s = []
    for number in range(count + 10):
        act = slice_()
        began_s = process_time()
        act()
        if number >= 10:  # the first ones fill caches
            took_s.append(process_time() - began_s)
    return sorted(took_s)[len(took_s) // 10] * 1e6


if __name__ == "__main__":
    sys.exit(main())
