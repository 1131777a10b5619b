"""The Flask-SocketIO peer: a Flask application with a Redis message queue on gevent, as its documentation sets it up. The queue
is made here only because `message_queue` takes no Unix socket.

    flask_peer.py serve PORT REDIS_URL NAMESPACE          serve until killed
    flask_peer.py emit REDIS_URL NAMESPACE [ROOM]         emit the JSON on standard input once, from outside, as `event`

A client that connects to the namespace gets every event that is emitted without a room, and enters the rooms that its `auth`
names. No authentication, no logging, the defaults.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402

from flask import Flask  # noqa: E402
from flask_socketio import SocketIO, join_room  # noqa: E402
from socketio import RedisManager  # noqa: E402

CHANNEL = "flask-socketio"


def serve(port: int, redis_url: str, namespace: str) -> None:
    app = Flask(__name__)
    sockets = SocketIO(app, client_manager=RedisManager(redis_url, channel=CHANNEL), async_mode="gevent")

    @sockets.on("connect", namespace=namespace)  # type: ignore[untyped-decorator]
    def connect(auth: dict[str, list[str]] | None = None) -> None:
        for room in (auth or {}).get("rooms", ()):
            join_room(room)

    sockets.run(app, host="127.0.0.1", port=port)


def emit(redis_url: str, namespace: str, room: str | None = None) -> None:
    RedisManager(redis_url, channel=CHANNEL, write_only=True).emit("event", json.load(sys.stdin), room=room, namespace=namespace)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "serve":
        serve(int(words[0]), words[1], words[2])
    else:
        emit(*words)
