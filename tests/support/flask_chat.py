"""The chat of chat.py on Flask-SocketIO, which is no dependency. Only the test of deployments runs it.

python -m tests.support.flask_chat stock|headgate [certificate key]
gunicorn -k gevent "tests.support.flask_chat:application('headgate')"
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()

import os
import sys
from typing import Any

import flask_socketio
from flask import Flask, request, session
from flask_socketio import disconnect, emit, join_room, leave_room, rooms

from headgate.socketio import flask as ours

LOBBY = "lobby"


class Chat(flask_socketio.Namespace):  # type: ignore[misc]
    """The namespace `/chat`."""

    def on_connect(self, auth: Any) -> None:
        """Let in every guest with a name, and show them the lobby."""
        if not isinstance(auth, dict) or not auth.get("name"):
            raise flask_socketio.ConnectionRefusedError("a name, please", {"example": "ana"})
        session["name"], session["said"] = auth["name"], 0
        join_room(LOBBY)
        _names[request.sid] = auth["name"]  # type: ignore[attr-defined]
        transport = self.socketio.server.transport(request.sid, namespace="/chat")  # type: ignore[attr-defined]
        emit("welcome", {"name": auth["name"], "transport": transport})
        emit("joined", auth["name"], to=LOBBY, include_self=False)

    def on_say(self, text: str) -> dict[str, int]:
        """Send it to the lobby; return the number of the speaker's messages."""
        session["said"] += 1
        emit("said", (session["name"], text), to=LOBBY)
        return {"said": session["said"]}

    def on_whisper(self, name: str, text: str) -> bool:
        """Send it to one other guest."""
        for sid, other in _names.items():
            if other == name:
                emit("whispered", {"from": session["name"], "text": text}, to=sid)
                return True
        return False

    def on_upload(self, name: str, data: bytes, thumbnail: bytes) -> tuple[int, bytes]:
        """Show a file to the lobby; return its size and its beginning."""
        emit("file", {"name": name, "data": data, "thumbnail": thumbnail}, to=LOBBY, include_self=False)
        return len(data), data[:4]

    def on_history(self, count: int) -> str:
        """Emit many, and then acknowledge."""
        for number in range(count):
            emit("line", (number, "x" * 100))
        return "that is all"

    def on_move(self, room: str) -> list[str]:
        """Go from the lobby to another room; return the rooms that remain."""
        leave_room(LOBBY)
        join_room(room)
        emit("moved", room, to=[LOBBY, room])
        there = [name for name in sorted(rooms()) if name != request.sid]  # type: ignore[attr-defined]
        leave_room(room)
        join_room(LOBBY)
        return there

    def on_ask_me(self, question: str) -> Any:
        """Ask the client in return."""
        return flask_socketio.call("question", question, timeout=30)

    def on_nothing(self) -> None:
        """Return nothing."""

    def on_break(self) -> None:
        """Fail, without an acknowledgement, and the chat goes on."""
        raise RuntimeError("this handler fails")

    def on_kick_me(self) -> None:
        """Disconnect the client that asks for it."""
        emit("goodbye")
        disconnect()

    def on_disconnect(self, reason: str) -> None:
        """Notify the lobby."""
        emit("left", (_names.pop(request.sid), reason), to=LOBBY, include_self=False)  # type: ignore[attr-defined]


_names: dict[str, str] = {}


def made(kind: str) -> tuple[Flask, Any]:
    app = Flask(__name__)
    app.secret_key = "of a test"
    options: dict[str, Any] = {"async_mode": "gevent"} if kind == "stock" else {}
    if url := os.environ.get("CHAT_REDIS"):
        options["message_queue"] = url
    socketio = (flask_socketio if kind == "stock" else ours).SocketIO(app, ping_interval=1, **options)
    socketio.on_namespace(Chat("/chat"))
    return app, socketio


def application(kind: str) -> Flask:
    return made(kind)[0]


if __name__ == "__main__":
    app, socketio = made(sys.argv[1])
    options = dict(zip(("certfile", "keyfile"), sys.argv[3:], strict=False))
    socketio.run(app, port=int(sys.argv[2]), **options)
