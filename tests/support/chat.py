"""A chat, as an application of python-socketio is written: names, rooms, whispers, files, history, questions, refusals.

It runs on python-socketio's own server and on ours, beside each other, in separate processes, and ours under each web server
that carries it:

    python -m tests.support.chat stock|headgate|pywsgi|gevent-websocket|tls [certificate key]
    gunicorn -k gevent "tests.support.chat:application('headgate')"

The first prints its port, and ends with its standard input. With `CHAT_REDIS` several processes share their rooms. The chat knows
nothing of Headgate but the one line that an application changes.
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import os
import sys
from typing import Any

import gevent
import socketio
from gevent import pywsgi

from headgate.socketio import HTTPServer, Server

LOBBY = "lobby"


class Chat(socketio.Namespace):  # type: ignore[misc]
    """The namespace `/chat`."""

    def on_connect(self, sid: str, environ: dict[str, Any], auth: Any) -> None:
        """Let in every guest with a name, and show them the lobby."""
        if not isinstance(auth, dict) or not auth.get("name"):
            raise socketio.exceptions.ConnectionRefusedError("a name, please", {"example": "ana"})
        self.save_session(sid, {"name": auth["name"], "said": 0})
        self.enter_room(sid, LOBBY)
        self.emit("welcome", {"name": auth["name"], "transport": self.server.transport(sid, namespace="/chat")}, to=sid)
        self.emit("joined", auth["name"], room=LOBBY, skip_sid=sid)

    def on_say(self, sid: str, text: str) -> dict[str, int]:
        """Send it to the lobby; return the number of the speaker's messages."""
        with self.session(sid) as session:
            session["said"] += 1
        self.emit("said", (session["name"], text), room=LOBBY)
        return {"said": session["said"]}

    def on_whisper(self, sid: str, name: str, text: str) -> bool:
        """Send it to one other guest."""
        for other, _ in self.server.manager.get_participants("/chat", LOBBY):
            if self.get_session(other)["name"] == name:
                self.emit("whispered", {"from": self.get_session(sid)["name"], "text": text}, to=other)
                return True
        return False

    def on_upload(self, sid: str, name: str, data: bytes, thumbnail: bytes) -> tuple[int, bytes]:
        """Show a file to the lobby; return its size and its beginning."""
        self.emit("file", {"name": name, "data": data, "thumbnail": thumbnail}, room=LOBBY, skip_sid=sid)
        return len(data), data[:4]

    def on_history(self, sid: str, count: int, size: int = 100) -> str:
        """Emit many, and then acknowledge."""
        for number in range(count):
            self.emit("line", (number, "x" * size), to=sid)
        return "that is all"

    def on_album(self, sid: str, count: int, size: int) -> str:
        """Emit one event with many photos, and then acknowledge."""
        self.emit("photos", tuple(bytes([number]) * size for number in range(count)), to=sid)
        return "that is all"

    def on_move(self, sid: str, room: str) -> list[str]:
        """Go from the lobby to another room; return the rooms that remain."""
        self.leave_room(sid, LOBBY)
        self.enter_room(sid, room)
        self.emit("moved", room, room=[LOBBY, room])
        rooms = sorted(self.rooms(sid))
        self.leave_room(sid, room)
        self.enter_room(sid, LOBBY)
        return [name for name in rooms if name != sid]

    def on_ask_me(self, sid: str, question: str) -> Any:
        return self.call("question", question, to=sid, timeout=30)

    def on_nothing(self, sid: str) -> None:
        """Return nothing."""

    def on_break(self, sid: str) -> None:
        """Fail, without an acknowledgement, and the chat goes on."""
        raise RuntimeError("this handler fails")

    def on_kick_me(self, sid: str) -> None:
        """Disconnect the client that asks for it."""
        self.emit("goodbye", to=sid)
        self.disconnect(sid)

    def on_disconnect(self, sid: str, reason: str) -> None:
        self.emit("left", (self.get_session(sid)["name"], reason), room=LOBBY, skip_sid=sid)


def application(kind: str = "headgate") -> Any:
    """Return the chat as a WSGI application."""
    options: dict[str, Any] = {"ping_interval": 1}  # stock's poll is answered no sooner, when its client goes
    if url := os.environ.get("CHAT_REDIS"):
        options["client_manager"] = socketio.RedisManager(url)
    sio = socketio.Server(async_mode="gevent", **options) if kind == "stock" else Server(**options)
    sio.register_namespace(Chat("/chat"))
    return socketio.WSGIApp(sio)


def main(kind: str, *certificate: str) -> None:
    """Serve until standard input ends."""
    app, address = application(kind), ("127.0.0.1", 0)
    if kind in ("stock", "pywsgi"):
        server = pywsgi.WSGIServer(address, app, log=None)
    elif kind == "gevent-websocket":
        from geventwebsocket.handler import WebSocketHandler

        server = pywsgi.WSGIServer(address, app, log=None, handler_class=WebSocketHandler)
    elif kind == "tls":
        server = HTTPServer(address, app, certfile=certificate[0], keyfile=certificate[1])
    else:
        server = HTTPServer(address, app)
    server.start()
    print(server.server_port, flush=True)
    sys.stdout = sys.stderr
    gevent.get_hub().threadpool.apply(sys.stdin.read)
    server.stop(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
