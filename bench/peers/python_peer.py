"""The peers in Python on gevent, as their documentation sets them up: python-socketio, and Flask with Flask-SocketIO.

    python_peer.py KIND serve PORT REDIS_SOCKET NAMESPACE     serve until killed
    python_peer.py KIND emit REDIS_SOCKET NAMESPACE [ROOM]    emit the JSON on standard input once, from outside, as `event`

KIND is `stock` or `flask`. A client of the namespace gets every event emitted without a room, and enters
the rooms that its `auth` names. No authentication, no logging, the defaults. The queue of Flask-SocketIO is made here only
because `message_queue` takes no Unix socket.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402

import socketio  # noqa: E402

CHANNELS = {"stock": "socketio", "flask": "flask-socketio"}
Auth = dict[str, list[str]]


def serve_stock(manager: socketio.RedisManager, port: int, namespace: str) -> None:
    from gevent import pywsgi

    server = socketio.Server(async_mode="gevent", client_manager=manager)

    def connect(sid: str, _environ: object, auth: Auth | None = None) -> None:
        for room in (auth or {}).get("rooms", ()):
            server.enter_room(sid, room, namespace)

    server.on("connect", connect, namespace=namespace)
    pywsgi.WSGIServer(("127.0.0.1", port), socketio.WSGIApp(server), log=None).serve_forever()


def serve_flask(manager: socketio.RedisManager, port: int, namespace: str) -> None:
    from flask import Flask
    from flask_socketio import SocketIO, join_room

    app = Flask(__name__)
    sockets = SocketIO(app, client_manager=manager, async_mode="gevent")

    @sockets.on("connect", namespace=namespace)  # type: ignore[untyped-decorator]
    def connect(auth: Auth | None = None) -> None:
        for room in (auth or {}).get("rooms", ()):
            join_room(room)

    sockets.run(app, host="127.0.0.1", port=port)


def emit(manager: socketio.RedisManager, namespace: str, room: str | None = None) -> None:
    manager.emit("event", json.load(sys.stdin), room=room, namespace=namespace)


if __name__ == "__main__":
    kind, verb, *words = sys.argv[1:]
    port = int(words.pop(0)) if verb == "serve" else 0
    redis_socket, *rest = words
    manager = socketio.RedisManager(f"unix://{redis_socket}", channel=CHANNELS[kind], write_only=verb == "emit")
    if verb == "emit":
        emit(manager, *rest)
    else:
        (serve_stock if kind == "stock" else serve_flask)(manager, port, *rest)
