"""How long a socket waits while a broadcast goes out: ways of resting between the slices of a pass, in turns.

    python -m bench.turns    print CPU µs for each delivery, and CPU ms from the bytes on another socket to their reading

One process, with a gateway's loop and the path of an event from Redis' replies to the TCP connections of clients, which a process
of its own reads. In each pass something comes on another socket, as a ping or a handshake does. Its wait is the CPU time that
this process uses until the loop calls for it, so what other programs take of the machine does not count.
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
import sys
from collections.abc import Callable, Iterator, Sequence
from time import process_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headgate.delivery.fanout import BUDGET_S
from headgate.runtime import loop

if TYPE_CHECKING:
    from headgate.delivery.live_feed import LiveFeed

NAMESPACE, EPOCH = "bench", "0123456789abcdef"
PAYLOAD = json.dumps({"text": "x" * 244}).encode()
CLIENTS = 5000
READ_EVENTS = 8
_WARM_PASSES = 3


def main(words: Sequence[str] | None = None) -> int:
    """Run passes that rest in one way and in another, in turns; print what they took."""
    parser = argparse.ArgumentParser("python -m bench.turns", description="Measure how long a socket waits during a broadcast.")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--passes", type=int, default=200, help="of each kind")
    wanted = parser.parse_args(words)
    sockets, reader = connections(wanted.clients)
    gc.disable()
    rests = {"sleep(0)": loop.sleep, "one_round": loop.one_round, "Turns.give": loop.Turns().give}
    took: dict[str, list[float]] = {name: [] for name in rests}
    waits: dict[str, list[float]] = {name: [] for name in rests}
    try:
        with _Caller() as caller:
            passes = _passes(sockets, caller)
            for number in range(_WARM_PASSES + wanted.passes):
                for name, rest in rests.items():
                    cpu_s, wait_s = next(passes)(rest)
                    if number >= _WARM_PASSES:
                        took[name].append(cpu_s / (wanted.clients * READ_EVENTS))
                        waits[name].append(wait_s)
    finally:
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)
    print("| rest | µs a delivery: p10, median | wait in ms: median, p90, greatest |\n|---|---|---|")
    for name in rests:
        each_us, each_ms = [part * 1e6 for part in took[name]], [wait * 1e3 for wait in waits[name]]
        print(
            f"| {name} | {_share(each_us, 0.1):.2f}, {_share(each_us, 0.5):.2f} "
            f"| {_share(each_ms, 0.5):.2f}, {_share(each_ms, 0.9):.2f}, {max(each_ms):.2f} |"
        )
    return 0


def _share(figures: Sequence[float], share: float) -> float:
    return sorted(figures)[int(len(figures) * share)]


class _Caller:
    """A socket on which something comes, and the CPU time that goes by until the loop reads it."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._watcher = loop.io_watcher(self._ours.fileno(), loop.READ)
        self._called_s = 0.0
        self.waited_s: float | None = None

    def __enter__(self) -> _Caller:
        self._watcher.start(self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.stop()
        self._watcher.close()
        self._ours.close()
        self._theirs.close()

    def call(self) -> None:
        self.waited_s = None
        self._theirs.send(b"x")
        self._called_s = process_time()

    def _read(self) -> None:
        self.waited_s = process_time() - self._called_s
        self._ours.recv(1)


def _passes(sockets: Sequence[socket.socket], caller: _Caller) -> Iterator[Callable[[Callable[[], None]], tuple[float, float]]]:
    """Yield passes: each is called with a rest, and returns the CPU time that it took, and the caller's wait."""
    feed, live, reply = path_to(["#"] * len(sockets), sockets, BUDGET_S)
    draw = random.Random(1)
    slices = 8  # as many as the last pass had

    def go(rest: Callable[[], None]) -> tuple[float, float]:
        nonlocal slices
        feed.receive([reply() for _ in range(READ_EVENTS)], 0)
        called_at, count = draw.randrange(slices), 0
        began_s = process_time()
        while (action := feed.next_action()) is not None:
            for _ in live.route(action.events):
                rest()
                if count == called_at:
                    caller.call()  # at the worst moment: a slice comes first
                count += 1
        took_s, slices = process_time() - began_s, max(count, 1)
        if count <= called_at:
            caller.call()
        while caller.waited_s is None:
            loop.one_round()  # as the bus does before its next read
        return took_s, caller.waited_s

    while True:
        yield go


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


def path_to(
    patterns: Sequence[str], sockets: Sequence[socket.socket], budget_s: float
) -> tuple[Any, LiveFeed, Callable[[], list[bytes]]]:
    """Return the path of an event to clients, each with a pattern and a socket: the bus' feed, the live feed, a maker of replies.

    A reply of Redis holds an event for a random one of the clients with `users.` patterns, or for all of those with `#`.
    """
    from headgate.delivery.client import Client
    from headgate.delivery.fanout import Router
    from headgate.delivery.live_feed import LiveFeed
    from headgate.delivery.matcher import SubscriptionMatcher
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
    from headgate.delivery.bus.actions import Do, ReadHead, Subscribe
    from headgate.delivery.bus.feed import Feed
    from headgate.delivery.bus.interest import by_command
    from headgate.redis.functions import VERSION
    from headgate.redis.lineage import Head

    feed = Feed(NAMESPACE, 65536, 1.0)
    feed.acquire("#")
    feed.connected()
    while (action := feed.next_action()) is not None or not feed.sources:
        if isinstance(action, ReadHead) or action in (Do.CONFIGURE, Do.READ_LINK_HEAD):
            feed.answer(Head(EPOCH, 0, 1, VERSION))
        elif isinstance(action, Subscribe):
            for command, *sources in by_command(action.sources):
                feed.receive([[command.lower(), source, b"1"] for source in sources], 0)
    return feed


if __name__ == "__main__":
    sys.exit(main())
