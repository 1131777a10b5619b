"""Engine.IO protocol 4, as its specification and the reference server behave: handshake, messages, heartbeat, close, upgrade."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.transport.clients import Polling, WebSocket, answer_on, ask, closing, dial
from tests.integration.transport.server_process import DEADLINE_S, ServerProcess, StartServer
from tests.support.websocket_codec import CLOSE, PING, PONG, TEXT, masked

PATH = "/engine.io/"


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server with the default limits, but for a heartbeat and a refill of tokens that never come into a test's way."""
    return start_shared_server(ping_interval_s=60, ping_timeout_s=20, inbound_per_s=1)


@pytest.fixture(scope="module")
def brisk(start_shared_server: StartServer) -> ServerProcess:
    """A server that pings often, and waits long for an answer."""
    return start_shared_server(ping_interval_s=0.3, ping_timeout_s=60)


@pytest.fixture(scope="module")
def hasty(start_shared_server: StartServer) -> tuple[ServerProcess, Iterator[Polling]]:
    """A server to which a request must come quickly, and a few of its sessions, opened when there was time yet."""
    server = start_shared_server(ping_interval_s=3600)
    sessions = [Polling(server.port, PATH) for _ in range(8)]
    server.debug("hasten", header_deadline_s=0.5, body_deadline_s=0.5, keep_alive_s=0.5)
    return server, iter(sessions)


class TestHandshake:
    """Opening a session."""

    def test_polling_opens_a_session(self, server: ServerProcess) -> None:
        """The first poll's answer is the OPEN packet and nothing else."""
        opening = Polling(server.port, PATH).opening

        assert set(opening) == {"sid", "upgrades", "pingInterval", "pingTimeout", "maxPayload"}
        assert (opening["upgrades"], opening["pingInterval"], opening["pingTimeout"]) == (["websocket"], 60000, 20000)
        assert opening["maxPayload"] == 1_000_000

    def test_websocket_opens_a_session_without_upgrades(self, server: ServerProcess) -> None:
        """A session that is on WebSocket has nowhere to go."""
        client = WebSocket(server.port, PATH)

        with closing(client):
            assert client.opening["upgrades"] == []
            assert client.headers["upgrade"].lower() == "websocket"

    def test_session_ids_are_not_repeated(self, server: ServerProcess) -> None:
        """Every session has an id of its own."""
        assert len({Polling(server.port, PATH).sid for _ in range(20)}) == 20

    @pytest.mark.parametrize(("interval_s", "timeout_s", "announced"), [(0.3, 0.2, (300, 200)), (1.5, 0.75, (1500, 750))])
    def test_sub_second_intervals_are_announced_in_ms(
        self, start_server: StartServer, interval_s: float, timeout_s: float, announced: tuple[int, int]
    ) -> None:
        """Stock announces 0 for 0.3 s."""
        opening = Polling(start_server(ping_interval_s=interval_s, ping_timeout_s=timeout_s).port).opening

        assert (opening["pingInterval"], opening["pingTimeout"]) == announced

    @pytest.mark.parametrize(
        ("method", "query", "code"),
        [
            ("GET", "", 0),
            ("GET", "EIO=4", 0),
            ("GET", "EIO=4&transport=", 0),
            ("GET", "EIO=4&transport=carrier-pigeon", 0),
            ("GET", "transport=polling", 5),
            ("GET", "EIO=3&transport=polling", 5),
            ("GET", "EIO=abc&transport=polling", 5),
            ("POST", "EIO=4&transport=polling", 2),
            ("PUT", "EIO=4&transport=polling", 2),
            ("DELETE", "EIO=4&transport=polling", 2),
            ("GET", "EIO=4&transport=polling&sid=nobody", 1),
            ("POST", "EIO=4&transport=polling&sid=nobody", 1),
            ("GET", "EIO=4&transport=websocket&sid=nobody", 3),
            ("GET", "EIO=4&transport=websocket", 3),
            ("GET", "EIO=4&transport=polling" + "&x=1" * 40, 3),
        ],
    )
    @pytest.mark.parametrize("path", [PATH, "/socket.io/"])
    def test_a_wrong_request_is_answered_400_with_its_code(
        self, server: ServerProcess, path: str, method: str, query: str, code: int
    ) -> None:
        """The codes are the reference server's."""
        answer = ask(server.port, method, f"{path}?{query}")

        assert answer.status == 400
        assert answer.json["code"] == code

    def test_a_method_other_than_get_and_post_on_a_session_is_refused(self, server: ServerProcess) -> None:
        """PUT and DELETE mean nothing here, and do the session no harm."""
        session = Polling(server.port, PATH)

        assert [ask(server.port, method, session.target).status for method in ("PUT", "DELETE")] == [400, 400]
        assert session.post("4still here").status == 200
        assert session.packets() == ["4still here"]

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"Sec-WebSocket-Version": "8"}, 426),
            ({"Upgrade": "h2c"}, 400),
        ],
    )
    def test_a_wrong_websocket_handshake_is_refused(self, server: ServerProcess, headers: dict[str, str], status: int) -> None:
        """RFC 6455 section 4.2.1; the session that was begun for it is not kept."""
        before = set(server.state()["sessions"])

        assert WebSocket(server.port, PATH, headers=headers).status == status
        assert set(server.state()["sessions"]) <= before

    def test_deflate_is_offered_in_vain(self, server: ServerProcess) -> None:
        """Compression costs 100 KB per client and opens the door to bombs: it is not negotiated."""
        client = WebSocket(server.port, PATH, headers={"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"})

        with closing(client):
            client.send("4" + "a" * 1000)
            assert "sec-websocket-extensions" not in client.headers
            assert client.receive() == "4" + "a" * 1000

    def test_frames_sent_right_behind_the_handshake_are_read(self, server: ServerProcess) -> None:
        """A client need not wait for the 101."""
        client = WebSocket(server.port, PATH, pipelined=masked(TEXT, "4early") + masked(TEXT, "4bird"))

        with closing(client):
            assert [client.receive(), client.receive()] == ["4early", "4bird"]


class TestMessages:
    """Both directions, both transports, text and binary."""

    def test_messages_over_polling_keep_their_order(self, server: ServerProcess) -> None:
        """Several packets in one body, several in one answer."""
        session = Polling(server.port, PATH)
        sent = ["4one", "4two", "4", "4drei ü €", "bAQIDBA=="]

        answer = session.post(*sent)
        received: list[str] = []
        while len(received) < len(sent):
            received += session.packets()

        assert (answer.status, answer.body) == (200, "ok")
        assert received == sent

    @pytest.mark.parametrize("count", [16, 17, 40, 100])
    def test_many_packets_in_one_body_are_all_delivered(self, server: ServerProcess, count: int) -> None:
        """Stock answers 200 to 17 and drops them all."""
        session = Polling(server.port, PATH)
        sent = [f"4{number}" for number in range(count)]

        assert session.post(*sent).status == 200
        received: list[str] = []
        while len(received) < count:
            received += session.packets()

        assert received == sent

    def test_more_packets_than_a_session_may_send_are_refused(self, server: ServerProcess) -> None:
        """Refused, with 400 and the end of the session: never taken and lost."""
        session = Polling(server.port, PATH)

        assert session.post(*(f"4{number}" for number in range(101))).status == 400
        assert session.get().status == 400

    def test_a_body_that_runs_into_the_rate_limit_is_not_answered_ok(self, server: ServerProcess) -> None:
        """The second body exceeds what the bucket holds: what was not taken must not be answered 200."""
        session = Polling(server.port, PATH)

        first, second = session.post(*["4a"] * 90), session.post(*["4b"] * 90)

        assert (first.status, second.status) == (200, 400)

    def test_websocket_echoes_text_and_binary(self, server: ServerProcess) -> None:
        """Every length encoding of RFC 6455 section 5.2, at its edges."""
        client = WebSocket(server.port, PATH)

        with closing(client):
            for size in (0, 1, 124, 125, 126, 65534, 65535, 65536, 200_000):
                client.send("4" + "x" * size)
                assert client.receive() == "4" + "x" * size
                client.send(b"\xff" * (size + 1))
                assert client.receive() == b"\xff" * (size + 1)

    @pytest.mark.parametrize("body", ["abc", "4ok\x1e", "b!!!"])
    def test_an_invalid_body_is_refused_and_ends_the_session(self, server: ServerProcess, body: str) -> None:
        """As the reference server does."""
        session = Polling(server.port, PATH)

        assert session.post(body).status == 400
        assert session.get().status == 400

    def test_a_body_that_is_not_utf8_is_refused(self, server: ServerProcess) -> None:
        """Bytes that are no text cannot be a packet."""
        session = Polling(server.port, PATH)

        assert ask(server.port, "POST", session.target, b"4\xff\xfe").status == 400

    def test_an_invalid_packet_closes_the_websocket(self, server: ServerProcess) -> None:
        """With a code and a reason that say so."""
        client = WebSocket(server.port, PATH)

        with closing(client):
            client.send("7")
            closed = client.end()

        assert (closed.code, closed.reason) == (1002, "invalid packet")

    def test_messages_before_an_invalid_packet_are_not_lost(self, server: ServerProcess) -> None:
        """What the application was sent in order, it gets, though the same segment ends the connection."""
        client = WebSocket(server.port, "/socket.io/")
        with closing(client):
            client.join()
            client.send('42["record","the last valid one"]', "9")
            client.end()

        server.until(lambda state: "the last valid one" in state["seen"], "the record")


class TestHeartbeat:
    """The server pings, the client answers, silence ends the session."""

    def test_a_websocket_client_is_pinged(self, brisk: ServerProcess) -> None:
        """Three rounds."""
        client = WebSocket(brisk.port, PATH)

        with closing(client):
            for _ in range(3):
                assert client.receive() == "2"
                client.send("3")

    def test_a_server_that_stood_still_does_not_blame_its_clients(self, start_server: StartServer) -> None:
        """Its timers are late, and the pong has been in its socket for long: that is read first."""
        ping_timeout_s = 0.5
        server = start_server(ping_interval_s=3600, ping_timeout_s=ping_timeout_s)
        client = WebSocket(server.port, PATH)
        with closing(client), ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(server.debug, "ping_and_stop")
            assert client.receive() == "2"
            client.send("3")
            time.sleep(3 * ping_timeout_s)  # the stall itself: the pong's deadline passes in it
            server.resume()
            stopped.result()
            client.send("4still here")

            assert client.receive() == "4still here"
            assert client.opening["sid"] not in server.state()["reasons"]


class TestClose:
    """Ending a session from either side."""

    def test_a_closing_post_ends_the_waiting_poll_with_a_noop(self, server: ServerProcess) -> None:
        """The official suite's `6`, whichever of the two requests arrives first."""
        for _ in range(10):
            session = Polling(server.port, PATH)
            with ThreadPoolExecutor(2) as pool:
                poll, close = pool.submit(session.get), pool.submit(session.post, "1")

            assert (close.result().status, close.result().body) == (200, "ok")
            assert (poll.result().status, poll.result().body) == (200, "6")
            assert session.get().status == 400

    def test_a_second_poll_ends_both(self, server: ServerProcess) -> None:
        """The first is told CLOSE, the second is refused, the session is gone."""
        session = Polling(server.port, PATH)
        first = session.begin_poll()
        server.until(lambda state: session.sid in state["polls"], "the first poll waiting")

        second = session.get()

        with first:
            assert answer_on(first).body == "1"
        assert second.status == 400
        assert session.get().status == 400
        server.until(lambda state: session.sid not in state["sessions"], "the end of the session")

    def test_a_close_frame_is_answered(self, server: ServerProcess) -> None:
        """And the application is told at once, not when the socket has lingered out."""
        client = WebSocket(server.port, PATH)
        sid = client.opening["sid"]

        with closing(client):
            client.sock.sendall(masked(CLOSE, b"\x03\xe8bye"))
            assert client.end().code == 1000
            reasons = server.until(lambda state: sid in state["reasons"], "the end")["reasons"]

        assert reasons[sid] == "transport close"

    def test_what_was_sent_before_the_end_still_arrives_by_the_next_poll(self, server: ServerProcess) -> None:
        """A session that the server ends between two polls leaves its final frames, once."""
        session = Polling(server.port, PATH)
        server.debug("end")

        assert session.packets() == ["4final", "1"]
        assert session.get().status == 400

    def test_an_aborted_poll_does_not_swallow_the_next_message(self, server: ServerProcess) -> None:
        """The session ends, as with the reference server: the client must know that something may be missing."""
        session = Polling(server.port, PATH)
        poll = session.begin_poll()
        server.until(lambda state: session.sid in state["polls"], "the poll waiting")
        poll.close()
        server.until(lambda state: session.sid not in state["polls"], "the poll given up")

        assert session.post("4for nobody").status == 400


class TestUpgrade:
    """From polling to WebSocket."""

    def test_a_session_moves_to_websocket(self, server: ServerProcess) -> None:
        """Probe, answer, UPGRADE; then messages go by WebSocket."""
        session = Polling(server.port, PATH)
        client = WebSocket(server.port, PATH, session.sid)

        with closing(client):
            client.send("2probe")
            assert client.receive() == "3probe"
            client.send("5")
            client.send("4hello")
            assert client.receive() == "4hello"

    def test_requests_after_the_upgrade_are_refused(self, server: ServerProcess) -> None:
        """400, and the WebSocket goes on."""
        session, client = upgraded(server)

        with closing(client):
            assert session.get().status == 400
            assert session.post("4abc").status == 400
            client.send("4hello")
            assert client.receive() == "4hello"


class TestSockets:
    """What the kernel is told."""

    def test_small_packets_do_not_wait_for_acknowledgements(self, start_server: StartServer) -> None:
        """TCP_NODELAY, after a direct handshake and after an upgrade; without it an answer may wait 40 ms."""
        server = start_server()
        direct = WebSocket(server.port)
        session = Polling(server.port)
        moved = WebSocket(server.port, sid=session.sid)
        with closing(direct, moved):
            moved.send("2probe")
            assert moved.receive() == "3probe"
            moved.send("5", "2done")
            assert moved.receive() == "3done"

            assert [described["nodelay"] for described in server.debug("sessions")] == [1, 1]

    def test_the_kernels_share_is_bounded(self, start_server: StartServer) -> None:
        """SO_SNDBUF as the limits say; Linux doubles it (socket(7))."""
        server = start_server(send_buffer_bytes=32768)
        client = WebSocket(server.port)
        with closing(client):
            assert [described["send_buffer"] for described in server.debug("sessions")] == [65536]

    def test_a_websocket_ping_is_answered_with_its_payload(self, server: ServerProcess) -> None:
        """RFC 6455 section 5.5.3."""
        client = WebSocket(server.port, PATH)
        with closing(client):
            client.sock.sendall(masked(PING, b"x" * 125))

            assert client.receive_frame() == (PONG, b"x" * 125)


def upgraded(server: ServerProcess) -> tuple[Polling, WebSocket]:
    """Return a session that has moved, and its WebSocket."""
    session = Polling(server.port, PATH)
    client = WebSocket(server.port, PATH, session.sid)
    client.send("2probe")
    assert client.receive() == "3probe"
    client.send("5", "2moved")
    assert client.receive() == "3moved"
    return session, client
