"""Clients that mean harm: what they send is in the name.

The attack runs in this process while the load generator keeps its schedule, so the others' latency shows the worst stall of
the server. Every attack is bounded in bytes and time: a server that stops reading ends it. `rude` ones send until they are
cut, on a raw socket, and read only to learn how it ended; `patient` ones stay within the announced limits.
"""

from __future__ import annotations

import json
import random
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count, repeat

from headgate.delivery.matcher import MIN_CACHED_TOPICS
from tests.support.websocket_codec import NO_KEY, PONG, TEXT, handshake, header, masked

from .slow_http import SLOW, Crowd
from .variants import headgate_connect, mint

ATTACK_DEADLINE_S = 20.0
# Duration of an attack that the server does not end; the load is observed for longer.
ATTACK_S = 8.0
# How long one that wants to be welcomed waits for that.
_PATIENCE_S = 30.0
_CHUNK_BYTES = 1 << 16
_HANDSHAKE_S = 10.0
MIB = 1 << 20
GIB = 1 << 30
_NAMESPACE = "/notifications"
_PATH = "/socket.io/?EIO=4&transport="
_POLLING = f"{_PATH}polling HTTP/1.1\r\nHost: 127.0.0.1\r\n"
# Headgate's limits, as in `welcome`: the most for one client, and a little less than it may send.
_SUBSCRIPTIONS, _WILDCARDS, _MESSAGES_PER_S = 128, 32, 45.0

Outcome = dict[str, float | str]


def _text(text: str) -> bytes:
    return masked(TEXT, text, key=NO_KEY)  # masked with zeros: the server has the same work, we have none


def _request(name: str, **body: object) -> bytes:
    """Return a frame that asks for something and wants its acknowledgement."""
    return _text(f"42{_NAMESPACE},7{json.dumps([name, body], separators=(',', ':'))}")


def _connect(patterns: list[str]) -> str:
    return headgate_connect(subscriptions=[{"pattern": pattern} for pattern in patterns])


# Rude clients ------------------------------------------------------------------------------------------------------------


def _one_frame(size_bytes: int) -> Iterator[bytes]:
    yield header(TEXT, size_bytes) + NO_KEY + b'42/notifications,["x","'
    yield from repeat(b"x" * _CHUNK_BYTES, size_bytes // _CHUNK_BYTES)


def _many(frame: bytes, times: int) -> Iterator[bytes]:
    yield from repeat(frame * 1000, times // 1000)


def _subscriptions(rounds: int) -> Iterator[bytes]:
    """New wildcards, each subscribed to and given up."""
    for number in range(rounds // 100):
        patterns = [f"{number}.#.{each}.*" for each in range(100)]
        yield b"".join(_request("subscribe", pattern=p) + _request("unsubscribe", pattern=p) for p in patterns)


def _joins(rounds: int) -> Iterator[bytes]:
    """Out of the namespace and in again, each time with all the subscriptions that one client may have, none known before."""
    leave = _text(f"41{_NAMESPACE},")
    for number in range(rounds):
        patterns = [f"{number}.{each}.#" for each in range(_WILDCARDS)]
        patterns += [f"{number}.{each}" for each in range(_SUBSCRIPTIONS - _WILDCARDS)]
        yield leave + _text(_connect(patterns))


# Patient clients ---------------------------------------------------------------------------------------------------------


def _worst_patterns(seed: int, words: str = "abcdefgh") -> list[str]:
    """As many wildcards as one client may have, of the kind that a topic can match in the most ways."""
    pick = random.Random(seed)
    return [".".join(pick.choice(["#", "#", "*", pick.choice(words)]) for _ in words) for _ in range(_WILDCARDS)]


def _new_topics(client: int) -> Iterator[bytes]:
    """Publish to topics that were never seen, on which as many of the worst patterns as possible have to be tried."""
    for number in count():
        yield _request("publish", topic=f"a.b.c.d.e.f.g.{client}-{number}", data=None)


def _hashes(client: int) -> Iterator[bytes]:
    """Subscribe to one pattern of wildcards after the other, and give each up: no two have a glob in common."""
    for number in count():
        pattern = f"#.*.#.*.#.*.#.{client}-{number}"
        yield _request("subscribe", pattern=pattern)
        yield _request("unsubscribe", pattern=pattern)


# The costliest CONNECT --------------------------------------------------------------------------------------------------

# As many grants as a token may hold. One of them contains the wildcards that are asked for, which every expansion has to show.
_COSTLY_GRANTS = [
    "x.#",
    *(f"#.a.#.b.#.{number}" for number in range(31)),
    *(f"#.{number}.*.#.c" for number in range(31)),
    "#.a.#.b.#.c.#",
]


def _costly_connect(number: int, token: str) -> str:
    """Return a CONNECT with all the subscriptions that one client may have, all of them new, each with the longest past."""
    wildcards = [f"#.a.#.b.#.c.#.{number}-{each}" for each in range(_WILDCARDS)]
    topics = [f"x.{each}.{number}.d.e.f.g.h" for each in range(_SUBSCRIPTIONS - _WILDCARDS)]
    subscriptions = [{"pattern": pattern, "since": {"last": 1000}} for pattern in (*wildcards, *topics)]
    return headgate_connect(token=token, subscriptions=subscriptions)


def _from_addresses(count: int) -> Callable[[int, str], Outcome]:
    """Clients of as many addresses, each with its own user, join, wait for the welcome, leave and repeat."""

    def keep_joining(port: int, address: str, user: int, until: float) -> tuple[int, int]:
        token = mint(f"mallory-{user}", _COSTLY_GRANTS, [])
        welcomed, sent = 0, 0
        while time.monotonic() < until:
            text = _costly_connect(user * 1000 + welcomed, token)
            with socket.create_connection(("127.0.0.1", port), _PATIENCE_S, (address, 0)) as wire:
                _join(wire, text)
                _until(wire, b'"heartbeat_s"')
            welcomed, sent = welcomed + 1, sent + len(text)
        return welcomed, sent

    def run(port: int, _connect: str) -> Outcome:
        until = time.monotonic() + ATTACK_S
        with ThreadPoolExecutor(count) as pool:
            joining = [pool.submit(keep_joining, port, f"127.0.1.{user + 1}", user, until) for user in range(count)]
            welcomed, sent = (sum(column) for column in zip(*(each.result() for each in joining), strict=True))
        return {"sent_mib": round(sent / MIB, 2), "connections": welcomed, "answer": "welcomed each time"}

    return run


# The attacks ------------------------------------------------------------------------------------------------------------


def _rude(pieces: Callable[[], Iterator[bytes]], *, again: bool = False) -> Callable[[int, str], Outcome]:
    """Join as an ordinary client, then send without reading the answers.

    `again`: send one piece only, leave without waiting to be cut, and repeat that during the whole attack.
    """

    def run(port: int, connect: str) -> Outcome:
        start, sent, connections, answer = time.monotonic(), 0, 0, ""
        while not connections or (again and time.monotonic() < start + ATTACK_S):
            if again:
                with socket.create_connection(("127.0.0.1", port), _HANDSHAKE_S) as wire:
                    _join(wire, connect)
                    wire.sendall(piece := next(pieces()))
                taken, answer = len(piece), "let in each time"
            else:
                taken, answer = _pour(port, connect, pieces(), start + ATTACK_DEADLINE_S)
            sent, connections = sent + taken, connections + 1
        return {"sent_mib": round(sent / MIB, 2), "connections": connections, "answer": answer}

    return run


def _pour(port: int, connect: str, pieces: Iterator[bytes], until: float) -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", port), _HANDSHAKE_S) as wire:
        _join(wire, connect)
        sent, answer = 0, "still open"
        try:
            for piece in pieces:
                wire.settimeout(max(0.01, until - time.monotonic()))
                wire.sendall(piece)
                sent += len(piece)
        except TimeoutError:
            answer = "stopped reading"
        except OSError:
            answer = "reset"
        return sent, _close_code(wire, until) or answer


def _patient(
    clients: int, messages: Callable[[int], Iterator[bytes]], per_s: float, patterns: Callable[[int], list[str]] | None = None
) -> Callable[[int, str], Outcome]:
    """Clients that read what comes and send `per_s` messages per second each, as long as they are let."""

    def run(port: int, connect: str) -> Outcome:
        with ExitStack() as open_wires:
            wires: dict[socket.socket, Iterator[bytes]] = {}
            for number in range(clients):
                wire = open_wires.enter_context(socket.create_connection(("127.0.0.1", port), _HANDSHAKE_S))
                _join(wire, connect if patterns is None else _connect(patterns(number)))
                wires[wire] = messages(number)
            start, rounds, sent = time.monotonic(), 0, 0
            while time.monotonic() < start + ATTACK_S and wires:
                due = start + rounds / per_s
                for wire in select.select(list(wires), [], [], max(0.0, due - time.monotonic()))[0]:
                    if not _read(wire):
                        del wires[wire]
                if time.monotonic() >= due:
                    rounds += 1
                    for wire, of_wire in wires.items():
                        piece = next(of_wire)
                        with suppress(OSError):  # it was cut: the next look finds that
                            wire.sendall(piece)
                            sent += len(piece)
            answer = f"{len(wires)} of {clients} still there"
            return {"sent_mib": round(sent / MIB, 2), "connections": clients, "messages": rounds * clients, "answer": answer}

    return run


def _read(wire: socket.socket) -> bool:
    """Read what there is; False at the end."""
    try:
        return bool(wire.recv(_CHUNK_BYTES))
    except OSError:
        return False


def _post(size_bytes: int) -> Callable[[int, str], Outcome]:
    """Open a session by long-polling, then send a message of a declared size in one POST."""

    def run(port: int, _connect: str) -> Outcome:
        with socket.create_connection(("127.0.0.1", port), _HANDSHAKE_S) as wire:
            wire.sendall(f"GET {_POLLING}\r\n".encode())
            opening = _until(wire, b'"maxPayload"')
        found = re.search(rb'"sid":"([^"]+)"', opening)
        assert found, opening
        sid = found[1].decode()
        head = f"POST {_POLLING.replace(' ', f'&sid={sid} ', 1)}Content-Length: {size_bytes}\r\n\r\n"
        sent, answer, until = 0, "still open", time.monotonic() + ATTACK_S
        with socket.create_connection(("127.0.0.1", port), _HANDSHAKE_S) as wire:
            try:
                wire.sendall(head.encode())
                while sent < size_bytes and time.monotonic() < until and not select.select([wire], [], [], 0)[0]:
                    wire.settimeout(max(0.01, until - time.monotonic()))
                    wire.sendall(b"4" * _CHUNK_BYTES)
                    sent += _CHUNK_BYTES
            except OSError as error:
                answer = "stopped reading" if isinstance(error, TimeoutError) else "reset"
            with suppress(OSError):
                wire.settimeout(2.0)
                status = re.match(rb"HTTP/1.1 (\d+)", wire.recv(_CHUNK_BYTES))
                answer = f"status {status[1].decode()}" if status else answer
        return {"sent_mib": round(sent / MIB, 2), "connections": 1, "answer": answer}

    return run


# Loopback has 127.0.0.0/8: as many addresses as an attack wants to come from.
_ADDRESSES = [f"127.0.{net}.{host}" for net in range(1, 6) for host in range(1, 51)]
_SLOW_KINDS = ("silent", "drip-headers", "silent-body-no-token", "drip-chunked", "unread-pipelined", "half-closed")


def _slow_http(clients: int) -> Callable[[int, str], Outcome]:
    """HTTP clients of slow kinds, from 250 addresses; a kind comes again when it was ended. The health page is asked, too."""

    def run(port: int, _connect: str) -> Outcome:
        start, worst_s, asked, failed, came, ended = time.monotonic(), 0.0, 0, 0, 0, 0
        with ExitStack() as open_crowds:
            crowds: dict[str, Crowd] = {}
            while (now := time.monotonic()) < start + ATTACK_S:
                for name in _SLOW_KINDS:
                    crowd = crowds.get(name)
                    if crowd is None or not crowd.open:
                        ended += crowd.ended if crowd is not None else 0
                        count = clients // len(_SLOW_KINDS)
                        crowds[name] = open_crowds.enter_context(Crowd(port, SLOW[name], count, addresses=_ADDRESSES))
                        came += count
                    crowds[name].go_on()
                took_s = _healthy(port)
                asked, failed, worst_s = asked + 1, failed + (took_s is None), max(worst_s, took_s or 0.0)
                time.sleep(max(0.0, now + 0.1 - time.monotonic()))
            ended += sum(crowd.ended for crowd in crowds.values())
        answer = (
            f"{ended} of {came} ended; {asked - failed} of {asked} looks at /healthz answered, at most {worst_s * 1000:.0f} ms"
        )
        return {"sent_mib": 0.0, "connections": came, "answer": answer}

    return run


def _healthy(port: int) -> float | None:
    """Return how long the health page took to answer 200; None when it did not."""
    began = time.monotonic()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), _HANDSHAKE_S) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        if wire.recv(4096).startswith(b"HTTP/1.1 200 "):
            return time.monotonic() - began
    return None


@dataclass(frozen=True)
class Attack:
    """One attack: `run(port, connect)` makes it and returns `sent_mib`, `connections` and how it ended, as `answer`.

    Attributes:
        what: the attack in words, for the title.
        anywhere: whether it means something to any Socket.IO server, and not to Headgate alone.
        topics: how many topics the log holds an event of, where it does not mean something anywhere.
        p99_ms: what the others' p99 may be.
        keeps: MiB that the attackers may have, as any clients of their number and subscriptions, on top of what a fault may cost.
    """

    run: Callable[[int, str], Outcome]
    what: str = "One client attacks"
    anywhere: bool = True
    topics: int = MIN_CACHED_TOPICS
    keeps: float = 0.0
    p99_ms: float = 250


ATTACKS = {
    "frame-150MB": Attack(_rude(lambda: _one_frame(150 * MIB))),
    "events-again": Attack(
        _rude(lambda: iter([_text('42/notifications,["x"]') * 1000]), again=True), "Client after client attacks"
    ),
    "pongs-200k": Attack(_rude(lambda: _many(masked(PONG, key=NO_KEY), 200_000))),
    "post-1GB": Attack(_post(GIB)),
    "subscriptions-100k": Attack(_rude(lambda: _subscriptions(100_000)), anywhere=False),
    "subscriptions-patient": Attack(
        _patient(4, _hashes, _MESSAGES_PER_S), "Four clients attack within the limits", anywhere=False
    ),
    "joins-5k": Attack(_rude(lambda: _joins(5_000)), anywhere=False),
    # Their joins go on in turns when they have left, so several of them are there at once.
    "joins-again": Attack(
        _rude(lambda: iter([b"".join(_joins(49))]), again=True), "Client after client attacks", anywhere=False, keeps=15.0
    ),
    "slow-http-1200": Attack(_slow_http(1200), "F31: 1,200 slow HTTP clients of 250 addresses attack", keeps=40.0),
    "wildcards-100": Attack(
        _patient(100, _new_topics, 1.0, _worst_patterns), "A hundred clients attack within the limits", anywhere=False, keeps=15.0
    ),
    "connects-100": Attack(
        _from_addresses(100),
        "A hundred addresses send the costliest CONNECT again and again",
        anywhere=False,
        topics=10_000,
        keeps=50.0,
        p99_ms=50,
    ),
}


def attack(name: str, port: int, connect: str) -> Outcome:
    """Make an attack; return what was sent and how the server ended it.

    Args:
        connect: the CONNECT of an ordinary client.

    Returns:
        `sent_mib`, `attack_s`, `connections`, and `answer`: the close code or status, `reset`, or how many stayed open.
    """
    start = time.monotonic()
    return ATTACKS[name].run(port, connect) | {"attack_s": round(time.monotonic() - start, 2)}


def _join(wire: socket.socket, connect: str) -> None:
    wire.sendall(handshake("127.0.0.1", f"{_PATH}websocket"))
    _until(wire, b'"pingInterval"')
    wire.sendall(_text(connect))
    wire.recv(4096)


def _until(wire: socket.socket, mark: bytes) -> bytes:
    got = b""
    while mark not in got:
        got += (more := wire.recv(4096))
        if not more:
            raise ConnectionError(f"refused before the attack: {got[:200]!r}")
    return got


def _close_code(wire: socket.socket, until: float) -> str:
    """Read to the end; return `close <code>` if a close frame comes last, else nothing."""
    tail = b""
    with suppress(OSError):
        while (left_s := until - time.monotonic()) > 0:
            wire.settimeout(min(left_s, 2.0))
            more = wire.recv(_CHUNK_BYTES)
            if not more:
                break
            tail = (tail + more)[-256:]
    for size in range(2, min(126, len(tail) - 1)):
        frame = tail[-size - 2 :]
        if frame[0] == 0x88 and frame[1] == size:
            return f"close {struct.unpack('!H', frame[2:4])[0]}"
    return ""
