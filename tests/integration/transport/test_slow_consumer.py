"""Clients that read slowly or not at all: bounded, cut at the deadline, freed; and healthy ones, never cut (F6, F7, F8)."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.transport.clients import Closed, Polling, WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer
from tests.support.websocket_codec import CLOSE, PING, PONG, TEXT, close_told, frame_at, masked

# What a client that reads nothing may keep in the kernel: both ends' smallest buffers (tcp(7)), so that tests are quick.
SMALL_BUFFER_BYTES = 4096


def stopped(server: ServerProcess) -> WebSocket:
    """Return a joined client that will not read any more."""
    client = WebSocket(server.port, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    client.join()
    return client


class TestStopped:
    """A client that accepts nothing."""

    @pytest.mark.timeout(240)
    def test_it_is_closed_at_the_write_deadline_and_everything_is_freed(self, start_server: StartServer) -> None:
        """File descriptor, watchers, greenlets, the session and its queue; the witness notices nothing."""
        server = start_server(write_deadline_s=1, send_buffer_bytes=SMALL_BUFFER_BYTES)
        names = ("fds", "watchers", "greenlets", "wires", "connections", "sessions", "environs")
        witness = WebSocket(server.port)
        with closing(witness):
            witness.join()
            before = server.state()
            clients = [stopped(server) for _ in range(5)]
            with closing(*clients):
                # More than the stopped ones' kernel holds, less than the witness's: that one need not be quick.
                server.debug("emit", count=20, size=2000)
                received = [witness.text() for _ in range(20)]
                ends = server.until(lambda state: len(state["ends"]) == 5, "the write deadline")["ends"]
                server.debug("forget")
                server.until(lambda state: all(state[name] == before[name] for name in names), f"as before: {before}")
                server.debug("emit", count=1, first=20)
                received.append(witness.text())

        assert [json.loads(packet[2:])[1] for packet in received] == list(range(21))
        assert ends == ["write deadline"] * 5

    def test_its_queue_is_bounded_in_frames(self, start_server: StartServer) -> None:
        """A plain application has no log to catch up from: the client is cut, with a reason."""
        server = start_server(queue_frames=50, send_buffer_bytes=SMALL_BUFFER_BYTES, write_deadline_s=60)
        with closing(stopped(server)):
            before = server.debug("sessions")
            # One write takes up to 64 KB of what waits, 16 of these: most stay in the queue, whatever the kernel holds.
            server.debug("emit", count=40, size=4000)
            (session,) = server.debug("sessions")
            server.debug("emit", count=100, size=4000)
            state = server.until(lambda state: state["ends"], "the end")

        assert before[0]["frames"] == 0
        assert 0 < session["frames"] <= 40
        assert state["ends"] == ["slow consumer"]

    def test_its_queue_is_bounded_in_bytes(self, start_server: StartServer) -> None:
        """At most the limit waits, however large the frames: memory stays, and the process owes nothing afterwards."""
        server = start_server(queue_bytes=500_000, queue_frames=10_000, send_buffer_bytes=SMALL_BUFFER_BYTES, write_deadline_s=60)
        with closing(stopped(server)):
            server.debug("emit", count=8, size=60_000)
            (session,) = server.debug("sessions")
            server.debug("emit", count=10, size=60_000)
            state = server.until(lambda state: state["ends"], "the end")

        assert session["peak_bytes"] <= 500_000
        assert session["bytes"] > 300_000
        assert state["ends"] == ["slow consumer"]

    def test_a_polling_client_obeys_the_same_bounds(self, start_server: StartServer) -> None:
        """Not polling is not reading."""
        server = start_server(queue_frames=50)
        session = Polling(server.port)
        session.join()
        session.packets()
        server.debug("emit", count=50)
        (described,) = server.debug("sessions")
        server.debug("emit", count=1)
        state = server.until(lambda state: state["ends"], "the end")

        assert described["frames"] == 50
        assert state["ends"] == ["slow consumer"]
        assert session.get().status == 400

    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    def test_an_acknowledgement_that_finds_no_room_ends_the_session(self, start_server: StartServer, binary: bool) -> None:
        """It has its place among the events, and is not lost in silence: the rule of the full queue holds for it too."""
        server = start_server(queue_frames=50)
        session = Polling(server.port)
        session.join()
        session.packets()
        server.debug("emit", count=50)
        if binary:
            session.post('451-1["message-with-ack",{"_placeholder":true,"num":0}]', "bAQID")
        else:
            session.post('421["message-with-ack","no room"]')
        state = server.until(lambda state: state["ends"], "the end")

        assert state["ends"] == ["slow consumer"]

    def test_memory_stays_bounded_while_one_client_never_reads(self, start_server: StartServer) -> None:
        """60 KB a hundred times: at most its 1 MiB and the kernel's share; the others get everything."""
        server = start_server(write_deadline_s=60)
        witness = WebSocket(server.port)
        with closing(witness):
            witness.join()
            server.debug("emit", count=20, size=60_000)
            for _ in range(20):
                witness.text()
            with closing(stopped(server)):
                server.forget_peak()
                start_kb = server.memory_kb()
                for number in range(100):
                    server.debug("emit", count=1, size=60_000, first=number)
                    assert json.loads(witness.text()[2:])[1] == number
                grown_kb = server.peak_memory_kb() - start_kb
                ends = server.state()["ends"]

        assert ends == ["slow consumer"]
        assert grown_kb <= 5 * 1024

    def test_data_does_not_crowd_out_control(self, start_server: StartServer) -> None:
        """With a full data lane a ping still finds room, and goes out ahead of what waits."""
        server = start_server(queue_frames=40, send_buffer_bytes=SMALL_BUFFER_BYTES, ping_timeout_s=60, write_deadline_s=60)
        client = stopped(server)
        with closing(client):
            server.debug("emit", count=40, size=25_000)
            server.debug("ping")
            assert server.state()["control_frames"] == 1
            received = [client.receive() for _ in range(41)]

        ping = received.index("2")
        assert ping < 40, "the ping came behind all data"
        events = [json.loads(message[2:])[1] for message in received if isinstance(message, str) and message != "2"]
        assert events == list(range(40))


class TestSlow:
    """A client that reads, but slowly."""

    @pytest.mark.timeout(300)
    def test_framing_stays_valid_over_a_hundred_thousand_messages(self, start_server: StartServer) -> None:
        """Every message, in order, through a reader of small, uneven sips: no frame is cut, doubled or swapped."""
        server = start_server(send_buffer_bytes=SMALL_BUFFER_BYTES, queue_frames=256, write_deadline_s=60)
        client = stopped(server)
        with closing(client):
            server.debug("start_pace", count=100_000, sizes=[0, 1, 113, 700])
            pending = bytearray()
            expected, sip = 0, 0
            while expected < 100_000:
                sip = (sip + 617) % 4096
                data = client.sock.recv(sip + 1)
                assert data, "the server closed"
                pending += data
                expected = checked(pending, expected, client)

        assert expected == 100_000

    def test_a_slow_reader_that_pings_is_answered(self, start_server: StartServer) -> None:
        """Between two frames; of many pings in a row the latest counts (RFC 6455 section 5.5.3)."""
        server = start_server(send_buffer_bytes=SMALL_BUFFER_BYTES, write_deadline_s=60)
        client = stopped(server)
        with closing(client):
            server.debug("emit", count=10, size=50_000)
            client.sock.sendall(masked(PING, b"first") + masked(PING, b"last") + masked(TEXT, '42["record","behind the pings"]'))
            server.until(lambda state: state["seen"], "the pings read")
            frames = [client.receive_frame() for _ in range(11)]

        assert [payload for opcode, payload in frames if opcode == PONG] == [b"last"]
        events = [json.loads(payload[2:])[1] for opcode, payload in frames if opcode == TEXT]
        assert events == list(range(10))


class TestHealthy:
    """No false positive."""

    @pytest.mark.parametrize("attempt", range(3))
    def test_a_burst_to_a_healthy_reader_is_never_cut(self, start_server: StartServer, attempt: int) -> None:
        """500 x 64 KB, 31 MB, as fast as the reader's queue has room: all of it arrives, nobody is disconnected (F8)."""
        server = start_server(write_deadline_s=10)
        client = WebSocket(server.port)
        with closing(client):
            client.join()
            server.debug("start_pace", count=500, sizes=[65_000])
            numbers = [json.loads(client.text()[2:])[1] for _ in range(500)]
            ends = server.state()["ends"]

        assert numbers == list(range(500))
        assert ends == []

    def test_a_reader_slower_than_the_write_deadline_lives_while_it_accepts_bytes(self, start_server: StartServer) -> None:
        """The deadline is for progress, not for the whole backlog."""
        server = start_server(write_deadline_s=5, send_buffer_bytes=SMALL_BUFFER_BYTES)
        client = stopped(server)
        with closing(client):
            server.debug("emit", count=8, size=80_000)
            received = 0
            start_s = time.monotonic()
            # Ten seconds at least, two deadlines: the pace is the test, not a wait for something.
            while received < 640_000:
                data = client.sock.recv(1280)
                assert data, f"cut after {received} bytes and {time.monotonic() - start_s:.1f} s"
                received += len(data)
                time.sleep(0.02)

    def test_one_stopped_client_does_not_delay_the_others(self, start_server: StartServer) -> None:
        """Every other client gets every event while one reads nothing (its queue is cut or full meanwhile)."""
        server = start_server(write_deadline_s=60, send_buffer_bytes=SMALL_BUFFER_BYTES)
        others = [WebSocket(server.port) for _ in range(5)]
        with closing(stopped(server), *others):
            for other in others:
                other.join()
            for first in range(0, 200, 20):
                server.debug("emit", count=20, size=5000, first=first)
                for other in others:
                    assert [json.loads(other.text()[2:])[1] for _ in range(20)] == list(range(first, first + 20))


def checked(pending: bytearray, expected: int, client: WebSocket) -> int:
    """Take whole frames off `pending`, check that they are the next events, answer pings; return what comes next."""
    position = 0
    while (frame := frame_at(pending, position)) is not None:
        payload, position = bytes(pending[frame.start : frame.end]), frame.end
        if frame.opcode == CLOSE:
            raise Closed(*close_told(payload))
        assert frame.opcode == TEXT
        text = payload.decode()
        if text == "2":
            client.send("3")
            continue
        name, number, padding = json.loads(text[2:])
        assert (name, number) == ("event", expected)
        assert padding == "x" * len(padding)
        expected += 1
    del pending[:position]
    return expected
