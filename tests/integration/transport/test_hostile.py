"""Hostile and stopped clients of a real gateway. Each is cut, costs little, and no other client notices (F7, F15, F16, F17).

The rules are proven where they are decided, in tests/unit/transport: frames (test_frame_parser.py), rates (test_inbox.py),
bodies (test_engine.py), the queue's bounds (test_send_queue.py), the write deadline (test_websocket.py); and that nothing of
a session is left, in tests/unit/node/test_garbage.py.
"""

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from headgate.node.gateway import ENVELOPE_BYTES
from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.fault.usage import descriptors, resident_bytes
from tests.integration.transport.clients import Closed, WebSocket, closing
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.redis_server import wait_until
from tests.support.websocket_codec import BINARY, CONTINUATION, PING, PONG, TEXT, header, masked

GROWTH_BYTES = 5 * 2**20
LIMIT = 2 * Settings().max_payload_bytes + ENVELOPE_BYTES
# The kernel keeps so much for a client that reads nothing. These are the smallest buffers of both ends (tcp(7)), for quick tests.
SMALL_BUFFER_BYTES = 4096
EVENT = '42/notifications,["event",'
REQUEST = '42/notifications,7["subscribe",{"pattern":"a.b"}]'
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
    Attack("two hundred thousand requests", masked(TEXT, REQUEST) * 200_000, (1008, None), RATE),
    Attack("three thousand requests in a segment", masked(TEXT, REQUEST) * 3000, (1008,), RATE),
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
def gateway(start_module_gateway: StartGateway) -> Iterator[GatewayProcess]:
    """A gateway with the default limits, but for those of clients that do not read."""
    small = {"HEADGATE_WRITE_DEADLINE_S": "1", "HEADGATE_SEND_BUFFER_BYTES": str(SMALL_BUFFER_BYTES)}
    gateway = start_module_gateway(small, "--dev")
    yield gateway
    assert "Traceback" not in gateway.output


def join(gateway: GatewayProcess, pattern: str, receive_buffer_bytes: int | None = None) -> WebSocket:
    client = WebSocket(urlsplit(gateway.url).port or 0, receive_buffer_bytes=receive_buffer_bytes)
    client.send("40/notifications," + json.dumps({"subscriptions": [{"pattern": pattern}]}))
    assert client.text().startswith("40/notifications,")
    assert client.text().startswith('42/notifications,["welcome",')
    return client


def next_of(client: WebSocket, prefix: str) -> str:
    """Return the next message with a prefix, without it; cursors may come before."""
    while not (text := client.text()).startswith(prefix):
        assert text.startswith('42/notifications,["cursor",'), text
    return text.removeprefix(prefix)


def served(client: WebSocket) -> bool:
    client.send(REQUEST)
    return next_of(client, "43/notifications,7").startswith('[{"ok":true')


def attacked(gateway: GatewayProcess, attack: Attack) -> tuple[Closed, int]:
    """Return how the gateway closed a client after its join, and these bytes; and by how many bytes the gateway has grown."""
    attacker = join(gateway, "nothing.here")
    with closing(attacker):
        start_bytes = resident_bytes(gateway.pid)
        Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")  # the peak is measured from here on (proc(5))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            attacker.sock.sendall(attack.sent)
        closed = attacker.end()
        status = Path(f"/proc/{gateway.pid}/status").read_text()
        peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        return closed, peak_kb * 1024 - start_bytes


def test_each_attacker_is_cut_and_costs_nobody_anything(gateway: GatewayProcess) -> None:
    """With a code and a reason, where it reads them; another client is served before and after each."""
    witness = join(gateway, "a.*")
    with closing(witness):
        for attack in ATTACKS:
            closed, grown_bytes = attacked(gateway, attack)

            assert closed.code in attack.codes, (attack.name, closed)
            if closed.code is not None:
                assert closed.reason, attack.name
                assert attack.reason in (None, closed.reason), (attack.name, closed)
            assert grown_bytes <= GROWTH_BYTES, attack.name
            assert served(witness), attack.name


def test_a_stopped_client_is_closed_at_the_write_deadline_and_its_connection_is_freed(gateway: GatewayProcess) -> None:
    """The witness has every event of that time, in order."""
    url = find_private_redis(gateway.folder / "data")
    assert url is not None
    witness = join(gateway, "orders.*")
    with closing(witness), Publisher(url) as publisher:
        before = len(descriptors(gateway.pid))
        stopped = [join(gateway, "orders.*", SMALL_BUFFER_BYTES) for _ in range(5)]
        with closing(*stopped):
            assert len(descriptors(gateway.pid)) == before + 5
            # More than the stopped ones' kernel holds, less than the witness's, because that one need not be quick.
            publisher.publish_many([("orders.1", [number, "x" * 2000]) for number in range(20)])
            events = [next_of(witness, EVENT) for _ in range(20)]
            wait_until(lambda: len(descriptors(gateway.pid)) == before, "the write deadline")
            publisher.publish("orders.1", [20])
            events.append(next_of(witness, EVENT))

    assert [json.loads("[" + event)[1][0] for event in events] == list(range(21))
    assert gateway.metric('headgate_sessions_ended_total{reason="write deadline"}') == 5
