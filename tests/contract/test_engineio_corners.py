"""The private names of python-engineio and python-socketio that `headgate.socketio` uses: name, signature, behaviour.

Most are private, so a new version may move them without notice. Each test names the corner, and the part of ours that breaks
with it. The floor in `pyproject.toml` is the lowest version with which this file, tests/unit/socketio and
tests/integration/socketio are green. `TRIED` names the minor versions with which they are; a server warns of any other.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import requires, version
from typing import Any

import engineio
import pytest
import socketio
from engineio import packet as engine_packet
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from socketio import packet as socket_packet

from headgate.socketio.rooms import adopt
from headgate.socketio.server import TRIED


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.fixture
def engine() -> Any:
    """A plain Engine.IO server, without a service greenlet."""
    return engineio.Server(async_mode="threading", monitor_clients=False)


@pytest.fixture
def stock() -> Any:
    class Recording(socketio.Server):  # type: ignore[misc]
        sent: list[tuple[str, Any]]

        def _send_packet(self, eio_sid: str, pkt: Any) -> None:
            self.sent.append((eio_sid, pkt))

        def _send_eio_packet(self, eio_sid: str, eio_pkt: Any) -> None:
            self.sent.append((eio_sid, eio_pkt))

    server = Recording(async_mode="threading", async_handlers=False, namespaces=["/"])
    server.sent = []
    return server


@pytest.mark.parametrize("package", ["python-engineio", "python-socketio"])
def test_the_installed_versions_are_the_ones_that_are_tried(package: str) -> None:
    """And the package's metadata allows them, and newer ones, because an application may need those."""
    requirements = [Requirement(each) for each in requires("headgate") or []]
    (allowed,) = [each.specifier for each in requirements if each.name == package]

    assert {specifier.operator for specifier in allowed} == {">="}
    assert version(package) in allowed
    assert version(package).startswith(f"{TRIED[package]}.")


class TestEngineIO:
    """`DropInEngine`: our sessions in the place of python-engineio's."""

    def test_its_constructor_takes_what_we_pass(self, engine: Any) -> None:
        """`monitor_clients` keeps its wall-clock service task from starting."""
        assert {"async_mode", "monitor_clients"} <= set(parameters(engineio.Server.__init__)) | set(
            parameters(engineio.base_server.BaseServer.__init__)
        )
        assert engine.start_service_task is False

    def test_its_settings_have_the_names_and_units_that_we_read(self) -> None:
        """Seconds and bytes; an interval may be a tuple (interval, grace), of which the interval is kept."""
        engine = engineio.Server(
            async_mode="threading",
            ping_interval=0.3,
            ping_timeout=0.2,
            max_http_buffer_size=123,
            allow_upgrades=False,
            http_compression=False,
            compression_threshold=7,
            cookie="io",
            transports=["polling"],
        )

        assert (engine.ping_interval, engine.ping_timeout, engine.max_http_buffer_size) == (0.3, 0.2, 123)
        assert (engine.allow_upgrades, engine.http_compression, engine.compression_threshold) == (False, False, 7)
        assert (engine.cookie, engine.transports) == ("io", ["polling"])
        assert engineio.Server(async_mode="threading").transports == ["polling", "websocket"]

    def test_sessions_are_looked_up_through_get_socket(self, engine: Any) -> None:
        """Which forgets a closed one; ours keeps it until its disconnect handlers have run. KeyError when there is none."""

        class Fake:
            closed = False
            upgraded = True

            def __init__(self) -> None:
                self.session = {"user": "ana"}

        engine.sockets["a"] = Fake()
        looked_up: list[str] = []

        def get_socket(sid: str) -> Any:
            looked_up.append(sid)
            return engine.sockets[sid]

        engine._get_socket = get_socket
        assert engine.get_session("a") == {"user": "ana"}
        engine.save_session("a", {"user": "ben"})
        assert engine.get_session("a") == {"user": "ben"}
        assert engine.transport("a") == "websocket"
        assert looked_up == ["a"] * 4

        with pytest.raises(KeyError):
            engineio.Server._get_socket(engine, "nobody")

    def test_handlers_are_kept_by_their_events(self, engine: Any) -> None:
        handlers = {event: object() for event in ("connect", "message", "disconnect")}
        for event, handler in handlers.items():
            engine.on(event, handler)

        assert engine.handlers == handlers

    def test_an_engineio_packet_encodes_itself(self) -> None:
        """Text with its type in front, bytes as they are; it has a `binary` flag and takes our attribute."""
        text = engine_packet.Packet(engine_packet.MESSAGE, data="x")
        binary = engine_packet.Packet(engine_packet.MESSAGE, data=b"\x01")
        text.headgate_frame = "ours"

        assert (text.encode(), text.binary, text.packet_type) == ("4x", False, 4)
        assert (binary.encode(), binary.binary) == (b"\x01", True)
        assert engine_packet.Packet.json.dumps([1]) == "[1]"


class TestSocketIO:
    """`Server`: python-socketio's protocol on our transport."""

    def test_the_engine_is_chosen_by_a_method(self, stock: Any) -> None:
        """Returns a class; the instance is `eio`, and gets the options that python-socketio does not know itself."""
        seen: list[Any] = []

        class Engine(engineio.Server):  # type: ignore[misc]
            def __init__(self, transport_limits: Any = None, **options: Any) -> None:
                seen.append(transport_limits)
                super().__init__(**options)

        class Server(socketio.Server):  # type: ignore[misc]
            def _engineio_server_class(self) -> Any:
                return Engine

        assert isinstance(Server(async_mode="threading", transport_limits="ours").eio, Engine)
        assert seen == ["ours"]

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("_engineio_server_class", ["self"]),
            ("_send_packet", ["self", "eio_sid", "pkt"]),
            ("_send_eio_packet", ["self", "eio_sid", "eio_pkt"]),
            ("_handle_connect", ["self", "eio_sid", "namespace", "data"]),
            ("_handle_event", ["self", "eio_sid", "namespace", "id", "data"]),
            ("_handle_event_internal", ["self", "server", "sid", "eio_sid", "data", "namespace", "id"]),
            ("_handle_disconnect", ["self", "eio_sid", "namespace", "reason"]),
            ("_trigger_event", ["self", "event", "namespace", "args"]),
            ("_handle_eio_connect", ["self", "eio_sid", "environ"]),
            ("_handle_eio_message", ["self", "eio_sid", "data"]),
            ("_handle_eio_disconnect", ["self", "eio_sid", "reason"]),
        ],
    )
    def test_our_overrides_have_the_signatures_that_are_called(self, name: str, expected: list[str]) -> None:
        """A renamed parameter or method would make ours dead code."""
        assert parameters(getattr(socketio.Server, name)) == expected

    def test_our_client_manager_overrides_what_theirs_calls(self) -> None:
        """A renamed method would make ours dead code."""
        assert parameters(socketio.Manager._generate_ack_id) == ["self", "sid", "callback"]

    def test_the_listener_of_a_queue_is_known(self, stock: Any) -> None:
        """Its events do not wait for clients."""
        manager = socketio.PubSubManager()
        manager.set_server(stock)
        stock.start_background_task = lambda task: task
        manager.initialize()
        assert manager.thread == manager._thread

    def test_the_engines_events_come_to_the_overridden_methods(self, stock: Any) -> None:
        """They are bound when the server is made."""
        assert stock.eio.handlers["connect"] == stock._handle_eio_connect
        assert stock.eio.handlers["message"] == stock._handle_eio_message
        assert stock.eio.handlers["disconnect"] == stock._handle_eio_disconnect

    def test_a_connect_is_answered_through_send_packet_behind_its_handler(self, stock: Any) -> None:
        """Our cork relies on it. The handler runs first, CONNECT goes out last; the client is then connected."""
        order: list[str] = []
        stock.on("connect", lambda sid, environ, auth: order.append(f"handler sent={len(stock.sent)}"))
        stock._handle_eio_connect("e", {"k": "v"})
        stock._handle_eio_message("e", '0{"token":1}')

        assert order == ["handler sent=0"]
        ((eio_sid, packet),) = stock.sent
        assert (eio_sid, packet.packet_type, set(packet.data)) == ("e", socket_packet.CONNECT, {"sid"})
        sid = stock.manager.sid_from_eio_sid("e", "/")
        assert sid == packet.data["sid"]
        assert stock.manager.is_connected(sid, "/")
        assert stock.manager.eio_sid_from_sid(sid, "/") == "e"

    def test_engine_packets_go_to_the_engines_send_packet(self) -> None:
        """`_send_eio_packet` does nothing else, and there ours marks attachments, and hands over."""
        server = socketio.Server(async_mode="threading")
        sent: list[Any] = []
        server.eio.send_packet = lambda sid, pkt: sent.append((sid, pkt))
        server._send_eio_packet("e", "packet")

        assert sent == [("e", "packet")]

    def test_the_known_namespaces_are_in_three_places(self, stock: Any) -> None:
        """For our "Invalid namespace"."""
        stock.on("x", lambda sid: None, namespace="/by-handler")
        stock.register_namespace(socketio.Namespace("/by-class"))

        assert "/by-handler" in stock.handlers
        assert "/by-class" in stock.namespace_handlers
        assert stock.namespaces == ["/"]
        assert socketio.Server(async_mode="threading", namespaces="*").namespaces == "*"

    def test_an_event_runs_its_handler_and_is_acknowledged(self, stock: Any) -> None:
        """`_handle_event_internal` does both, where we call it."""
        stock.on("connect", lambda sid, environ, auth: None)
        stock.on("add", lambda sid, a, b: (a, b))
        stock._handle_eio_connect("e", {})
        stock._handle_eio_message("e", "0")
        stock._handle_eio_message("e", '27["add",1,2]')

        packet = stock.sent[-1][1]
        assert (packet.packet_type, packet.id, packet.data) == (socket_packet.ACK, 7, [1, 2])

    def test_a_binary_packet_takes_its_attachments(self) -> None:
        """And says when it has the last, which puts all of them in their places."""
        placeholders = ",".join(f'{{"_placeholder":true,"num":{number}}}' for number in range(2))
        packet = socket_packet.Packet(encoded_packet=f'52-["blob",{placeholders}]')

        assert (packet.attachment_count, packet.attachments) == (2, [])
        assert [packet.add_attachment(each) for each in (b"1", b"2")] == [False, True]
        assert packet.data == ["blob", b"1", b"2"]

    @pytest.mark.parametrize("by_the_server", [False, True])
    def test_a_disconnect_handler_runs_between_the_two_steps_of_leaving(self, stock: Any, by_the_server: bool) -> None:
        """Still in the rooms, though not connected any more; the second step is `manager.disconnect`, which may be called twice.

        It is left out when the handler raises, and there ours steps in. The arguments are the session id and the reason.
        """
        seen: list[Any] = []
        stock.on("connect", lambda sid, environ, auth: None)
        trigger = stock._trigger_event

        def watched(event: str, namespace: str, *args: Any) -> Any:
            if event == "disconnect":
                sid, reason = args
                there = stock.manager.eio_sid_from_sid(sid, namespace), stock.manager.is_connected(sid, namespace)
                seen.append((namespace, reason, there))
                raise RuntimeError("the handler fails")
            return trigger(event, namespace, *args)

        stock._trigger_event = watched
        stock._handle_eio_connect("e", {})
        stock._handle_eio_message("e", "0")
        sid = stock.manager.sid_from_eio_sid("e", "/")
        leave = (stock.disconnect, sid) if by_the_server else (stock._handle_disconnect, "e", "/", "transport close")
        with pytest.raises(RuntimeError):
            leave[0](*leave[1:])

        assert seen == [("/", "server disconnect" if by_the_server else "transport close", ("e", False))]
        assert stock.manager.pending_disconnect == {"/": [sid]}
        stock.manager.disconnect(sid, "/", ignore_queue=True)
        stock.manager.disconnect(sid, "/", ignore_queue=True)
        assert stock.manager.pending_disconnect == stock.manager.rooms == {}

    def test_a_packet_class_says_whether_bytes_are_attachments(self) -> None:
        """`uses_binary_events`: without them a packet is one message, and keeps its type whatever it carries."""
        packed = socketio.Server(async_mode="threading", serializer="msgpack").packet_class
        data = ["x", b"1"]

        assert (socket_packet.Packet.uses_binary_events, packed.uses_binary_events) == (True, False)
        assert socket_packet.Packet(socket_packet.EVENT, data=data).packet_type == socket_packet.BINARY_EVENT
        encoded = packed(socket_packet.EVENT, data=data, namespace="/", id=7).encode()
        assert isinstance(encoded, bytes)
        decoded = packed(encoded_packet=encoded)
        assert (decoded.packet_type, decoded.data, decoded.namespace, decoded.id) == (socket_packet.EVENT, data, "/", 7)
        assert decoded.attachment_count == 0

    def test_the_first_three_options_may_come_by_position(self) -> None:
        assert parameters(socketio.Server.__init__)[:4] == ["self", "client_manager", "logger", "serializer"]

    def test_a_broadcast_shares_its_engine_packets(self, stock: Any) -> None:
        """One object for everyone, which keeps the frame, so that it is encoded once."""
        stock.on("connect", lambda sid, environ, auth: None)
        for eio_sid in ("a", "b"):
            stock._handle_eio_connect(eio_sid, {})
            stock._handle_eio_message(eio_sid, "0")
        stock.sent.clear()
        stock.emit("x", 1)

        (first, one), (second, other) = stock.sent
        assert {first, second} == {"a", "b"}
        assert one is other
        assert one.encode() == '42["x",1]'

    def test_a_socketio_packet_shows_what_it_decoded(self) -> None:
        """Type, namespace, id, data and the announced attachments, before anything is dispatched."""
        packet = socketio.Server(async_mode="threading").packet_class(
            encoded_packet='52-/ns,7["a",{"_placeholder":true,"num":0}]'
        )

        assert (packet.packet_type, packet.namespace, packet.id, packet.attachment_count) == (5, "/ns", 7, 2)
        assert packet.data[0] == "a"
        kinds = ("CONNECT", "DISCONNECT", "EVENT", "ACK", "CONNECT_ERROR", "BINARY_EVENT", "BINARY_ACK")
        assert [getattr(socket_packet, name) for name in kinds] == list(range(7))

    def test_a_packet_uses_the_json_of_its_class(self) -> None:
        """`serializer=` takes the class, and nothing else reads or writes JSON. There ours is faster."""
        used: list[str] = []

        class Json:
            @staticmethod
            def loads(text: str) -> Any:
                used.append(text)
                return ["read"]

            @staticmethod
            def dumps(value: Any, **options: Any) -> str:
                used.append(value)
                return '["written"]'

        class Ours(socket_packet.Packet):  # type: ignore[misc]
            json = Json

        assert socketio.Server(async_mode="threading", serializer=Ours).packet_class is Ours
        assert Ours(encoded_packet='2["x"]').data == ["read"]
        assert Ours(socket_packet.EVENT, data=["y"]).encode() == '2["written"]'
        assert used == ['["x"]', ["y"]]

    @pytest.mark.parametrize("ours", [False, True])
    @given(steps=st.lists(st.tuples(st.sampled_from(["pre_connect", "connect", "leave"]), st.integers(0, 3)), max_size=30))
    def test_a_client_that_comes_and_goes_is_known_by_the_same_rules(self, ours: bool, steps: list[tuple[str, int]]) -> None:
        """Our rooms keep the same tables as python-socketio's, by which its own code finds a client, and forgets it."""
        server = socketio.Server(async_mode="threading", namespaces=["/"])
        if ours:
            adopt(server.manager)
        manager, known, let_in = server.manager, dict[str, str](), set[str]()
        for step, number in steps:
            session = f"e{number}"
            if step == "pre_connect":
                sid = manager.pre_connect(session, "/")
                assert (sid is None) == (session in known)
                known[session] = sid or known[session]
            elif session in known and step == "connect" and session not in let_in:
                assert manager.connect(known[session], "/") == known[session]
                let_in.add(session)
            elif session in known and step == "leave":
                let_in.discard(session)
                manager.disconnect(known.pop(session), "/", ignore_queue=True)
            for each in (f"e{number}" for number in range(4)):
                sid = manager.sid_from_eio_sid(each, "/")
                assert sid == known.get(each)
                assert manager.is_connected(sid, "/") == (each in let_in)
                assert sid is None or manager.eio_sid_from_sid(sid, "/") == each
            assert sorted(manager.get_participants("/", None) if known else []) == sorted(
                (sid, session) for session, sid in known.items()
            )
        assert bool(manager.pending_connect) == (known.keys() != let_in)
        for session in tuple(known):
            manager.disconnect(known.pop(session), "/", ignore_queue=True)
        assert not manager.rooms
        assert not manager.pending_connect
