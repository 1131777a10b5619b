"""python-socketio on our sessions, in one process: packets of a browser in, packets to it out, and the application between.

The application and the browser are those of tests/support/socketio_application.py.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import socketio
from socketio.packet import CONNECT, CONNECT_ERROR
from structlog.testing import capture_logs

from headgate.events.wire.frames import Frame
from headgate.socketio import Server, TransportLimits
from headgate.transport.inbox import FULL_MESSAGES
from tests.support import packet_classes
from tests.support.session_clock import turn
from tests.support.socketio_application import Application, Browser

MAX_HANDLERS = 64
PLACEHOLDERS = '{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}'
Make = Callable[..., Application]


@pytest.fixture
def browser(application: Application) -> Browser:
    return Browser(application)


@pytest.fixture(params=[True, False], ids=["async handlers", "handlers in turn"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    value: bool = request.param
    return value


@pytest.fixture(autouse=True)
def faults(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The events that were logged as errors; a test takes the expected ones."""
    expected: list[str] = []
    with capture_logs() as logs:
        yield expected
    assert not [line["event"] for line in logs if line["log_level"] == "error"]
    failures = [record.getMessage() for record in caplog.get_records("call") if record.levelname == "ERROR"]
    assert [failure.partition(" (")[0] for failure in failures] == expected


class TestConnect:
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
        self, browser: Browser, packet: str, connected: str, auth: str
    ) -> None:
        """CONNECT with the client's id comes first, and then the events of the connect handler."""
        first, second = browser.answers(packet)

        assert str(first).startswith(connected)
        assert second == auth

    def test_namespaces_of_one_session_have_ids_of_their_own(self, browser: Browser) -> None:
        """The Engine.IO id is revealed to no other client."""
        assert len({browser.join(), browser.join("/custom"), browser.session.sid}) == 3

    def test_an_unknown_namespace_is_refused_by_name(self, browser: Browser) -> None:
        """With the message that the protocol names; the session lives."""
        assert browser.answers("40/random") == ['44/random,{"message":"Invalid namespace"}']
        browser.join()

    def test_a_refused_client_is_told_so(self, browser: Browser) -> None:
        """CONNECT_ERROR; another try is allowed."""
        assert browser.answers('40{"refuse":true}') == ['44{"message":"Connection refused by server"}']
        browser.join()

    def test_joining_twice_is_refused_and_changes_nothing(self, browser: Browser) -> None:
        browser.join()

        assert browser.answers("40") == ['44"Unable to connect"']
        assert browser.answers('421["message-with-ack",1]') == ["431[1]"]

    def test_nothing_overtakes_connect_while_its_handler_waits(self, application: Application, browser: Browser) -> None:
        """Neither the handler's own events nor those for another namespace of the session, because data waits for it."""
        first = browser.answers("40", "40/other,", '42["message",1]')
        application.sio.emit("event", 1)
        assert browser.received() == []
        application.join_gate.set()
        rest = browser.received()

        assert [str(packet).partition('"sid"')[0] for packet in first] == ["40{"]
        assert str(rest[0]).startswith('40/other,{"sid":')
        assert rest[1:] == [
            '42["auth",{}]',
            '42/other,["early"]',
            '42["event",1]',
            '42/other,["auth",{}]',
            '42["message-back",1]',
        ]

    def test_a_connect_handler_that_raises_leaves_no_ghost(
        self, application: Application, browser: Browser, faults: list[str]
    ) -> None:
        """The client is in no room, and may try again."""
        browser.send('40/room,{"user":"ana","fails":true}').received()
        faults.append("event handler failed")
        assert application.members() == 0
        assert not browser.session.joined
        browser.enter("ana").go()

        assert [leaving["user"] for leaving in application.room.leavings] == ["ana"]
        assert not any(application.leftovers().values())

    def test_with_always_connect_a_client_whose_connect_handler_raised_stays(self, make: Make, faults: list[str]) -> None:
        """It has had its CONNECT. It is in the room, and not ended for having joined nothing."""
        browser = Browser(make(always_connect=True))
        (connected,) = browser.answers('40/room,{"user":"ana","fails":true}')
        faults.append("event handler failed")
        assert str(connected).startswith('40/room,{"sid"')
        browser.session._check_joined()

        assert browser.answers('42/room,1["note"]') == ['43/room,1["ana"]']


class TestEvents:
    @pytest.mark.parametrize("data", ['1,"2",{"3":[false]}', '"ü €  😀"', "null", '""'])
    def test_events_go_both_ways(self, browser: Browser, data: str) -> None:
        browser.join()
        (packet,) = browser.answers(f'42["message",{data}]')

        assert json.loads(str(packet)[2:]) == json.loads(f'["message-back",{data}]')

    @pytest.mark.parametrize("id_", [0, 1, 456, 2**53])
    def test_an_acknowledgement_carries_its_id(self, browser: Browser, id_: int) -> None:
        browser.join()

        assert browser.answers(f'42{id_}["message-with-ack",1,"2",{{"3":[false]}}]') == [f'43{id_}[1,"2",{{"3":[false]}}]']

    def test_attachments_follow_their_packet_both_ways(self, browser: Browser) -> None:
        browser.join()

        assert browser.answers(f'452-["message",{PLACEHOLDERS}]', b"\x01", b"\x02") == [
            f'452-["message-back",{PLACEHOLDERS}]',
            b"\x01",
            b"\x02",
        ]
        assert browser.answers(f'452-789["message-with-ack",{PLACEHOLDERS}]', b"\x06", b"\x07") == [
            f"462-789[{PLACEHOLDERS}]",
            b"\x06",
            b"\x07",
        ]

    def test_nothing_comes_between_a_packet_and_its_attachments(self, application: Application, browser: Browser) -> None:
        """A refusal goes ahead of events, but a client that waits for an attachment takes anything else for a fault."""
        browser.join()
        for number in range(3):
            application.sio.emit("binary", (number, b"a", b"b"))
        turn()
        first = [frame.packet for frame in browser.session.queue.take(1)]
        rest = browser.answers("40/nowhere")

        assert [packet[:3] for packet in first] == [b"452"]
        assert rest[:3] == [b"a", b"b", '44/nowhere,{"message":"Invalid namespace"}']
        assert [str(packet)[:3] for packet in rest[3:]] == ["452", "b'a", "b'b"] * 2

    @pytest.mark.parametrize(
        "messages",
        [
            *(
                (each,)
                for each in ("4abc", "42", "4", "49", "42[true]", '42["unterminated', "42abc", "40not json", "45²-", b"\x01")
            ),
            *((each,) for each in ('42/nowhere,["message"]', '4599999999-["message"]', "42" + "9" * 5000 + '["message"]')),
            ('42["message",' + "[" * 100_000 + "]" * 100_000 + "]",),
            ('451-["message",{"_placeholder":true,"num":0}]', '42["message"]'),
            ('451-["message",{"_placeholder":true,"num":7}]', b"\x01"),
            ('451-["message",{"in":[{"_placeholder":true,"num":"a"}]}]', b"\x01"),
            ('451-["message",' + "[" * 900 + "]" * 900 + "]", b"\x01"),
            ('451-["message"]', b"\x01", b"\x02"),
        ],
        ids=lambda messages: str(messages)[:40],
    )
    def test_a_packet_that_is_none_ends_the_session(self, application: Application, messages: tuple[str | bytes, ...]) -> None:
        """With a code and a reason; nothing of it is dispatched, or kept."""
        browser = Browser(application, websocket=True)
        browser.join()
        browser.send(*messages).received()

        assert browser.closed is not None
        assert browser.closed[0] == 1002
        assert browser.closed[1]
        assert application.ends == ["parse error"]
        assert not any(application.leftovers().values())

    def test_slow_handlers_are_bounded_and_stop_the_reading(self, make: Make, asynchronous: bool) -> None:
        """The client's events then back up into its own socket. Another is served then, and at last all are handled."""
        application = make(async_handlers=asynchronous, max_handlers=MAX_HANDLERS)
        browser, witness = Browser(application), Browser(application)
        browser.join()
        witness.join()
        count = MAX_HANDLERS + FULL_MESSAGES + 1
        browser.send(*[f'42["slow",{number}]' for number in range(count)])
        inbox = browser.session.inbox
        assert inbox is not None
        assert inbox.paused
        assert application.running == (MAX_HANDLERS if asynchronous else 1)
        assert witness.answers('421["message-with-ack","alive"]') == ['431["alive"]']
        application.gate.set()
        while len(application.seen) < count:
            turn()

        assert application.seen == list(range(count))
        assert application.most_running == (MAX_HANDLERS if asynchronous else 1)

    def test_a_handler_that_fails_is_logged_and_the_session_goes_on(
        self, make: Make, asynchronous: bool, faults: list[str]
    ) -> None:
        browser = Browser(make(async_handlers=asynchronous))
        browser.join()
        browser.send('42["fail"]')
        faults.append("event handler failed")

        assert browser.answers('421["message-with-ack",1]') == ["431[1]"]

    def test_a_handler_may_ask_its_client(self, browser: Browser) -> None:
        browser.enter("ana")
        (question,) = browser.answers('42/room,7["ask_me","really?"]')
        assert question == '42/room,1["question","really?"]'

        assert browser.answers('43/room,1["yes"]') == ['43/room,7["yes"]']


class TestDisconnect:
    def test_leaving_one_namespace_leaves_the_others(self, browser: Browser) -> None:
        """`41` is for its namespace only."""
        browser.join()
        browser.join("/custom")

        assert browser.answers("41", '42/custom,["message","still here"]') == ['42/custom,["message-back","still here"]']

    @pytest.mark.parametrize(("namespace", "prefix"), [("/", ""), ("/custom", "/custom,")])
    def test_a_server_says_goodbye_behind_its_events(self, browser: Browser, namespace: str, prefix: str) -> None:
        """An event and a disconnect in one breath. Both arrive, in this order, and the session goes on."""
        browser.join(namespace)

        assert browser.answers(f'42{prefix}["leave"]') == [f'42{prefix}["goodbye"]', f"41{prefix}"]
        browser.join(namespace)

    def test_half_a_binary_packet_is_not_kept(self, application: Application, browser: Browser) -> None:
        browser.join()
        browser.send('451-["record",{"_placeholder":true,"num":0}]', "1")

        assert application.ends == ["client disconnect"]
        assert not any(application.leftovers().values())


class TestDisconnectHandler:
    """It finds everything of its client still there, and nothing stays after it."""

    @pytest.fixture
    def application(self, make: Make, asynchronous: bool) -> Application:
        """An application that runs handlers in separate greenlets, or one by one."""
        return make(async_handlers=asynchronous)

    @pytest.mark.parametrize(
        ("leave", "reason"),
        [
            (lambda browser, server: browser.send("41/room,", "1"), "client disconnect"),
            (lambda browser, server: browser.send("1"), "client disconnect"),
            (lambda browser, server: browser.go(), "transport close"),
            (lambda browser, server: browser.send("4abc"), "parse error"),
            (lambda browser, server: browser.send('42/room,["disconnect_me"]', "1"), "server disconnect"),
            (lambda browser, server: server.eio.disconnect(browser.session.sid), "server disconnect"),
            (lambda browser, server: browser.session.end("ping timeout"), "ping timeout"),
        ],
        ids=["goodbye", "engine goodbye", "closed tab", "malformed packet", "disconnected", "engine disconnected", "silence"],
    )
    def test_it_finds_the_session_however_the_client_leaves(
        self, application: Application, leave: Callable[[Browser, Server], object], reason: str
    ) -> None:
        """Its saved data, which it may change, its transport, its environ and its rooms."""
        leave(Browser(application).enter("ana"), application.sio)
        turn()

        assert application.room.leavings == [
            {"user": "ana", "reason": reason, "saved": reason, "transport": "polling", "environ": True, "rooms": True}
        ]
        assert not any(application.leftovers().values())

    @pytest.mark.parametrize("way", ["tab", "1", "41/room,", '42/room,["disconnect_me"]', "engine"])
    def test_one_that_raises_leaves_no_ghost_and_costs_no_other_namespace_its_own(
        self, application: Application, way: str, faults: list[str]
    ) -> None:
        """The client is out of its rooms, however it left; the next handler runs; the failure is logged."""
        browser = Browser(application).enter("ana", raises=True)
        browser.join()
        if way == "tab":
            browser.go()
        elif way == "engine":
            application.sio.eio.disconnect()
        else:
            browser.send(way)
        turn()
        by_event = way.startswith("4")
        faults.append("event handler failed" if by_event else "disconnect handler failed")
        assert application.members() == 0
        if by_event:
            browser.go()

        assert len(application.ends) == 1
        assert not any(application.leftovers().values())

    def test_one_that_waits_has_its_session_until_it_is_done(self, application: Application) -> None:
        """The application disconnects a client, the browser closes the connection, and the handler is still at it."""
        browser = Browser(application).enter("ana", waits=True)
        browser.send('42/room,["disconnect_me"]')
        browser.go()
        assert (application.room.leaving, application.room.leavings) == (["ana"], [])
        application.room.gate.set()
        turn()

        (leaving,) = application.room.leavings
        assert (leaving["user"], leaving["saved"], leaving["environ"]) == ("ana", "server disconnect", True)
        assert not any(application.leftovers().values())

    @pytest.mark.parametrize("goodbye", [("41/room,", "1"), ("1",)], ids=["both", "engine"])
    def test_handlers_of_earlier_events_find_the_session_too(self, application: Application, goodbye: tuple[str, ...]) -> None:
        """Events and the end in one segment, as from a page at its end."""
        Browser(application).enter("ana").send(*['42/room,["note"]'] * 5, *goodbye)

        assert application.room.notes == ["ana"] * 5
        assert len(application.room.leavings) == 1

    def test_an_event_that_is_handled_behind_the_end_finds_the_session_too(self, application: Application) -> None:
        """It waited for an earlier handler when the connection broke."""
        browser = Browser(application).enter("ana")
        browser.send("40/other,", *['42/room,["note"]'] * 5)
        browser.go()
        assert application.room.notes == []
        application.join_gate.set()
        turn()

        assert application.room.notes == ["ana"] * 5
        assert [leaving["user"] for leaving in application.room.leavings] == ["ana"]


def packed(type_: Any, data: Any = None, *, nsp: Any = "/room", **more: Any) -> bytes:
    """Return a packet as MsgPackPacket lays it out, or as it would never be."""
    message: bytes = msgpack.dumps({"type": type_, "data": data, "nsp": nsp, **more})
    return message


class TestSerializers:
    """Packets other than the standard ones: msgpack, and classes of an application's own."""

    HOSTILE: tuple[tuple[str, str | bytes], ...] = (
        ("empty", b""),
        ("not msgpack", b"\xc1"),
        ("cut", packed(2, ["note"])[:-3]),
        ("more than one", packed(2, ["note"]) * 2),
        ("a list", msgpack.dumps([2, ["note"]])),
        ("a number", msgpack.dumps(2)),
        ("no namespace", msgpack.dumps({"type": 2, "data": ["note"]})),
        ("array of four thousand millions", b"\xdd\xff\xff\xff\xff"),
        ("nested", b"\x91" * 100_000),
        ("not UTF-8", b"\x83\xa4type\x02\xa4data\x91\xa2\xff\xff\xa3nsp\xa5/room"),
        ("namespace a list", packed(2, ["note"], nsp=["/room"])),
        ("namespace a number", packed(0, nsp=7)),
        ("type a text", packed("2", ["note"])),
        ("type a list", packed([2], ["note"])),
        ("unknown type", packed(9, ["note"])),
        ("attachments", packed(5, ["note"])),
        ("event without a list", packed(2, {"note": 1})),
        ("event without a name", packed(2, [])),
        ("name in bytes", packed(2, [b"note"])),
        ("id a text", packed(2, ["note"], id="1")),
        ("id a list", packed(2, ["note"], id=[1])),
        ("negative id", packed(2, ["note"], id=-1)),
        ("acknowledgement without an id", packed(3, [])),
        ("acknowledgement of no event", packed(3, [], id=0)),
        ("text", '42/room,["note"]'),
    )

    @pytest.mark.parametrize("message", [message for _, message in HOSTILE], ids=[name for name, _ in HOSTILE])
    def test_a_message_that_is_no_packet_ends_the_session(self, make: Make, message: str | bytes) -> None:
        """With a code and a reason; its client leaves like any other."""
        application = make(serializer="msgpack")
        browser = Browser(application, websocket=True)
        (connected,) = browser.answers(packed(0, {"user": "mallory"}))
        assert isinstance(connected, bytes)
        assert set(msgpack.loads(connected)["data"]) == {"sid"}
        browser.send(message).received()

        assert browser.closed is not None
        assert browser.closed[0] == 1002
        assert browser.closed[1]
        assert [leaving["reason"] for leaving in application.room.leavings] == ["parse error"]
        assert not any(application.leftovers().values())

    @pytest.mark.parametrize("serializer", ["msgpack", packet_classes.Zipped])
    def test_a_refused_client_gets_nothing_that_was_for_everybody(self, make: Make, serializer: Any) -> None:
        """As with the standard packets, though ours cannot read the namespace of these."""
        application = make(serializer=serializer)
        sio, browser = application.sio, Browser(application)
        sio.on("connect", lambda *_: sio.emit("secret", namespace="/private") or False, namespace="/private")
        connect = sio.packet_class(CONNECT, namespace="/private").encode()
        (refusal,) = browser.answers(connect)

        assert sio.packet_class(encoded_packet=refusal).packet_type == CONNECT_ERROR

    def test_control_goes_ahead_of_packets_that_are_whole_in_bytes(self, make: Make) -> None:
        """They are no attachments, which would have to go first, so data does not crowd out control."""
        application = make(serializer="msgpack")
        browser = Browser(application)
        browser.answers(packed(0, {"user": "ana"}))
        for number in range(4):
            application.sio.emit("event", number, namespace="/room")
        turn()
        browser.session.queue.take(1)
        browser.session.offer_control(Frame(b"2"))
        ping, *events = browser.received()

        assert ping == "2"
        assert [msgpack.loads(event)["data"][1] for event in events if isinstance(event, bytes)] == [1, 2, 3]

    @pytest.mark.parametrize("name", ["msgpack", "Zipped", "Terse", "Counting"])
    def test_an_event_is_acknowledged_in_the_packets_of_the_server(self, make: Make, name: str) -> None:
        """Each class encodes and decodes whole packets."""
        application = make(serializer=name if name == "msgpack" else getattr(packet_classes, name))
        packet_class = application.sio.packet_class
        browser = Browser(application)

        def told(kind: int, data: Any, id_: int | None = None) -> Any:
            encoded = packet_class(kind, data=data, namespace="/room", id=id_).encode()
            messages = browser.answers(encoded if isinstance(encoded, bytes) else f"4{encoded}")
            (message,) = messages
            return packet_class(encoded_packet=message if isinstance(message, bytes) else message.removeprefix("4"))

        assert set(told(0, {"user": "ana"}).data) == {"sid"}
        answer = told(2, ["echo", {"deep": [1, None]}, "ü"], 7)
        assert (answer.id, answer.data) == (7, [{"deep": [1, None]}, "ü"])

    @pytest.mark.parametrize("value", [None, "10", b"x", -1, float("nan"), float("inf"), 10**400, [], {}])
    @pytest.mark.parametrize(
        "option", ["emit_deadline_s", "max_handlers", "ping_interval", "ping_timeout", "max_http_buffer_size"]
    )
    def test_a_number_that_cannot_be_is_refused_with_its_name_and_range(self, make: Make, option: str, value: object) -> None:
        """When the server is made, and not when the first client is slow."""
        with pytest.raises(ValueError, match=rf"^{option}: expected .* to \d+") as raised:
            make(**{option: value})
        assert repr(value)[:20] in str(raised.value)

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("overflow", "block", "overflow: expected one of 'wait', 'drop', 'disconnect', got 'block'"),
            ("client_manager", "redis://", "client_manager: expected a socketio.Manager, got 'redis://'"),
            ("client_manager", socketio.Manager, "client_manager: expected a socketio.Manager, got <class"),
            ("transport_limits", {"queue_frames": 1}, "transport_limits: expected TransportLimits"),
            ("transport_limits", TransportLimits(queue_frames=0), "queue_frames: expected a whole number from 1 to"),
            (
                "transport_limits",
                TransportLimits(write_deadline_s=float("nan")),
                "write_deadline_s: expected a number",
            ),
        ],
    )
    def test_another_object_than_expected_is_refused_with_the_name(
        self, make: Make, option: str, value: object, told: str
    ) -> None:
        with pytest.raises(ValueError, match=re.escape(told)):
            make(**{option: value})

    @pytest.mark.parametrize(
        ("serializer", "told"),
        [
            ("pickle", "serializer: expected 'default', 'msgpack' or a subclass of socketio.packet.Packet, got 'pickle'"),
            (dict, "serializer: expected 'default', 'msgpack' or a subclass of socketio.packet.Packet, got <class 'dict'>"),
            (
                packet_classes.Broken,
                r"serializer: encode\(\) of Broken must return str, bytes or a list of these, not dict",
            ),
        ],
    )
    def test_a_serializer_that_cannot_work_is_refused_when_the_server_is_made(
        self, make: Make, serializer: object, told: str
    ) -> None:
        with pytest.raises(ValueError, match=told):
            make(serializer=serializer)
