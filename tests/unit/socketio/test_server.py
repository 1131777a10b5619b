"""`headgate.socketio.Server` beside python-socketio's: options, limits, reasons, logs, tasks, test clients, admin counts."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import msgpack
import pytest
import socketio
from socketio import packet as socket_packet
from structlog.testing import capture_logs

from headgate.socketio import Server, TransportLimits
from headgate.socketio import server as server_module
from tests.support.session_clock import turn
from tests.support.socketio_application import Application, Browser, without_blocking

Make = Callable[..., Server]
PLACEHOLDER = '{"_placeholder":true,"num":0}'


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    without_blocking(monkeypatch)
    made: list[Server] = []

    def make(**options: Any) -> Server:
        made.append(Server(**options))
        return made[-1]

    yield make
    for server in made:
        server.eio.disconnect()
        turn()
        server.eio.deadlines.close()


@pytest.fixture
def application(make: Make, monkeypatch: pytest.MonkeyPatch) -> Application:
    return Application(limits={"handshake_deadline_s": 0, "inbound_per_s": 0, "inbound_burst": 100})


@pytest.mark.parametrize(("tried", "warned"), [("0.1", ["untried version"]), (None, [])])
def test_a_version_that_nobody_has_tried_is_logged(tried: str | None, warned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its private corners may have moved; it is not refused, as an application may need it."""
    if tried is not None:
        monkeypatch.setitem(server_module.TRIED, "python-socketio", tried)
    with capture_logs() as lines:
        server_module._warn_of_untried_versions.__wrapped__()

    assert [line["event"] for line in lines] == warned


class TestOptions:
    def test_python_socketios_options_win_over_the_limits(self, make: Make) -> None:
        limits = TransportLimits(ping_interval_s=7, ping_timeout_s=8, max_message_bytes=9)
        server = make(transport_limits=limits, ping_interval=1, max_http_buffer_size=2)

        assert (server.eio.limits.ping_interval_s, server.eio.limits.ping_timeout_s) == (1, 8)
        assert server.eio.limits.max_message_bytes == 2
        assert make(ping_timeout=3).eio.limits == TransportLimits(ping_timeout_s=3)

    @pytest.mark.parametrize("mode", ["threading", "eventlet", "gevent_uwsgi"])
    def test_another_async_mode_is_refused(self, make: Make, mode: str) -> None:
        with pytest.raises(ValueError, match=f"async_mode: expected 'gevent', the only one on this transport, got '{mode}'"):
            make(async_mode=mode)
        assert make(async_mode="gevent").async_mode == make().async_mode == "gevent"


class TestPackets:
    def test_a_session_that_joins_nothing_stays(self, application: Application) -> None:
        """There is no deadline for it, so nothing is asked of the timer but its pings."""
        browser = Browser(application)
        asked = [entry for due in application.sio.eio.deadlines._slots.values() for entry in due]

        assert asked
        assert not any(entry[0] == browser.session._check_joined for entry in asked)

    def test_a_packet_may_have_more_than_a_few_attachments(self, application: Application) -> None:
        places = ",".join(PLACEHOLDER.replace("0", str(number)) for number in range(100))
        browser = Browser(application)
        browser.join()

        answer = browser.answers(f'45100-1["message-with-ack",{places}]', *[b"x"] * 100)
        assert answer[0] == f"46100-1[{places}]"
        assert answer[1:] == [b"x"] * 100

    def test_attachments_are_bounded_all_together(self, make: Make) -> None:
        """A client that announces many and sends large ones is disconnected before they fill the memory."""
        application = Application(limits={"max_message_bytes": 1000})
        browser = Browser(application)
        browser.join()
        places = ",".join(PLACEHOLDER.replace("0", str(number)) for number in range(100))
        browser.send(f'45100-1["message-with-ack",{places}]', *[bytes(1000)] * 17)

        assert application.ends == ["parse error"]

    def test_a_client_that_floods_over_polling_is_told_why(self, make: Make) -> None:
        """Where the application has asked for the limit, at the request after the end."""
        application = Application(limits={"inbound_per_s": 1, "inbound_burst": 5})
        browser = Browser(application)
        browser.join()
        browser.send(*['42["record",1]'] * 6)

        assert application.ends == ["inbound flood"]
        assert browser.session.shown == "limit_reached: rate (at most 1/s, burst 5)"
        assert application.sio.eio.final_frames.take(browser.session.sid) == browser.session.shown


WRONG_NUMBERS = [float("nan"), float("inf"), -float("inf"), {"price": [1, float("nan")]}, [b"x", float("inf")], (1, float("nan"))]


class TestNumbersThatAreNotJson:
    """A browser cannot read NaN or an infinity, and disconnects at them, so the emit raises."""

    @pytest.mark.parametrize("value", WRONG_NUMBERS, ids=str)
    @pytest.mark.parametrize("way", ["all", "one", "room", "rooms", "others", "callback", "nobody", "send", "namespace"])
    def test_an_emit_raises_and_the_browser_stays(self, application: Application, way: str, value: object) -> None:
        sio = application.sio
        browser = Browser(application)
        sid = browser.join()
        sio.enter_room(sid, "room")
        ways: dict[str, Callable[[object], object]] = {
            "all": lambda data: sio.emit("e", data),
            "one": lambda data: sio.emit("e", data, to=sid),
            "room": lambda data: sio.emit("e", data, to="room"),
            "rooms": lambda data: sio.emit("e", data, to=["room", "other"]),
            "others": lambda data: sio.emit("e", data, skip_sid="somebody"),
            "callback": lambda data: sio.emit("e", data, to=sid, callback=lambda *_: None),
            "nobody": lambda data: sio.emit("e", data, to="empty"),
            "send": lambda data: sio.send(data),
            "namespace": lambda data: sio.emit("e", data, namespace="/NaN,Infinity"),
        }
        with pytest.raises(ValueError, match="NaN and infinities are not JSON"):
            ways[way](value)
        sio.emit("e", "after")

        assert browser.received() == ['42["e","after"]']
        assert application.ends == []

    def test_call_raises(self, application: Application) -> None:
        sid = Browser(application).join()
        with pytest.raises(ValueError, match="NaN and infinities are not JSON"):
            application.sio.call("e", float("nan"), to=sid)
        assert [key for key in application.sio.manager.callbacks.get(sid, {}) if key] == []  # 0 counts them

    @pytest.mark.parametrize("value", WRONG_NUMBERS, ids=str)
    def test_an_acknowledgement_raises_in_its_handler(
        self, application: Application, caplog: pytest.LogCaptureFixture, value: object
    ) -> None:
        """The log has it, as any exception of a handler; the browser stays."""
        application.sio.on("ask", lambda sid: value)
        browser = Browser(application)
        browser.join()

        assert browser.answers('421["ask"]') == []
        assert browser.answers('422["message-with-ack",1]') == ["432[1]"]
        assert "NaN and infinities are not JSON" in caplog.text
        assert application.ends == []

    def test_a_refusal_raises_in_its_connect_handler(self, make: Make, caplog: pytest.LogCaptureFixture) -> None:
        application = Application()

        def connect(sid: str, environ: object, auth: object = None) -> None:
            raise socketio.exceptions.ConnectionRefusedError("full", float("inf"))

        application.sio.on("connect", connect)
        browser = Browser(application, websocket=True)

        assert browser.answers("40") == []
        assert browser.closed is None
        assert "NaN and infinities are not JSON" in caplog.text

    def test_texts_and_names_of_namespaces_may_have_these_words(self, application: Application) -> None:
        browser = Browser(application)
        browser.join()
        application.sio.emit("NaN", {"Infinity": 'a "NaN\\', "-Infinity": [b"NaN"]})

        assert browser.received()[0] == ('451-["NaN",{"Infinity":"a \\"NaN\\\\","-Infinity":[{"_placeholder":true,"num":0}]}]')

    def test_msgpack_has_these_numbers(self, make: Make) -> None:
        make(serializer="msgpack").emit("e", float("nan"))


class TestConnectData:
    """A client's data at connect: mostly an object, and anything else."""

    @pytest.mark.parametrize("shown", ["token", ["a", 1], True, {"token": "x"}, "", [], False, None])
    @pytest.mark.parametrize("begin", ["40", "40/,"])
    def test_the_connect_handler_gets_it_as_it_is(self, application: Application, begin: str, shown: object) -> None:
        """python-socketio's Python client sends `auth="token"` so. What is empty is nothing."""
        seen: list[object] = []
        application.sio.on("connect", lambda sid, environ, auth: seen.append(auth))
        (connected,) = Browser(application).answers(f"{begin}{json.dumps(shown)}")

        assert str(connected).startswith('40{"sid":')
        assert seen == [shown or None]


class TestReservedNames:
    @pytest.mark.parametrize("name", ["connect", "disconnect", "*"])
    def test_a_client_that_sends_one_stays_and_no_handler_runs(self, application: Application, name: str) -> None:
        """Its arguments would be taken for a handler's own: `*` gives the name and the id of a client."""
        sio, ran = application.sio, list[object]()
        browser = Browser(application)
        browser.join()
        for reserved in ("connect", "disconnect", "*"):
            sio.on(reserved, lambda *arguments: ran.append(arguments))
            sio.on(reserved, lambda *arguments: ran.append(arguments), namespace="*")

        assert browser.answers(f'421["{name}","victim",{{}}]', '422["message-with-ack",1]') == ["432[1]"]
        assert ran == []

    @pytest.mark.parametrize(
        "name", ["connect_error", "disconnecting", "newListener", "removeListener", "__proto__", 1, 1.5], ids=str
    )
    def test_other_names_are_events(self, application: Application, name: str | float) -> None:
        """A name may be a number; its handler is found by that."""
        application.sio.on(name, lambda sid, argument: argument)
        browser = Browser(application)
        browser.join()

        assert browser.answers(f"421[{json.dumps(name)},7]") == ["431[7]"]

    def test_nobody_joins_the_namespace_that_stands_for_all(self, make: Make) -> None:
        """Its handlers take the namespace as their first argument, and a client would be that."""
        application = Application(serializer="msgpack")
        application.sio.on("note", lambda *_: None, namespace="*")
        browser = Browser(application, websocket=True)
        (answer,) = browser.answers(msgpack.dumps({"type": 0, "nsp": "*"}))

        assert isinstance(answer, bytes)
        assert msgpack.loads(answer)["data"] == {"message": "Invalid namespace"}


class TestReasons:
    @pytest.mark.parametrize(
        ("reason", "told"),
        [
            ("transport error: Connection reset by peer", Server.reason.TRANSPORT_ERROR),
            ("transport close", Server.reason.TRANSPORT_CLOSE),
            ("slow consumer", Server.reason.SLOW_CONSUMER),
            ("write deadline", Server.reason.WRITE_DEADLINE),
        ],
    )
    def test_every_reason_is_one_of_the_servers(self, application: Application, reason: str, told: str) -> None:
        """The words of the operating system are for the log."""
        browser = Browser(application)
        browser.join()
        browser.session.end(reason, abort=True)
        turn()

        assert application.ends == [told]
        assert told in vars(Server.reason).values() or told in vars(Server.reason.__base__).values()


class TestApplicationsOwn:
    def test_handlers_run_by_the_servers_own_start_of_tasks(self, application: Application) -> None:
        """An application that overrides it, for another context, gets every handler through it."""
        started: list[str] = []
        start = application.sio.start_background_task

        def start_task(target: Callable[..., Any], *args: Any) -> Any:
            started.append(target.__name__)
            return start(target, *args)

        application.sio.start_background_task = start_task
        browser = Browser(application)
        browser.join()
        browser.send('42["record",1]')

        assert started == ["_run_handler"]
        assert application.seen == [1]

    def test_both_loggers_tell_of_packets(self, application: Application, caplog: pytest.LogCaptureFixture) -> None:
        """`engineio_logger` of every packet, `logger` of events, as in python-socketio."""
        for logger in (application.sio.logger, application.sio.eio.logger):
            logger.setLevel(logging.INFO)
        browser = Browser(application)
        sid = browser.join()
        browser.send('42["message",1]')
        application.sio.emit("to all", 2)

        told = caplog.messages
        eio_sid = browser.session.sid
        assert f'{eio_sid}: Received packet MESSAGE data 2["message",1]' in told
        assert f'{eio_sid}: Sending packet MESSAGE data 2["message-back",1]' in told
        assert '1 sessions: Sending packet MESSAGE data 2["to all",2]' in told
        assert f'received event "message" from {sid} [/]' in told
        for logger in (application.sio.logger, application.sio.eio.logger):
            logger.setLevel(logging.ERROR)

    def test_a_client_without_a_session_falls_through_to_python_socketio(self, application: Application) -> None:
        """Flask-SocketIO's test client is one. It puts its own functions in the place of the server's two ways out."""
        sio = application.sio
        sent: list[Any] = []
        sio.__dict__["_send_packet"] = lambda eio_sid, packet: sent.append(packet.packet_type)
        sio.__dict__["_send_eio_packet"] = lambda eio_sid, packet: sent.append(packet.data)
        sio.async_handlers = False
        sio._handle_eio_connect("test client", {"PATH_INFO": "/"})
        sio._handle_eio_message("test client", "0")
        sid = sio.manager.sid_from_eio_sid("test client", "/")
        sio._handle_eio_message("test client", '21["message-with-ack"]')
        sio.emit("to all")
        sio.emit("to it", b"binary", to=sid)
        sio._handle_eio_message("test client", "1")

        assert sent == [
            '2["auth",{}]',
            socket_packet.CONNECT,
            socket_packet.ACK,
            '2["to all"]',
            f'51-["to it",{PLACEHOLDER}]',
            b"binary",
        ]
        assert application.ends == ["client disconnect"]

    def test_the_admin_ui_counts_packets_and_bytes(self, application: Application) -> None:
        counted: dict[str, int] = {}

        class Buffer:
            def push(self, name: str, count: int = 1) -> None:
                counted[name] = counted.get(name, 0) + count

        first, second = Browser(application), Browser(application)
        first.join()
        second.join()
        application.sio.traffic = Buffer()
        first.send('42["record",1]')
        application.sio.emit("x")

        assert counted == {"packetsIn": 1, "bytesIn": len('2["record",1]'), "packetsOut": 2, "bytesOut": 2 * len('42["x"]')}

    def test_an_emit_in_the_hub_does_not_wait(self, application: Application) -> None:
        """A callback of the loop cannot; the bounds of the queue hold."""
        browser = Browser(application)
        sid = browser.join()
        application.sio.eio.limits = application.sio.eio.limits
        browser.session.queue.max_frames = 4
        for number in range(10):
            gevent.get_hub().loop.run_callback(application.sio.emit, "event", number, sid)
        turn()

        assert application.ends == ["slow consumer"]
