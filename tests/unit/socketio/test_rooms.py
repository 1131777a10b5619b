"""Client managers with a queue between processes: events of another process go out by our fan-out, and wait for no client."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import gevent.event
import pytest
import socketio
from gevent.queue import Queue

from headgate.socketio import rooms
from headgate.socketio.rooms import RoomManager
from tests.support.session_clock import turn
from tests.support.socketio_application import Application, Browser


class QueueManager(socketio.PubSubManager):  # type: ignore[misc]
    """Two processes in one. One side hears the publishes of the other."""

    def __init__(self, listens: Queue, publishes: Queue) -> None:
        super().__init__()
        self.listens, self.publishes = listens, publishes

    def _publish(self, message: Any) -> None:
        self.publishes.put(json.dumps(message).encode())

    def _listen(self) -> Iterator[Any]:
        while (message := self.listens.get()) is not None:
            yield message


@pytest.fixture
def here_and_there(make: Callable[..., Application]) -> Iterator[tuple[Application, Application]]:
    """Two servers that share their rooms."""
    queues = Queue(), Queue()
    yield make(client_manager=QueueManager(*queues)), make(client_manager=QueueManager(*queues[::-1]))
    for queue in queues:
        queue.put(None)


def test_a_manager_of_any_class_is_given_our_rooms(here_and_there: tuple[Application, Application]) -> None:
    for application in here_and_there:
        manager = application.sio.manager
        assert isinstance(manager, QueueManager)
        assert isinstance(manager, RoomManager)


def test_an_event_that_is_for_nobody_here_is_not_encoded(
    here_and_there: tuple[Application, Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a room without members here, to a namespace without clients, or our own that comes back; one with a receiver is."""
    here, there = here_and_there
    Browser(here).join()
    far = Browser(there)
    sid = far.join()
    there.sio.enter_room(sid, "room")
    encoded: list[int] = []

    class Counted(socketio.packet.Packet):  # type: ignore[misc]
        def encode(self) -> Any:
            encoded.append(self.data[1])
            return super().encode()

    monkeypatch.setattr(there.sio, "packet_class", Counted)
    here.sio.emit("event", 1, to="another room")
    here.sio.emit("event", 2, to="room", namespace="/another")
    here.sio.emit("event", 3, to="somebody")
    turn()
    there.sio.emit("event", 4, to="room")
    there.sio.manager.listens.put(there.sio.manager.publishes.get())  # as Redis brings it back
    here.sio.emit("event", 5, to="room")
    here.sio.emit("event", 6, to=["another room", "room"])
    here.sio.emit("event", 7)
    here.sio.emit("event", 8, to=sid)
    turn()

    assert encoded == [4, 5, 6, 7, 8]
    assert far.received() == [f'42["event",{number}]' for number in encoded]


def test_what_was_asked_of_a_client_elsewhere_leaves_nothing_behind_when_it_is_answered(
    here_and_there: tuple[Application, Application],
) -> None:
    """No process here hears that the client has gone. A repeated answer belongs to no question, and never to another one."""
    here, there = here_and_there
    Browser(here).join()  # the server listens to the others from its first client on
    far, farther = Browser(there), Browser(there)
    sids = far.join(), farther.join()
    for sid in sids:
        there.sio.enter_room(sid, "lobby")
    answers: list[Any] = []
    here.sio.emit("who?", to=sids[0], callback=lambda *answer: answers.append(answer))
    assert far.received() == ['421["who?"]']
    far.send('431["me"]')
    here.sio.emit("first?", to="lobby", callback=lambda *answer: answers.append(("first", *answer)))
    assert (far.received(), farther.received()) == (['422["first?"]'], ['421["first?"]'])
    far.send('432["yes"]')
    assert here.sio.manager.callbacks == {}

    here.sio.emit("second?", to="lobby", callback=lambda *answer: answers.append(("second", *answer)))
    farther.received()
    farther.send('431["no, to the first"]')

    assert answers == [("me",), ("first", "yes")]
    assert list(here.sio.manager.callbacks) == ["lobby"]


def test_answers_that_never_come_from_elsewhere_are_waited_for_up_to_a_bound(
    here_and_there: tuple[Application, Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that the clients were at was killed, with 100 questions on their way. The newest are still answered."""
    monkeypatch.setattr(rooms, "MAX_ASKED_ELSEWHERE", 10)
    here, there = here_and_there
    Browser(here).join()
    far = Browser(there)
    sid = far.join()
    answers: list[Any] = []
    for number in range(100):
        here.sio.emit("question", number, to=f"gone-{number}", callback=lambda *answer: answers.append(answer))
    assert len(here.sio.manager.callbacks) == 10
    here.sio.emit("question", to=sid, callback=lambda *answer: answers.append(answer))
    assert far.received() == ['421["question"]']
    far.send('431["yes"]')

    assert answers == [("yes",)]
    assert len(here.sio.manager.callbacks) == 9


def test_a_slow_client_does_not_hold_up_what_comes_from_another_process(here_and_there: tuple[Application, Application]) -> None:
    """An event to it alone is queued within its bounds, and beyond them it is cut; the others get theirs in the meantime."""
    here, there = here_and_there
    Browser(here).join()
    slow, witness = Browser(there), Browser(there)
    sid = slow.join()
    witness.join()
    slow.session.queue.max_frames = 10
    got: list[Any] = []
    for number in range(20):
        here.sio.emit("to the slow one", number, to=sid)
        here.sio.emit("to all", number, skip_sid=sid)
        got += witness.received()

    assert got == [f'42["to all",{number}]' for number in range(20)]
    assert there.ends == ["slow consumer"]


def test_a_large_room_gets_everything_in_order_over_several_turns(application: Application) -> None:
    """Events of many sizes, more than one write takes, emitted before and while the fan-out is at work."""
    browsers = [Browser(application) for _ in range(60)]
    for browser in browsers:
        browser.join()
    expected = []
    for number, size in enumerate([10, 30_000, 40_000, 10, 10, 70_000, 10] * 3):
        application.sio.emit("event", (number, "x" * size))
        expected.append(f'42["event",{number},"{"x" * size}"]')
        if number % 5 == 4:
            gevent.sleep(0)

    assert all(browser.received() == expected for browser in browsers)


@pytest.mark.parametrize("namespace", ["/", "/custom", "/other"])
@pytest.mark.parametrize("end", ["refused", "fails", "let in"])
def test_a_client_that_is_refused_gets_nothing_that_was_for_everybody(application: Application, namespace: str, end: str) -> None:
    """It counts among all clients while its connect handler runs, as in python-socketio. An admitted one gets all, in order."""
    sio, gate = application.sio, gevent.event.Event()
    prefix = "" if namespace == "/" else namespace + ","

    def connect(sid: str, *_: Any) -> bool:
        sio.emit("before", "1/2,3", namespace=namespace)
        sio.emit("to you", 2, to=sid, namespace=namespace)
        gate.wait()
        if end == "fails":
            raise RuntimeError("this connect handler fails")
        return end == "let in"

    browser = Browser(application)
    browser.join("/custom" if namespace == "/" else "/")
    sio.on("connect", connect, namespace=namespace)
    browser.send(f"40{prefix}")
    sio.emit("secret", (b"4", "/"), namespace=namespace)
    sio.emit("elsewhere", 5, namespace="/custom" if namespace == "/" else "/")
    gate.set()
    elsewhere = "/custom," if namespace == "/" else ""
    events = browser.received()
    answer = "" if end == "fails" else events.pop(0)  # as in python-socketio
    own = [f'42{prefix}["to you",2]', f'42{elsewhere}["elsewhere",5]']
    others = [f'42{prefix}["before","1/2,3"]', f'451-{prefix}["secret",{{"_placeholder":true,"num":0}},"/"]', b"4"]

    if end == "let in":
        assert str(answer).startswith(f"40{prefix}{{")
        assert events == [others[0], own[0], *others[1:], own[1]]
    else:
        assert events == own
    assert browser.session.queue.frames == browser.session.queue.bytes == 0


def test_rooms_refuse_what_python_socketios_refuse(application: Application) -> None:
    browser, other = Browser(application), Browser(application)
    sid, other_sid = browser.join(), other.join()
    sio = application.sio

    with pytest.raises(ValueError, match="cannot enter a sid room"):
        sio.enter_room(sid, other_sid)
    with pytest.raises(ValueError, match="cannot close a sid room"):
        sio.close_room(sid)
    with pytest.raises(ValueError, match="sid is not connected to requested namespace"):
        sio.enter_room(sid, "room", namespace="/nowhere")


def test_a_client_that_has_left_leaves_no_room_behind_that_it_could_not_enter(application: Application) -> None:
    """As when a handler enters it late, after waiting for a database; with a room for each user they would add up."""
    leaver, stayer = Browser(application), Browser(application)
    sid = leaver.join()
    stayer.join()
    leaver.send("41")
    rooms = application.sio.manager.rooms["/"]
    before = set(rooms)
    with pytest.raises(KeyError):
        application.sio.enter_room(sid, "late")
    assert set(rooms) == before


def test_a_manager_whose_emit_is_all_its_own_sends_message_by_message(make: Callable[..., Application]) -> None:
    """By the way that python-socketio's managers use; its events keep their place."""

    class Own(socketio.Manager):  # type: ignore[misc]
        def emit(self, event: str, data: Any, namespace: str, room: Any = None, **_: Any) -> None:
            packet = self.server.packet_class(2, namespace=namespace, data=[event, data])
            for _, eio_sid in self.get_participants(namespace, room):
                for each in self.server.eio_packets(packet):
                    self.server._send_eio_packet(eio_sid, each)

    application = make(client_manager=Own())
    browser = Browser(application)
    browser.answers("40/custom,")
    application.sio.emit("event", b"1", namespace="/custom")
    application.sio.eio.send(browser.session.sid, "raw")

    assert browser.received() == ['451-/custom,["event",{"_placeholder":true,"num":0}]', b"1", "4raw"]
