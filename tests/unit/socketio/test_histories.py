"""Random histories of an application, compared with the events of each client by python-socketio's documentation.

Clients come and go in every way, over polling, WebSocket and from one to the other; they enter and leave rooms, which are
closed under them; events go to rooms, lists of rooms, all clients and single clients, with and without attachments, out of
handlers and outside them, while other handlers wait. Each client must have received exactly the events to its rooms at their
emit, and the answers to its own, in that order; a departed one the beginning of that. Afterwards nothing is left of it.
HEADGATE_HISTORIES sets how many are tried for each policy (`make fuzz`: 5,000), HEADGATE_SEED tries one.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent.event import Event

from headgate.transport.session_state import SessionState
from tests.support.session_clock import turn
from tests.support.socketio_application import Application, Browser, without_blocking

HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "10"))
SEEDS = [int(os.environ["HEADGATE_SEED"])] if "HEADGATE_SEED" in os.environ else range(HISTORIES)
STEPS = 60
ROOMS = ("red", "green", 3)
Told = tuple[Any, ...]


class Client:
    """One client: its browser, its events, and the expected ones."""

    def __init__(self, world: World, *, websocket: bool) -> None:
        self.world = world
        self.browser = Browser(world.application, websocket=websocket)
        self.polls = not websocket
        self.upgrading = self.gone = False
        self.sid = ""
        self.expected: list[Told] = []
        self.told: list[Told] = []
        self.asked = 0

    def read(self) -> None:
        """Take the received packets. A packet's attachments must come directly after it."""
        if self.upgrading or self.browser.is_gone:
            return
        messages = iter(self.browser.received())
        for message in messages:
            assert isinstance(message, str), "an attachment without its packet"
            kind, count, rest = _head(message)
            attachments = [next(messages) for _ in range(count)]
            assert all(isinstance(each, bytes) for each in attachments), message
            if kind == "40":
                self.sid = json.loads(rest)["sid"]
            elif kind in ("42", "45"):
                name, *arguments = json.loads(rest)
                self.told.append((name, *(attachments if count else arguments)))
            elif kind in ("43", "46"):
                number, answer = rest.split("[", 1)
                self.told.append(("answer", int(number), *(attachments or json.loads("[" + answer))))
            elif kind not in ("41", "44") and message != "1":
                raise AssertionError(message)


def _head(message: str) -> tuple[str, int, str]:
    """Return a packet's kind, the number of its attachments, and the rest after its namespace."""
    kind, rest, count = message[:2], message[2:], 0
    if kind in ("45", "46"):
        number, rest = rest.split("-", 1)
        count = int(number)
    if rest.startswith("/h,"):
        rest = rest[3:]
    return kind, count, rest


class World:
    def __init__(self, seed: int, **options: Any) -> None:
        self.random = random.Random(seed)
        self.application = Application(**options)
        self.sio = self.application.sio
        self.clients: list[Client] = []
        self.by_sid: dict[str, Client] = {}
        self.rooms: dict[Any, list[Client]] = {room: [] for room in ROOMS}
        self.connected: list[Client] = []
        self.joining: list[Client] = []
        self.gates: list[Event] = []
        self.number = 0
        for name in ("connect", "say", "wait", "disconnect"):
            self.sio.on(name, getattr(self, f"on_{name}"), namespace="/h")

    # -- the application, which reports its actions to the oracle-------------------------------------------------------

    def emit(self, to: Any, skip: list[Client], *, binary: bool) -> None:
        self.number += 1
        data: Any = str(self.number).encode() if binary else self.number
        room: Any
        if isinstance(to, Client):
            audience, room = [to] if to in self.connected else [], to.sid
        elif isinstance(to, list):
            audience, room = [client for name in to for client in self.rooms[name]], to
        else:
            # python-socketio counts a client among all while its connect handler runs, which may announce it to all.
            audience, room = ([*self.connected, *self.joining] if to is None else self.rooms[to]), to
        for client in dict.fromkeys(audience):
            if client not in skip:
                client.expected.append(("event", data))
        self.sio.emit("event", data, to=room, skip_sid=[client.sid for client in skip] or None, namespace="/h")

    def enter(self, client: Client, room: Any) -> None:
        if client in self.connected:
            if client not in self.rooms[room]:
                self.rooms[room].append(client)
            self.sio.enter_room(client.sid, room, namespace="/h")

    def leave(self, client: Client, room: Any) -> None:
        if client in self.rooms[room]:
            self.rooms[room].remove(client)
        self.sio.leave_room(client.sid, room, namespace="/h")

    def close(self, room: Any) -> None:
        self.rooms[room].clear()
        self.sio.close_room(room, namespace="/h")

    def on_connect(self, sid: str, environ: Any, auth: Any) -> None:
        """Let a client in, after a wait or at once, or refuse it."""
        client = self.clients[auth["client"]]
        client.sid = sid
        self.joining.append(client)
        if auth["waits"]:
            self.gates.append(gate := Event())
            gate.wait()
        self.joining.remove(client)
        if auth["refuse"]:
            client.gone = True
            if not client.browser.session.closed:
                client.expected.clear()  # it gets nothing of the events for all in between
            raise ConnectionRefusedError
        self.by_sid[sid] = client
        if client.gone:
            return
        self.connected.append(client)
        self.enter(client, "red")
        self.emit("red", [], binary=auth["binary"])

    def on_say(self, sid: str, room: Any, binary: Any) -> Any:
        client = self.by_sid[sid]
        self.emit(room, [], binary=bool(binary))
        return self.answer(client, binary=bool(binary))

    def on_wait(self, sid: str, room: Any) -> Any:
        """Wait, and then do the same. The client may be gone by then, and the room closed."""
        client = self.by_sid[sid]
        self.gates.append(gate := Event())
        gate.wait()
        self.enter(client, room)
        self.emit(room, [], binary=False)
        return self.answer(client, binary=False)

    def answer(self, client: Client, *, binary: bool) -> Any:
        """Return the acknowledgement of a handler, which the oracle expects now."""
        self.number += 1
        data: Any = str(self.number).encode() if binary else self.number
        if not client.browser.session.closed:  # a client that has left its namespace only is answered
            client.expected.append(("answer", data))
        return data

    def on_disconnect(self, sid: str, reason: str) -> None:
        """Notify the rooms of a client that it leaves."""
        client = self.by_sid[sid]
        if client not in self.connected:
            return  # it has gone while its connect handler waited
        assert sorted(map(str, self.sio.rooms(sid, namespace="/h"))) == sorted(
            [sid, *(str(room) for room in ROOMS if client in self.rooms[room])]
        )
        client.gone = True
        for room in ROOMS:
            if client in self.rooms[room]:
                self.emit(room, [client], binary=False)
        self.connected.remove(client)  # it has been in its rooms until now
        for members in self.rooms.values():
            if client in members:
                members.remove(client)

    # -- the steps of a history ---------------------------------------------------------------------------------------

    def here(self) -> Client | None:
        here = [client for client in self.connected if not client.gone]
        return self.random.choice(here) if here else None

    def come(self) -> None:
        client = Client(self, websocket=self.random.random() < 0.5)
        self.clients.append(client)
        auth = {"client": len(self.clients) - 1, "binary": self.random.random() < 0.3}
        auth |= {"waits": self.random.random() < 0.3, "refuse": self.random.random() < 0.1}
        client.browser.send("40/h," + json.dumps(auth))

    def go(self) -> None:
        """A client leaves, or is made to leave, in some way; perhaps before it has been let in."""
        client = self.random.choice(self.clients) if self.clients else None
        if client is None or client.gone:
            return
        session = client.browser.session
        joined = client in self.connected
        way = self.random.randrange(7)
        if client.upgrading and way in (0, 6):
            client.browser.fail_upgrade()
            client.upgrading = False
            return
        if way == 0:
            client.browser.go()
        elif way == 1:
            session.end("ping timeout")
        elif way == 2 and joined:
            self.in_greenlet(self.sio.disconnect, client.sid, namespace="/h")
        elif way == 3 and joined and not client.upgrading:
            client.browser.send("41/h,")
        elif way == 4 and not client.upgrading:
            client.browser.send("1")
        elif way == 5:
            self.sio.eio.disconnect(session.sid)
        elif way == 6:
            client.browser.send("4nonsense")
        turn()
        client.gone = client.gone or session.closed

    def ask(self) -> None:
        """A client sends an event to a handler that emits and answers, perhaps after a while."""
        client = self.here()
        if client is not None and not client.upgrading and not client.browser.session.closed:
            client.asked += 1
            name = self.random.choice(["say", "say", "wait"])
            arguments = [name, self.random.choice(ROOMS), self.random.randrange(2)][: 3 if name == "say" else 2]
            client.browser.send(f"42/h,{client.asked}{json.dumps(arguments)}")

    def announce(self) -> None:
        """The application emits, once or in a burst, in a separate greenlet."""
        somebody = self.here()
        to: Any = self.random.choice([None, *ROOMS, ["red", 3], list(ROOMS), somebody])
        skip = [each for each in self.connected if self.random.random() < 0.1]
        binary, count = self.random.random() < 0.3, self.random.choice([1, 1, 1, 5])

        def burst() -> None:
            for _ in range(count):
                self.emit(to, [each for each in skip if each in self.connected], binary=binary)

        self.in_greenlet(burst)

    def move(self) -> None:
        client = self.here()
        if client is None:
            return
        room = self.random.choice(ROOMS)
        self.random.choice([self.enter, self.enter, self.leave, lambda *_: self.close(room)])(client, room)

    def upgrade(self) -> None:
        """A client that polls goes over to a WebSocket, in two steps."""
        for client in self.clients:
            session = client.browser.session
            if client.upgrading and not session.closed:
                client.browser.finish_upgrade()
                client.upgrading = client.polls = False
                return
        client = self.random.choice(self.clients) if self.clients else None  # type: ignore[assignment]
        if client is not None and client.polls and client.browser.session.state is SessionState.POLLING:
            client.upgrading = client.browser.begin_upgrade()

    def go_on(self) -> None:
        if self.gates:
            self.gates.pop(self.random.randrange(len(self.gates))).set()

    def read(self) -> None:
        if self.clients:
            self.random.choice(self.clients).read()

    def in_greenlet(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Have the application do something that may wait."""
        gevent.spawn(work, *arguments, **options)
        if self.random.random() < 0.5:
            turn()
        else:
            gevent.sleep(0)

    def run(self) -> None:
        """Take the steps of a history, and come to its end. Every client has read everything."""
        steps = [self.come, self.go, self.ask, self.announce, self.move, self.upgrade, self.go_on, self.read]
        weights = [3, 1, 3, 6, 3, 1, 2, 3]
        for step in self.random.choices(steps, weights, k=STEPS):
            step()
        for client in self.clients:
            if client.upgrading and not client.browser.session.closed:
                client.browser.finish_upgrade()
            client.upgrading = False
        self.drain()
        while self.gates:
            self.go_on()
            self.drain()

    def drain(self) -> None:
        before = -1
        while before != (before := sum(len(client.told) for client in self.clients)):
            turn()
            for client in self.clients:
                client.read()

    def end(self) -> None:
        for client in self.clients:
            client.browser.go()
        turn()
        assert not any(self.application.leftovers().values())
        assert not self.sio.manager._entered
        assert not self.sio.behind
        assert not any(self.sio.manager.callbacks.values())
        self.application.sio.eio.deadlines.close()


def without_numbers(told: list[Told]) -> list[Told]:
    """Return a client's events, with its answers by their content, and not by the numbers of its questions."""
    return [(each[0], each[-1]) for each in told]


def is_part(some: list[Told], of: list[Told]) -> bool:
    """Return whether a list is another with some left out."""
    rest = iter(of)
    return all(each in rest for each in some)


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["roomy", "wait", "drop", "disconnect"])
def test_every_client_receives_what_was_for_it_in_order(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_blocking(monkeypatch)
    options: dict[str, Any] = {"limits": {"write_deadline_s": 3600.0}, "emit_deadline_s": 3600}
    if policy != "roomy":
        options |= {"overflow": policy, "limits": options["limits"] | {"queue_frames": 8}}
    dropped = disconnected = upgraded = 0
    for seed in SEEDS:
        world = World(seed, **options)
        world.run()
        missed = 0
        for client in world.clients:
            expected, told = client.expected, without_numbers(client.told)
            context = (policy, seed, world.clients.index(client), client.browser.session.reason)
            if client.browser.session.closed or client not in world.connected:
                assert is_part(told, expected) if policy == "drop" else told == expected[: len(told)], context
            elif policy == "drop":
                assert is_part(told, expected), context
                missed += len(expected) - len(told)
            else:
                assert told == expected, context
        assert missed <= world.sio.dropped
        dropped += missed
        disconnected += world.application.sio.eio is not None and sum(
            client.browser.session.reason == "slow consumer" for client in world.clients
        )
        upgraded += sum(client.browser.session.upgraded for client in world.clients)
        world.end()

    if len(SEEDS) > 1:
        assert upgraded
        assert (dropped > 0) is (policy == "drop")
        assert (disconnected > 0) is (policy == "disconnect")
