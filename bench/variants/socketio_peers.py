"""The other Socket.IO servers: python-socketio and Flask-SocketIO on gevent, and Node; peers/ has their programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench import publishing
from bench.bus import Bus
from bench.child import Child

from .variant import NAMESPACE, Addressing, Variant, listens, started

PEERS = Path(__file__).parents[1] / "peers"
_PYTHON = (str(PEERS / ".venv" / "bin" / "python"), str(PEERS / "python_peer.py"))
_NODE = ("node", str(PEERS / "node.js"))
_JOIN = f"40{NAMESPACE},"


def _connect(addresses: Sequence[int]) -> str:
    """Join, and enter the rooms that `auth` names."""
    return _JOIN + json.dumps({"rooms": [publishing.address(number) for number in addresses]}, separators=(",", ":"))


_ROOMS = Addressing(_connect, lambda _count: _JOIN, publishing.ADDRESS)


def _peer(name: str, title: str, *command: str) -> Variant:
    """Return a peer with a program that takes a verb and the same words as the others."""

    def start(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
        words = [*command, "serve", str(port), bus.socket, NAMESPACE]
        return started(words, core, folder, listens(port), {"NODE_ENV": "production"})

    def template(bus: Bus, _port: int, size_bytes: int, to: str | None) -> bytes:
        emitter = [*command, "emit", bus.socket, NAMESPACE, *([to] if to else [])]
        return publishing.captured(bus.socket, emitter, publishing.payload(size_bytes))

    def missing() -> str:
        packages = PEERS / ("node_modules" if command[0] == "node" else ".venv")
        return "" if shutil.which(command[0]) and packages.exists() else "not installed: make -C bench peers"

    return Variant(name, title, start, template, _JOIN, _JOIN, missing, addressing={"own": _ROOMS, "topics": _ROOMS})


STOCK = _peer("stock", "python-socketio + RedisManager, gevent", *_PYTHON, "stock")
FLASK = _peer("flask-socketio", "Flask-SocketIO + Redis message queue, gevent", *_PYTHON, "flask")
NODE = _peer("node", "Node socket.io + redis adapter", *_NODE, "redis")
NODE_STREAMS = _peer("node-streams", "Node socket.io + redis-streams adapter, recovery", *_NODE, "streams")
