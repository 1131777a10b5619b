"""Socket.IO protocol 5, as its official suite expects it, over both transports, and with the real socket.io-client."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.integration.transport.server_process import ROOT, ServerProcess, StartServer

NODE = shutil.which("node") or "node"


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server with the default limits, but for a write deadline that never comes into a test's way."""
    return start_shared_server(write_deadline_s=60)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[WebSocket]:
    """A WebSocket on which nobody has joined a namespace yet."""
    client = WebSocket(server.port)
    with closing(client):
        yield client


class TestConnect:
    """Joining a namespace."""

    @pytest.mark.parametrize(
        ("packet", "connected", "auth"),
        [
            ("40", '40{"sid":', '42["auth",{}]'),
            ('40{"token":"123"}', '40{"sid":', '42["auth",{"token":"123"}]'),
            ("40/custom,", '40/custom,{"sid":', '42/custom,["auth",{}]'),
            ('40/custom,{"token":"abc"}', '40/custom,{"sid":', '42/custom,["auth",{"token":"abc"}]'),
        ],
    )
    def test_a_namespace_is_joined_with_and_without_a_payload(
        self, client: WebSocket, packet: str, connected: str, auth: str
    ) -> None:
        """CONNECT with the session's id, and only then what the connect handler emitted."""
        client.send(packet)

        assert client.text().startswith(connected)
        assert client.text() == auth

    def test_namespaces_of_one_connection_have_ids_of_their_own(self, client: WebSocket) -> None:
        """The Engine.IO id is told to nobody else."""
        main, custom = client.join(), client.join("/custom")

        assert len({main["sid"], custom["sid"], client.opening["sid"]}) == 3

    def test_an_unknown_namespace_is_refused_by_name(self, client: WebSocket) -> None:
        """With the message that the protocol names; the connection lives."""
        client.send("40/random")

        assert client.text() == '44/random,{"message":"Invalid namespace"}'
        client.join()

    def test_a_refused_connection_is_told_why(self, client: WebSocket) -> None:
        """CONNECT_ERROR; another try is allowed."""
        client.send('40{"refuse":true}')

        assert client.text() == '44{"message":"Connection refused by server"}'
        client.join()

    def test_joining_twice_is_refused_and_changes_nothing(self, client: WebSocket) -> None:
        """The first stands."""
        client.join()
        client.send("40")

        assert client.text() == '44"Unable to connect"'
        client.send('421["message-with-ack",1]')
        assert client.text() == "431[1]"

    def test_a_client_that_joins_nothing_is_ended(self, start_server: StartServer) -> None:
        """The handshake's deadline, told."""
        idle = WebSocket(start_server(handshake_deadline_s=0.2).port)

        with closing(idle):
            assert idle.end().reason == "no CONNECT within 0.2 s"

    def test_connect_comes_before_what_a_handler_emits_even_while_another_namespace_is_joining(self, client: WebSocket) -> None:
        """/other's handler emits, waits 0.1 s, emits: nothing of it may overtake its CONNECT, whatever `/` does meanwhile."""
        client.send("40", "40/other,", '42["message",1]')

        packets = [client.text() for _ in range(6)]

        other = [packet for packet in packets if "/other," in packet]
        assert other[0].startswith('40/other,{"sid":')
        assert other[1:] == ['42/other,["early","before the pause"]', '42/other,["auth",{}]']
        main = [packet for packet in packets if "/other," not in packet]
        assert main[0].startswith('40{"sid":')
        assert main[1:] == ['42["auth",{}]', '42["message-back",1]']

    def test_everything_holds_over_polling(self, server: ServerProcess) -> None:
        """The same order without a WebSocket."""
        session = Polling(server.port)
        session.post("40", "40/custom,", '42/custom,["message",1,"2",{"3":[true]}]')
        messages = session.messages()

        packets = [next(messages) for _ in range(5)]

        assert [packet for packet in packets if "/custom," in packet][1:] == [
            '42/custom,["auth",{}]',
            '42/custom,["message-back",1,"2",{"3":[true]}]',
        ]
        assert packets[0].startswith('40{"sid":')


class TestDisconnect:
    """Leaving a namespace, or everything."""

    def test_leaving_one_namespace_leaves_the_others(self, client: WebSocket) -> None:
        """`41` is for its namespace only."""
        client.join()
        client.join("/custom")
        client.send("41", '42/custom,["message","still here"]')

        assert client.text() == '42/custom,["message-back","still here"]'

    @pytest.mark.parametrize(("namespace", "prefix"), [("/", ""), ("/custom", "/custom,")])
    def test_a_server_says_goodbye_behind_what_it_emitted(self, client: WebSocket, namespace: str, prefix: str) -> None:
        """An event and a disconnect in one breath: both arrive, in this order, and `41` does not close the connection."""
        client.join(namespace)
        client.send(f'42{prefix}["leave"]')

        assert [client.text(), client.text()] == [f'42{prefix}["goodbye"]', f"41{prefix}"]
        client.join(namespace)

    def test_every_way_to_leave_is_told_to_the_application_once(self, start_server: StartServer) -> None:
        """With a reason, and nothing is kept: environs, sessions, half a binary packet."""
        server = start_server()
        for ends, goodbye in enumerate(("41", "1"), 1):
            client = WebSocket(server.port)
            with closing(client):
                client.join()
                client.send('451-["record",{"_placeholder":true,"num":0}]' if goodbye == "1" else '42["record",1]')
                client.send(goodbye)
                server.until(ended(ends), "the end")
        dropped = WebSocket(server.port)
        dropped.join()
        dropped.close()
        server.until(ended(3), "the third end")
        thrown = WebSocket(server.port)
        with closing(thrown):
            thrown.join()
            server.debug("disconnect", engine=True)
            server.until(ended(4), "the fourth end")

        server.until(lambda state: not state["sessions"], "the end of all sessions")
        server.debug("forget")
        left = ("connections", "sessions", "environs", "half_binary", "wires")
        state = server.until(lambda state: not any(state[name] for name in left), "nothing left")
        assert state["ends"] == ["client disconnect", "client disconnect", "transport close", "server disconnect"]

    def test_events_sent_before_a_disconnect_are_delivered(self, server: ServerProcess, client: WebSocket) -> None:
        """Emit and close in one segment, as a page does that is being left."""
        client.join()
        before = len(server.state()["seen"])
        client.send(*[f'42["record",{number}]' for number in range(20)], "1")

        seen = server.until(lambda state: len(state["seen"]) >= before + 20, "the records")["seen"]

        assert seen[before:] == list(range(20))


class TestEvents:
    """Messages, acknowledgements, attachments."""

    def test_events_go_both_ways(self, client: WebSocket) -> None:
        """Text of every kind."""
        client.join()
        for data in ('1,"2",{"3":[false]}', '"ü €  😀"', "null", '""'):
            client.send(f'42["message",{data}]')

            assert json.loads(client.text()[2:]) == json.loads(f'["message-back",{data}]')

    @pytest.mark.parametrize("id_", [0, 1, 456, 2**53])
    def test_an_acknowledgement_carries_its_id(self, client: WebSocket, id_: int) -> None:
        """And the handler's return value."""
        client.join()
        client.send(f'42{id_}["message-with-ack",1,"2",{{"3":[false]}}]')

        assert client.text() == f'43{id_}[1,"2",{{"3":[false]}}]'

    def test_binary_events_and_acknowledgements(self, client: WebSocket) -> None:
        """Attachments follow their packet, both ways."""
        client.join()
        placeholders = '{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}'
        client.send(f'452-["message",{placeholders}]', b"\x01\x02\x03", b"\x04\x05")
        assert [client.text(), client.receive(), client.receive()] == [
            f'452-["message-back",{placeholders}]',
            b"\x01\x02\x03",
            b"\x04\x05",
        ]

        client.send(f'452-789["message-with-ack",{placeholders}]', b"\x06", b"\x07")
        assert [client.text(), client.receive(), client.receive()] == [f"462-789[{placeholders}]", b"\x06", b"\x07"]

    def test_nothing_comes_between_a_binary_packet_and_its_attachments(self, server: ServerProcess) -> None:
        """A refused CONNECT goes ahead of events, but a client that waits for an attachment takes anything else for a fault."""
        client = WebSocket(server.port, receive_buffer_bytes=4096)
        with closing(client):
            client.join()
            server.debug("binary", count=4, size=100_000)
            client.send("40/nowhere")
            server.until(lambda state: state["control_frames"], "the refusal queued")

            received: list[str | bytes] = []
            while len(received) < 13:
                message = client.receive()
                if message != "2":
                    received.append(message)

        headers = [index for index, message in enumerate(received) if str(message).startswith("45")]
        assert len(headers) == 4
        for index in headers:
            assert received[index + 1 : index + 3] == [b"a" * 100_000, b"b" * 100_000]
        refusal = received.index('44/nowhere,{"message":"Invalid namespace"}')
        assert refusal < headers[-1], "the refusal waited for all events"

    @pytest.mark.parametrize(
        "packet",
        [
            "4abc",
            "42",
            "4",
            "49",
            "42[1]",
            '42["unterminated',
            "42abc",
            "40not json",
            '42/nowhere,["message"]',
            '4599999999-["message"]',
            '42["message",' + "[" * 100_000 + "]" * 100_000 + "]",
            "42" + "9" * 5000 + '["message"]',
            "5²-",
        ],
        ids=lambda packet: packet[:24],
    )
    def test_an_invalid_packet_closes_the_connection(self, client: WebSocket, packet: str) -> None:
        """1002 and a reason; no traceback (the fixture looks)."""
        client.join()
        client.send(packet)

        closed = client.end()

        assert closed.code == 1002
        assert closed.reason

    @pytest.mark.parametrize(
        "messages",
        [
            (b"\x01",),
            ('451-["message",{"_placeholder":true,"num":0}]', '42["message"]'),
            ('451-["message",{"_placeholder":true,"num":7}]', b"\x01"),
            ('451-["message"]', b"\x01", b"\x02"),
        ],
        ids=["nothing announced", "text for binary", "number too high", "one too many"],
    )
    def test_attachments_out_of_order_close_the_connection(self, client: WebSocket, messages: tuple[str | bytes, ...]) -> None:
        """The same for binary packets."""
        client.join()
        client.send(*messages)

        assert client.end().code == 1002


class TestOrder:
    """Promise 1 begins here."""

    def test_events_keep_their_order_across_an_upgrade_under_load(self, start_server: StartServer) -> None:
        """2,000 events while the client polls, probes and moves: each once, in order."""
        server = start_server(queue_frames=4000)
        session = Polling(server.port)
        session.join()
        received = [packet for packet in session.packets() if '"event"' in packet]
        server.debug("emit", count=500)
        received += session.packets()
        client = WebSocket(server.port, sid=session.sid)
        with closing(client):
            client.send("2probe")
            server.debug("emit", count=500, first=500)
            assert client.receive() == "3probe"
            server.debug("emit", count=500, first=1000)
            last = [packet for packet in session.packets() if packet != "6"]
            client.send("5")
            server.debug("emit", count=500, first=1500)
            received += last
            while len(received) < 2000:
                received.append(client.text())

        assert [json.loads(packet[2:])[1] for packet in received] == list(range(2000))

    @pytest.mark.parametrize("asynchronous", [True, False])
    def test_one_clients_events_are_delivered_in_order(self, start_server: StartServer, asynchronous: bool) -> None:
        """Over one WebSocket, 1,000 events back to back."""
        server = start_server(inbound_per_s=10_000, inbound_burst=10_000, options={"async_handlers": asynchronous})
        client = WebSocket(server.port)
        with closing(client):
            client.join()
            client.send(*[f'42["record",{number}]' for number in range(1000)])
            seen = server.until(lambda state: len(state["seen"]) == 1000, "all records")["seen"]

        assert seen == list(range(1000))

    @pytest.mark.parametrize(("burst", "answer"), [('["burst",40,0]', '43/room,7["behind them"]'), ('["binary_burst",10]', None)])
    def test_an_acknowledgement_comes_behind_what_its_handler_emitted_on_polling(
        self, server: ServerProcess, burst: str, answer: str | None
    ) -> None:
        """Text or binary, in one answer with the events."""
        session = Polling(server.port)
        session.post('40/room,{"user":"ana"}')
        messages = session.messages()
        assert next(messages).startswith("40/room,")
        session.post(f"42/room,7{burst}")
        packets = [next(messages) for _ in range(41 if answer else 22)]

        if answer:
            assert packets == [*[f'42/room,["numbered",{number},""]' for number in range(40)], answer]
        else:
            assert packets[-2:] == ['461-/room,7[{"_placeholder":true,"num":0}]', "b" + base64.b64encode(b"behind them").decode()]

    def test_an_acknowledgement_comes_behind_what_its_handler_emitted_to_a_slow_reader(self, start_server: StartServer) -> None:
        """Over a WebSocket, when most of it has to wait in the queue."""
        server = start_server(send_buffer_bytes=4096, write_deadline_s=60)
        client = WebSocket(server.port, receive_buffer_bytes=4096)
        with closing(client):
            client.send('40/room,{"user":"ana"}')
            assert client.text().startswith("40/room,")
            client.send('42/room,7["burst",40,20000]')
            server.until(lambda state: not state["handlers"] and server.debug("sessions")[0]["frames"] > 20, "all of it queued")
            packets = [client.text() for _ in range(41)]

        assert [packet[:24] for packet in packets[:-1]] == [f'42/room,["numbered",{number},"xxxx'[:24] for number in range(40)]
        assert packets[-1] == '43/room,7["behind them"]'


def ended(count: int) -> Callable[[dict[str, Any]], bool]:
    """Return whether so many ends have been told to the application."""
    return lambda state: len(state["ends"]) == count


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], ["polling", "websocket"]], ids="+".join)
def test_the_real_client_does_everything(server: ServerProcess, transports: list[str]) -> None:
    """socket.io-client from Node: connect, events, acknowledgements, binary, order of 300 events, of 40 large ones and their
    acknowledgement, namespaces, disconnect."""
    script = Path(__file__).with_name("real_client.mjs")

    outcome = subprocess.run(
        [NODE, str(script), f"http://127.0.0.1:{server.port}", json.dumps(transports)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert json.loads(outcome.stdout.splitlines()[-1]) == {
        "transport": transports[-1],
        "auth": {"token": "abc"},
        "back": [1, "zwei", {"three": [None]}],
        "acknowledged": [1, 2],
        "binary": ["buffer:010203", "buffer:ff"],
        "inOrder": True,
        "acknowledgedInPlace": True,
        "refused": "Invalid namespace",
        "goodbye": True,
        "reason": "io server disconnect",
    }
