"""The Socket.IO servers beside Headgate: python-socketio and Flask-SocketIO on gevent, and Node; peers/ has their programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench import publishing
from bench.bus import Bus
from bench.child import Child

from .variant import NAMESPACE, Addressing, Kind, Variant, listens, started

PEERS = Path(__file__).parents[1] / "peers"
_PYTHON = PEERS / ".venv" / "bin" / "python"
_NODE = ["node", str(PEERS / "node.js")]
_JOIN = f"40{NAMESPACE},"


def _connect(addresses: Sequence[int]) -> str:
    """Join, and enter the rooms that `auth` names."""
    return _JOIN + json.dumps({"rooms": [publishing.address(number) for number in addresses]}, separators=(",", ":"))


_ROOMS = Addressing(_connect, lambda _count: _JOIN, publishing.ADDRESS)
_ADDRESSING: dict[Kind, Addressing] = {"own": _ROOMS, "topics": _ROOMS}


def _python_peer(name: str, title: str, program: str) -> Variant:
    """Return a peer that runs in peers/.venv; both take the same arguments."""
    command = [str(_PYTHON), str(PEERS / program)]

    def start(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
        return started([*command, "serve", str(port), bus.url, NAMESPACE], core, folder, listens(port))

    def template(bus: Bus, _port: int, size_bytes: int, to: str | None) -> bytes:
        emitter = [*command, "emit", bus.url, NAMESPACE, *([to] if to else [])]
        return publishing.captured(bus.socket, emitter, publishing.payload(size_bytes))

    def missing() -> str:
        return "" if _PYTHON.exists() else "not installed: make -C bench peers"

    return Variant(name, title, start, template, _JOIN, _JOIN, missing, addressing=_ADDRESSING)


def _node_peer(name: str, title: str, adapter: str) -> Variant:
    """Return socket.io with one of its adapters for Redis."""

    def start(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
        env = {"NODE_ENV": "production"}
        return started([*_NODE, adapter, "serve", str(port), bus.socket, NAMESPACE], core, folder, listens(port), env)

    def template(bus: Bus, _port: int, size_bytes: int, to: str | None) -> bytes:
        emitter = [*_NODE, adapter, "emit", bus.socket, NAMESPACE, *([to] if to else [])]
        return publishing.captured(bus.socket, emitter, publishing.payload(size_bytes))

    return Variant(name, title, start, template, _JOIN, _JOIN, _node_missing, addressing=_ADDRESSING)


def _node_missing() -> str:
    installed = shutil.which("node") and (PEERS / "node_modules" / "@socket.io" / "redis-streams-adapter").exists()
    return "" if installed else "not installed: make -C bench peers"


STOCK = _python_peer("stock", "python-socketio + RedisManager, gevent", "stock.py")
FLASK = _python_peer("flask-socketio", "Flask-SocketIO + Redis message queue, gevent", "flask_peer.py")
NODE = _node_peer("node", "Node socket.io + redis adapter", "redis")
NODE_STREAMS = _node_peer("node-streams", "Node socket.io + redis-streams adapter, recovery", "streams")
