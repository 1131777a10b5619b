"""A client that reads slowly, or not at all: emits to it wait, broadcasts follow the server's policy, and it alone is cut."""

from collections.abc import Callable
from typing import Any

import gevent
import gevent.event
import pytest
import socketio

from headgate.socketio import member
from headgate.transport.session_state import SessionState
from tests.support.session_clock import Clock, controlled_clock, turn
from tests.support.socketio_application import Application, Browser

clock = pytest.fixture(controlled_clock)
Make = Callable[..., Application]
FRAMES = 40
SMALL = {"queue_frames": FRAMES, "write_deadline_s": 10.0}


@pytest.fixture
def make(make: Make, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Make:
    """Make applications with queues that hold few frames, on a clock that the test moves."""
    monkeypatch.setattr(member, "monotonic", lambda: clock.now_s)
    return lambda **options: make(**options | {"limits": SMALL | options.get("limits", {})})


@pytest.fixture(params=[False, True], ids=["polling", "websocket"])
def websocket(request: pytest.FixtureRequest) -> bool:
    value: bool = request.param
    return value


def numbers(packets: list[str | bytes], name: str = "numbered") -> list[int]:
    return [int(str(packet).rsplit(",", 1)[1].rstrip("]")) for packet in packets if f'"{name}"' in str(packet)]


class TestOneClient:
    def test_a_healthy_reader_gets_a_burst_far_beyond_its_queue(self, make: Make, websocket: bool) -> None:
        """5,000 events of one handler. The handler waits while the browser reads, and the order is kept."""
        application = make()
        browser = Browser(application, websocket=websocket)
        sid = browser.join()
        count = 5000

        def burst() -> None:
            for number in range(count):
                application.sio.emit("numbered", number, to=sid)

        emitting = gevent.spawn(burst)
        got: list[str | bytes] = []
        while len(got) < count:
            got += browser.received()
            assert browser.session.queue.frames <= FRAMES

        assert numbers(got) == list(range(count))
        emitting.join()
        assert application.ends == []

    def test_an_emit_returns_when_the_queue_has_drained(self, make: Make) -> None:
        """It waits for room, not for the browser to have everything."""
        application = make()
        browser = Browser(application)
        sid = browser.join()
        emitting = [gevent.spawn(application.sio.emit, "numbered", number, to=sid) for number in range(FRAMES)]
        turn()
        waiting = [greenlet for greenlet in emitting if not greenlet.dead]
        assert len(waiting) == FRAMES // 4 + 1
        browser.session.take_frames()
        turn()

        assert all(greenlet.dead for greenlet in emitting)

    def test_attachments_beyond_the_queue_arrive_behind_their_packet(self, make: Make, websocket: bool) -> None:
        """One event with ten attachments of three times the queue, between two others."""
        application = make(limits={"queue_bytes": 100_000})
        browser = Browser(application, websocket=websocket)
        sid = browser.join()

        def emit() -> None:
            application.sio.emit("first", to=sid)
            application.sio.emit("blobs", tuple(bytes(30_000) for _ in range(10)), to=sid)
            application.sio.emit("last", to=sid)

        gevent.spawn(emit)
        got: list[str | bytes] = []
        while not got or got[-1] != '42["last"]':
            got += browser.received()

        assert got[0] == '42["first"]'
        assert str(got[1]).startswith('4510-["blobs"')
        assert got[2:-1] == [bytes(30_000)] * 10

    def test_parallel_answers_all_arrive(self, make: Make) -> None:
        """Five acknowledgements of 200 KB over polling."""
        application = make(limits={"queue_bytes": 300_000})
        browser = Browser(application)
        browser.join()
        browser.send(*[f'42{number}["message-with-ack","{"x" * 200_000}"]' for number in range(5)])
        got: list[str | bytes] = []
        while len(got) < 5:
            got += browser.received()

        assert sorted(str(packet)[:3] for packet in got) == [f"43{number}" for number in range(5)]
        assert application.ends == []

    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    def test_an_acknowledgement_waits_for_room_behind_the_events(self, make: Make, binary: bool) -> None:
        application = make()
        browser = Browser(application)
        browser.join()
        for number in range(FRAMES):
            application.sio.emit("event", number)
        if binary:
            browser.send('451-1["message-with-ack",{"_placeholder":true,"num":0}]', b"\x01")
        else:
            browser.send('421["message-with-ack","last"]')
        got = browser.received()

        assert numbers(got, "event") == list(range(FRAMES))
        assert got[FRAMES:] == (['461-1[{"_placeholder":true,"num":0}]', b"\x01"] if binary else ['431["last"]'])
        assert application.ends == []

    def test_a_browser_that_polls_no_more_is_cut_at_the_write_deadline(self, make: Make, clock: Clock) -> None:
        """The emit returns, and the application gets the reason; the browser learns it at its next request."""
        application = make(limits={"write_deadline_s": 0.01})
        browser = Browser(application)
        sid = browser.join()
        emitting = gevent.spawn(lambda: [application.sio.emit("numbered", number, to=sid) for number in range(FRAMES)])
        turn()
        assert not emitting.dead
        clock.now_s += 0.01
        emitting.join()
        turn()

        assert application.ends == ["write deadline"]
        told = application.sio.eio.final_frames.take(browser.session.sid)
        assert told is not None
        assert told.startswith("write deadline")

    def test_a_browser_that_takes_sips_is_cut_at_the_deadline_of_the_emit(self, make: Make, clock: Clock) -> None:
        """It accepts bytes, so the write deadline leaves it alone; but one handler does not wait for it for ever."""
        application = make(emit_deadline_s=60, limits={"write_deadline_s": 0.01})
        browser = Browser(application)
        sid = browser.join()
        emitting = gevent.spawn(lambda: [application.sio.emit("numbered", number, to=sid) for number in range(FRAMES)])
        turn()
        for _ in range(3):
            clock.now_s += 20
            browser.session.queue.take(1)
            browser.session.owners[0].drained()
            turn()
        emitting.join()
        turn()

        assert application.ends == ["slow consumer"]

    def test_a_connect_handler_may_emit_more_than_the_queue_holds(self, make: Make) -> None:
        """Its events wait for CONNECT, so it cannot wait for them."""
        application = make()

        def welcome(sid: str, *_: Any) -> None:
            for number in range(3 * FRAMES):
                application.sio.emit("numbered", number, to=sid, namespace="/many")

        application.sio.on("connect", welcome, namespace="/many")
        browser = Browser(application)
        connected, *events = browser.answers("40/many,")

        assert str(connected).startswith('40/many,{"sid"')
        assert numbers(events) == list(range(3 * FRAMES))

    def test_connect_handlers_that_emit_to_each_others_rooms_end(self, make: Make, websocket: bool) -> None:
        """With `wait` the events of both stay in the queues until both handlers are done, so neither waits for the other."""
        application = make(overflow="wait")
        met, gate = [], gevent.event.Event()

        def connect(sid: str, *_: Any) -> None:
            application.sio.enter_room(sid, "hall", namespace="/hall")
            met.append(sid)
            gate.wait()
            for number in range(2 * FRAMES):
                application.sio.emit("numbered", number, to="hall", namespace="/hall")
                application.sio.emit("numbered", number, to=met[0], namespace="/hall")
                gevent.sleep(0)

        application.sio.on("connect", connect, namespace="/hall")
        browsers = [Browser(application, websocket=websocket) for _ in range(2)]
        for browser in browsers:
            browser.send("40/hall,")
        gate.set()
        turn()
        got: dict[Browser, list[str | bytes]] = {browser: [] for browser in browsers}
        while min(map(len, got.values())) < 4 * FRAMES + 1:
            for browser, packets in got.items():
                packets += browser.received()

        assert all(str(packets[0]).startswith("40/hall,") for packets in got.values())
        assert sorted(map(len, got.values())) == [4 * FRAMES + 1, 8 * FRAMES + 1]

    def test_an_emitter_goes_on_when_a_connect_handler_takes_too_long(self, make: Make, clock: Clock) -> None:
        """The handler may wait for the emitter itself. Its client, with events that we keep back, is not cut for that."""
        application = make(overflow="wait", emit_deadline_s=60)
        gate = gevent.event.Event()
        application.sio.on("connect", lambda *_: gate.wait() and None, namespace="/slow")
        browser = Browser(application)
        browser.send("40/slow,")
        emitting = gevent.spawn(lambda: [application.sio.emit("numbered", number, namespace="/slow") for number in range(FRAMES)])
        turn()
        assert not emitting.dead
        while not emitting.dead:
            clock.now_s += 60
            browser.session.owners[0].drained()
            turn()
        gate.set()

        assert numbers(browser.received()) == list(range(FRAMES))

    def test_a_hundred_handlers_that_emit_to_each_others_rooms_end(self, make: Make, websocket: bool) -> None:
        """Each waits for the slowest of a room, none for another handler; everything arrives, in the order of each handler."""
        application = make(overflow="wait")
        browsers = [Browser(application, websocket=websocket) for _ in range(20)]
        sids = [browser.join() for browser in browsers]
        for number, sid in enumerate(sids):
            for room in range(number % 5, 20, 5):
                application.sio.enter_room(sid, f"room {room}")

        def shout(sid: str, first: int) -> None:
            for number in range(first, first + 20):
                application.sio.emit("numbered", number, to=f"room {number % 20}")
                application.sio.emit("numbered", -1 - number, to=sids[number % 20])

        application.sio.on("shout", shout)
        for index, browser in enumerate(browsers):
            browser.send(*[f'42["shout",{20 * (5 * index + each)}]' for each in range(5)])
        got: dict[Browser, list[int]] = {browser: [] for browser in browsers}
        while application.sio._running:
            for browser, told in got.items():
                told += numbers(browser.received())
        for index, (browser, told) in enumerate(got.items()):
            told += numbers(browser.received())
            to_rooms = [number for number in told if number >= 0]
            assert sorted(to_rooms) == [number for number in range(2000) if number % 20 % 5 == index % 5]
            assert sorted(-1 - number for number in told if number < 0) == list(range(index, 2000, 20))
            for handler in range(100):
                own = [number for number in to_rooms if number // 20 == handler]
                assert own == sorted(own)
        assert application.ends == []

    def test_a_session_that_ends_lets_its_emitters_go(self, make: Make) -> None:
        """Also when the emit waits in a handler of that client's own event, which runs in the session's own greenlet."""
        application = make(async_handlers=False)
        browser = Browser(application)
        browser.enter("ana").send('42/room,7["burst",200,0]')
        assert browser.session.state is SessionState.POLLING
        browser.go()

        assert [leaving["reason"] for leaving in application.room.leavings] == ["transport close"]
        assert not any(application.leftovers().values())


class TestBroadcast:
    """Events to a room: no emit waits for slow clients, unless the server is set to wait."""

    def test_a_full_queue_disconnects_its_client_and_nobody_else(self, make: Make) -> None:
        """The default: reason `slow consumer`, which the browser receives, and nothing is lost in silence."""
        application = make()
        slow, witness = Browser(application, websocket=True), Browser(application)
        slow.join()
        witness.join()
        slow.session.corks += 1  # its socket takes nothing
        slow.session.ready = False
        got: list[str | bytes] = []
        for number in range(2 * FRAMES):
            application.sio.emit("numbered", number)
            got += witness.received()

        assert numbers(got) == list(range(2 * FRAMES))
        assert application.ends == ["slow consumer"]
        slow.received()
        assert slow.closed == (1008, "slow consumer: the client queue is full")

    def test_with_drop_the_client_misses_events_and_stays(self, make: Make) -> None:
        """They are counted; packets with attachments are missed whole."""
        application = make(overflow="drop")
        slow = Browser(application)
        slow.join()
        for number in range(FRAMES - 1):
            application.sio.emit("numbered", number)
        turn()
        application.sio.emit("numbered", (99, b"1", b"2"))
        application.sio.emit("numbered", 100)
        turn()
        got = slow.received()

        assert numbers(got) == [*range(FRAMES - 1), 100]
        assert not any(isinstance(packet, bytes) for packet in got)
        assert application.sio.dropped == 1
        assert application.ends == []

    def test_with_wait_a_client_that_leaves_is_forgotten_and_holds_nobody_up(self, make: Make) -> None:
        """Its queue was full, and its emitter waits for it."""
        application = make(overflow="wait")
        slow = Browser(application)
        slow.join()
        emitting = gevent.spawn(lambda: [application.sio.emit("numbered", number) for number in range(FRAMES)])
        turn()
        assert not emitting.dead
        slow.go()
        emitting.join()
        application.sio.emit("numbered", 0)

        assert not application.sio.behind
        assert not any(application.leftovers().values())

    def test_what_cannot_be_encoded_raises_where_it_is_emitted_and_leaves_no_callback_behind(self, make: Make) -> None:
        """To a room and to one client; nothing of it is sent. The emit that failed is as if it had not been."""
        application = make()
        browser = Browser(application)
        sid = browser.join()
        for options in ({"to": None}, {"to": sid}, {"to": "nobody"}, {"namespace": "/nobody/there"}):
            with pytest.raises(TypeError):
                application.sio.emit("event", {1, 2}, **options)
        for to in (None, sid):
            with pytest.raises(TypeError):
                application.sio.emit("event", {1, 2}, to=to, callback=lambda *_: None)
        with pytest.raises(TypeError):
            application.sio.call("event", {1, 2}, to=sid)

        assert list(application.sio.manager.callbacks[sid]) == [0]  # the counter of its questions
        assert browser.received() == []

    def test_a_call_that_is_not_answered_in_time_raises(self, make: Make) -> None:
        """The client may answer later; no caller waits for that any more."""
        application = make()
        browser = Browser(application)
        sid = browser.join()
        calling = gevent.spawn(application.sio.call, "question", to=sid, timeout=0.001)
        with pytest.raises(socketio.exceptions.TimeoutError):
            calling.get()
        assert browser.received() == ['421["question"]']
        browser.send('431["too late"]')

        assert application.ends == []
