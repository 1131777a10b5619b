"""The namespace `/room` of the application under test: sessions, rooms, acknowledgements, and clients that leave.

A client names itself in its CONNECT, and the acts then and at its end: `{"user", "refuse"?, "fails"?, "raises"?, "waits"?}`.
"""

from typing import Any

import socketio
from gevent.event import Event

ROOM = "room"


class Room(socketio.Namespace):  # type: ignore[misc]
    """Remembers the events of its handlers: `notes` by event handlers, `leavings` by disconnect handlers."""

    def __init__(self) -> None:
        super().__init__("/room")
        self.notes: list[str] = []
        self.leavings: list[dict[str, Any]] = []
        self.leaving: list[str] = []  # with running disconnect handlers
        self.gate = Event()

    def on_connect(self, sid: str, environ: dict[str, Any], auth: dict[str, Any]) -> None:
        """Let everyone in, into one room, but for those with a wish to be refused."""
        if auth.get("refuse"):
            raise socketio.exceptions.ConnectionRefusedError("as you wish")
        self.save_session(sid, auth)
        self.enter_room(sid, ROOM)
        if auth.get("fails"):
            raise RuntimeError("this connect handler fails")

    def on_note(self, sid: str, *_: Any) -> str:
        """Return, and remember, the client's identity."""
        user: str = self.get_session(sid)["user"]
        self.notes.append(user)
        return user

    def on_burst(self, sid: str, count: int, size: int) -> str:
        """Emit `count` numbered events to the client, and only then acknowledge."""
        for number in range(count):
            self.emit("numbered", (number, "x" * size), to=sid)
        return "behind them"

    def on_echo(self, sid: str, *data: Any) -> tuple[Any, ...]:
        return data

    def on_ask_me(self, sid: str, question: Any) -> Any:
        return self.call("question", question, to=sid, timeout=30)

    def on_disconnect_me(self, sid: str) -> None:
        self.disconnect(sid)

    def on_disconnect(self, sid: str, reason: str) -> None:
        """Note the remains of a client that leaves."""
        session = self.get_session(sid)
        self.leaving.append(session["user"])
        if session.get("waits"):
            self.gate.wait()
        with self.session(sid) as session:
            session["left"] = reason
        self.leavings.append(
            {
                "user": session["user"],
                "reason": reason,
                "saved": self.get_session(sid).get("left"),
                "transport": self.server.transport(sid, namespace="/room"),
                "environ": "PATH_INFO" in (self.server.get_environ(sid, namespace="/room") or ()),
                "rooms": sorted(self.rooms(sid)) == sorted([ROOM, sid]),
            }
        )
        self.leaving.remove(session["user"])
        if session.get("raises"):
            raise RuntimeError("this disconnect handler fails")
