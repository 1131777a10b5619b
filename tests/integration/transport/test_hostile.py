"""Hostile clients on real connections. Each is cut, costs little memory, and no other client notices (F15, F16, F17).

The rules are proven where they are decided, in tests/unit/transport: frames (test_frame_parser.py), rates (test_inbox.py),
bodies (test_engine.py); and of packets in tests/unit/socketio (test_packet_check.py, test_sessions.py).
"""

import contextlib
import random
from typing import NamedTuple

import pytest

from tests.integration.transport.clients import Closed, WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer
from tests.support.websocket_codec import BINARY, CONTINUATION, PING, PONG, TEXT, header, masked

GROWTH_KB = 5 * 1024
LIMIT = 100_000
FRAGMENTS = "too many fragments: at most 1024"
RATE = "limit_reached: rate (at most 50/s, burst 100)"


class Attack(NamedTuple):
    """A stream, and the close codes of which it gets one; None where a client that goes on sending may meet a reset instead."""

    name: str
    sent: bytes
    codes: tuple[int | None, ...]
    reason: str | None = None


ATTACKS = [
    Attack(
        "a frame that declares too much", header(BINARY, 2**40) + b"\1\2\3\4", (1009,), f"message too big: at most {LIMIT} bytes"
    ),
    Attack("twenty megabytes in a frame", header(BINARY, 20_000_000) + b"\0" * 20_000_004, (1009, None)),
    Attack(
        "fragments that are too large together",
        masked(TEXT, "4" + "x" * (LIMIT // 2), fin=False) + masked(CONTINUATION, "x" * (LIMIT // 2), fin=False),
        (1009,),
    ),
    Attack(
        "a hundred thousand fragments",
        masked(TEXT, "4", fin=False) + masked(CONTINUATION, "x", fin=False) * 100_000,
        (1008, None),
        FRAGMENTS,
    ),
    Attack("empty fragments", masked(TEXT, fin=False) + masked(CONTINUATION, fin=False) * 1024, (1008,), FRAGMENTS),
    Attack("two hundred thousand events", masked(TEXT, '42["record",0]') * 200_000, (1008, None), RATE),
    Attack("three thousand events in a segment", masked(TEXT, '42["record",0]') * 3000, (1008,), RATE),
    Attack("ten thousand pings", masked(PING, b"x" * 125) * 10_000, (1008, None), RATE),
    Attack("ten thousand pongs", masked(PONG) * 10_000, (1008, None), RATE),
    Attack(
        "messages in many pieces",
        (masked(TEXT, "6", fin=False) + masked(CONTINUATION, fin=False) * 1000 + masked(CONTINUATION)) * 20,
        (1008, None),
        RATE,
    ),
    Attack("a frame without a mask", masked(TEXT, "4x", mask=False), (1002,)),
    Attack("text that is not UTF-8", masked(TEXT, b"4\xff"), (1007,)),
    Attack("a packet that Engine.IO does not know", masked(TEXT, "7"), (1002,), "invalid packet"),
    Attack("a packet that is no JSON", masked(TEXT, "42abc"), (1002,)),
    Attack("a binary message that nothing announced", masked(BINARY, b"\1"), (1002,)),
    # The same each time, or one day it begins with a valid close frame.
    *[
        Attack(f"noise {seed}", random.Random(seed).randbytes(65536) + b"\0" * 200_000, (1002, 1007, 1008, 1009, None))
        for seed in range(5)
    ],
]


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server with the default rate limit and a message limit of LIMIT bytes."""
    return start_shared_server(max_message_bytes=LIMIT)


def served(client: WebSocket) -> bool:
    """Return whether a client's request is answered."""
    client.send('427["message-with-ack","alive"]')
    return client.text() == '437["alive"]'


def attacked(server: ServerProcess, attack: Attack) -> tuple[Closed, int]:
    """Return how the server closed a client after its join, and these bytes; and by how many KB the server has grown."""
    attacker = WebSocket(server.port)
    with closing(attacker):
        attacker.join()
        server.forget_peak()
        start_kb = server.memory_kb()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            attacker.sock.sendall(attack.sent)
        return attacker.end(), server.peak_memory_kb() - start_kb


def test_each_attacker_is_cut_and_costs_nobody_anything(server: ServerProcess) -> None:
    """With a code and a reason, where it reads them; another client is served before and after each."""
    witness = WebSocket(server.port)
    with closing(witness):
        witness.join()
        for attack in ATTACKS:
            closed, grown_kb = attacked(server, attack)

            assert closed.code in attack.codes, (attack.name, closed)
            if closed.code is not None:
                assert closed.reason, attack.name
                assert attack.reason in (None, closed.reason), (attack.name, closed)
            assert grown_kb <= GROWTH_KB, attack.name
            assert served(witness), attack.name
