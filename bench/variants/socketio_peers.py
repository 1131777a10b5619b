"""Socket.IO on Node, with each of two adapters; peers/node.js is the program."""

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
_NODE = ("node", str(PEERS / "node.js"))
_JOIN = f"40{NAMESPACE},"


def _connect(addresses: Sequence[int]) -> str:
    """Join, and enter the rooms that `auth` names."""
    return _JOIN + json.dumps({"rooms": [publishing.address(number) for number in addresses]}, separators=(",", ":"))


_ROOMS = Addressing(_connect, lambda _count: _JOIN, publishing.ADDRESS)


def _peer(name: str, title: str, adapter: str) -> Variant:
    def start(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
        words = [*_NODE, adapter, "serve", str(port), bus.socket, NAMESPACE]
        return started(words, core, folder, listens(port), {"NODE_ENV": "production"})

    def template(bus: Bus, _port: int, size_bytes: int, to: str | None) -> bytes:
        emitter = [*_NODE, adapter, "emit", bus.socket, NAMESPACE, *([to] if to else [])]
        return publishing.captured(bus.socket, emitter, publishing.payload(size_bytes))

    def missing() -> str:
        return "" if shutil.which("node") and (PEERS / "node_modules").exists() else "not installed: make -C bench peers"

    return Variant(name, title, start, template, _JOIN, _JOIN, missing, addressing={"own": _ROOMS, "topics": _ROOMS})


NODE = _peer("node", "Node socket.io + redis adapter", "redis")
NODE_STREAMS = _peer("node-streams", "Node socket.io + redis-streams adapter, recovery", "streams")
