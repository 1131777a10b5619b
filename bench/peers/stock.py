"""The stock Python peer: python-socketio with RedisManager on gevent, set up as its documentation says.

    stock.py serve PORT REDIS_URL NAMESPACE     serve until killed; prints `ready` when it listens
    stock.py emit REDIS_URL NAMESPACE [ROOM]    emit the JSON on standard input once, from outside, as `event`

A client that connects to the namespace gets every event that is emitted without a room, and enters the rooms that its `auth`
names. No authentication, no logging, the defaults.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402

import socketio  # noqa: E402
from gevent import pywsgi  # noqa: E402


def serve(port: int, redis_url: str, namespace: str) -> None:
    server = socketio.Server(async_mode="gevent", client_manager=socketio.RedisManager(redis_url))

    def connect(sid: str, _environ: object, auth: dict[str, list[str]] | None = None) -> None:
        for room in (auth or {}).get("rooms", ()):
            server.enter_room(sid, room, namespace)

    server.on("connect", connect, namespace=namespace)
    listener = pywsgi.WSGIServer(("127.0.0.1", port), socketio.WSGIApp(server), log=None)
    listener.start()
    print("ready", flush=True)
    listener.serve_forever()


def emit(redis_url: str, namespace: str, room: str | None = None) -> None:
    manager = socketio.RedisManager(redis_url, write_only=True)
    manager.emit("event", json.load(sys.stdin), room=room, namespace=namespace)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "serve":
        serve(int(words[0]), words[1], words[2])
    else:
        emit(*words)
