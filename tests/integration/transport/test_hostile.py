"""Hostile clients: each is cut with a code and a reason, costs little memory, and no other client notices (F15, F16, F17)."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator

import pytest

from tests.integration.transport.clients import Closed, Polling, WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer
from tests.support.websocket_codec import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, header, masked

GROWTH_KB = 5 * 1024
LIMIT = 100_000
GENEROUS = {"inbound_per_s": 1e6, "inbound_burst": 1_000_000}


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server with the default rate limit and a message limit of LIMIT bytes."""
    return start_shared_server(max_message_bytes=LIMIT)


@pytest.fixture
def witness(server: ServerProcess) -> Iterator[WebSocket]:
    """Another client of the same server: it must be served before, and after."""
    witness = WebSocket(server.port)
    with closing(witness):
        witness.join()
        assert served(witness)
        yield witness
        assert served(witness)


@pytest.fixture
def attacker(server: ServerProcess, witness: WebSocket) -> Iterator[WebSocket]:
    """A client that has joined; at the end the process must not have grown."""
    attacker = WebSocket(server.port)
    with closing(attacker):
        attacker.join()
        server.forget_peak()
        start_kb = server.memory_kb()
        yield attacker
        assert server.peak_memory_kb() - start_kb <= GROWTH_KB


def served(client: WebSocket) -> bool:
    """Return whether a client's request is answered."""
    client.send('427["message-with-ack","alive"]')
    return client.text() == '437["alive"]'


def pour(client: WebSocket, data: bytes) -> None:
    """Send as much as the server takes; it may close at any point."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sock.sendall(data)


class TestSize:
    """Payloads above the limit: refused from their header, nothing buffered."""

    @pytest.mark.parametrize("opcode", [TEXT, BINARY])
    @pytest.mark.parametrize("declared", [LIMIT + 1, 10**9, 2**40, 2**63 - 1, 2**64 - 1])
    def test_a_frame_is_refused_from_its_header(self, attacker: WebSocket, opcode: int, declared: int) -> None:
        """1009 with the limit, before a byte of payload was sent."""
        attacker.sock.sendall(header(opcode, declared) + b"\x01\x02\x03\x04")

        closed = attacker.end()

        assert (closed.code, closed.reason) == (1009, f"message too big: at most {LIMIT} bytes")

    @pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
    def test_the_limit_itself_is_allowed(self, attacker: WebSocket, size: int) -> None:
        """In bytes of UTF-8: the boundary is exact, and two-byte characters count twice."""
        padding = "ü" * ((size - 40) // 2)
        packet = f'421["message-with-ack","{padding}"'
        packet += " " * (size - len(packet.encode()) - 1) + "]"
        assert len(packet.encode()) == size
        attacker.send(packet)

        assert attacker.text().startswith('431["')

    def test_one_byte_more_in_utf8_is_too_much(self, attacker: WebSocket) -> None:
        """Though it has fewer characters than the limit."""
        attacker.send("ü" * (LIMIT // 2) + "x")

        assert attacker.end().code == 1009

    def test_twenty_megabytes_in_one_frame(self, attacker: WebSocket) -> None:
        """The frame is sent whole, as a careless client would."""
        pour(attacker, header(BINARY, 20_000_000) + b"\x00" * 4 + b"\x00" * 20_000_000)

        assert refused(attacker).code in (1009, None)

    def test_fragments_are_added_up(self, attacker: WebSocket) -> None:
        """Each is small, together they are not."""
        attacker.sock.sendall(
            masked(TEXT, "4" + "x" * (LIMIT // 2), fin=False) + masked(CONTINUATION, "x" * (LIMIT // 2), fin=False)
        )

        assert attacker.end().code == 1009

    def test_a_hundred_thousand_fragments(self, attacker: WebSocket) -> None:
        """The number of pieces is bounded, not only their size."""
        pour(attacker, masked(TEXT, "4", fin=False) + masked(CONTINUATION, "x", fin=False) * 100_000)

        closed = refused(attacker)

        assert closed.code in (1008, None)
        assert closed.code is None or closed.reason == "too many fragments: at most 1024"

    def test_empty_fragments_count(self, attacker: WebSocket) -> None:
        """They weigh nothing and would go on for ever."""
        attacker.sock.sendall(masked(TEXT, "", fin=False) + masked(CONTINUATION, "", fin=False) * 1024)

        assert attacker.end().reason == "too many fragments: at most 1024"

    def test_polling_bodies_have_the_same_limit(self, server: ServerProcess, witness: WebSocket) -> None:
        """413 with both numbers."""
        session = Polling(server.port)
        answer = session.post("4" + "x" * LIMIT)

        assert answer.status == 413
        assert f"payload_too_large: {LIMIT + 1} bytes, at most {LIMIT}" in answer.json["message"]


class TestRate:
    """Too many messages: the token bucket, with a code that says so."""

    def test_two_hundred_thousand_tiny_events(self, attacker: WebSocket) -> None:
        """The connection ends at the hundred-and-first."""
        pour(attacker, masked(TEXT, '42["record",0]') * 200_000)

        closed = refused(attacker)

        assert closed.code in (1008, None)
        assert closed.code is None or closed.reason == "limit_reached: rate (at most 50/s, burst 100)"

    def test_the_reason_is_told(self, attacker: WebSocket) -> None:
        """A client that floods within one segment reads why it was cut."""
        attacker.send(*['42["record",0]'] * 3000)

        closed = attacker.end()

        assert (closed.code, closed.reason) == (1008, "limit_reached: rate (at most 50/s, burst 100)")

    def test_a_ping_flood_is_a_flood(self, attacker: WebSocket) -> None:
        """Control frames cost tokens too, and their answers do not pile up."""
        pour(attacker, masked(PING, b"x" * 125) * 10_000)

        assert refused(attacker).code in (1008, None)

    def test_a_pong_flood_is_a_flood(self, attacker: WebSocket) -> None:
        """Nobody answers them, but each has to be parsed."""
        pour(attacker, masked(PONG) * 10_000)

        assert refused(attacker).code in (1008, None)

    def test_fragments_are_not_free(self, attacker: WebSocket) -> None:
        """Few messages, each in as many pieces as one may have: a flood all the same."""
        message = masked(TEXT, "6", fin=False) + masked(CONTINUATION, fin=False) * 1000 + masked(CONTINUATION)
        pour(attacker, message * 20)

        assert refused(attacker).code in (1008, None)

    def test_a_message_may_come_in_pieces(self, attacker: WebSocket) -> None:
        """As browsers send a large one: what each piece costs is little."""
        whole = ('421["message-with-ack","' + "x" * 90_000 + '"]').encode()
        pieces = [whole[at : at + 1000] for at in range(0, len(whole), 1000)]
        stream = b"".join(masked(CONTINUATION if number else TEXT, piece, fin=False) for number, piece in enumerate(pieces))
        attacker.sock.sendall(stream + masked(CONTINUATION))

        assert attacker.text() == '431["' + "x" * 90_000 + '"]'

    @pytest.mark.parametrize("asynchronous", [True, False])
    def test_slow_handlers_stop_the_reading(self, start_server: StartServer, asynchronous: bool) -> None:
        """Events wait in the client's own socket; handlers and waiting messages stay bounded, and all are delivered at last."""
        server = start_server(**GENEROUS, options={"async_handlers": asynchronous})
        client, witness = WebSocket(server.port), WebSocket(server.port)
        with closing(client, witness):
            client.join()
            witness.join()
            client.sock.settimeout(0.5)
            sent = b"".join(masked(TEXT, f'42["slow",{number},"{"x" * 1000}"]') for number in range(20_000))
            try:
                client.sock.sendall(sent)
                stalled = False
            except TimeoutError:
                stalled = True
            state = server.until(lambda state: state["inbox"], "messages waiting")
            assert served(witness)
            server.debug("release")

        assert stalled, "20 MB were taken although nothing was handled"
        assert state["inbox"] <= 64 + 65536 // 1000
        assert state["most_running"] <= (64 if asynchronous else 1)


class TestFrames:
    """What RFC 6455 forbids."""

    @pytest.mark.parametrize(
        ("sent", "code"),
        [
            (masked(TEXT, "4x", mask=False), 1002),
            (masked(TEXT, "4x", reserved=0b100), 1002),
            (masked(TEXT, "4x", reserved=0b010), 1002),
            (masked(TEXT, "4x", reserved=0b001), 1002),
            (masked(PING, "", reserved=0b100), 1002),
            (masked(3, "4x"), 1002),
            (masked(11, ""), 1002),
            (masked(CONTINUATION, "x"), 1002),
            (masked(TEXT, "4", fin=False) + masked(TEXT, "4"), 1002),
            (masked(PING, "", fin=False), 1002),
            (masked(PING, b"x" * 126), 1002),
            (masked(CLOSE, b"x" * 126), 1002),
            (masked(CLOSE, b"\x03"), 1002),
            (masked(CLOSE, b"\x03\xed"), 1002),
            (masked(CLOSE, b"\x00\x00"), 1002),
            (masked(CLOSE, b"\x03\xf7"), 1002),
            (masked(CLOSE, b"\x13\x88"), 1002),
            (masked(CLOSE, b"\x03\xe8\xff"), 1007),
            (masked(TEXT, b"4\xff"), 1007),
            (masked(TEXT, b"4\xc0\xaf"), 1007),
            (masked(TEXT, b"4\xed\xa0\x80"), 1007),
            (masked(TEXT, b"4\xc3", fin=False) + masked(CONTINUATION, b"("), 1007),
        ],
        ids=lambda value: value[:12].hex() if isinstance(value, bytes) else str(value),
    )
    def test_a_malformed_frame_closes_with_the_right_code(self, attacker: WebSocket, sent: bytes, code: int) -> None:
        """And a reason."""
        attacker.sock.sendall(sent)

        closed = attacker.end()

        assert closed.code == code
        assert closed.reason

    def test_a_character_may_be_split_between_fragments(self, attacker: WebSocket) -> None:
        """UTF-8 is checked over the whole message; control frames may come in between."""
        whole = '421["message-with-ack","€"]'.encode()
        cut = whole.index("€".encode()) + 1
        attacker.sock.sendall(masked(TEXT, whole[:cut], fin=False) + masked(PING, b"p") + masked(CONTINUATION, whole[cut:]))

        assert json.loads(attacker.text()[3:]) == ["€"]

    def test_a_ping_fits_between_the_fragments_of_the_largest_message(self, attacker: WebSocket) -> None:
        """A control frame does not count against the size of the message that it interrupts."""
        whole = ('421["message-with-ack","' + "x" * (LIMIT - 26) + '"]').encode()
        assert len(whole) == LIMIT
        attacker.sock.sendall(masked(TEXT, whole, fin=False) + masked(PING, b"x" * 125) + masked(CONTINUATION, b""))

        assert attacker.text() == '431["' + "x" * (LIMIT - 26) + '"]'

    def test_frames_arrive_in_any_pieces(self, attacker: WebSocket) -> None:
        """One byte at a time is as good as all at once."""
        for byte in masked(TEXT, '421["message-with-ack",1]'):
            attacker.sock.sendall(bytes([byte]))

        assert attacker.text() == "431[1]"

    @pytest.mark.parametrize("attempt", range(5))
    def test_noise_closes_the_connection(self, attacker: WebSocket, attempt: int) -> None:
        """A random stream instead of frames; the same each time, or one day it begins with a valid close frame."""
        pour(attacker, random.Random(attempt).randbytes(65536) + b"\x00" * 200_000)

        assert refused(attacker).code in (1002, 1007, 1008, 1009, None)


def refused(client: WebSocket) -> Closed:
    """Return how the server closed a client that goes on sending: the close frame, or a reset when it sent too much."""
    return client.end()
