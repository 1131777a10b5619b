"""The C servers without sessions, which no server of the field can beat: load/sink.c."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import publishing
from bench.bus import Bus
from bench.child import Child
from bench.generator import BINARIES

from .variant import NAMESPACE, Addressing, Kind, Variant, listens, started

_CHANNEL = "hg:{notifications}:"
_JOIN = f"40{NAMESPACE},"


def _template(_bus: Bus, _port: int, size_bytes: int, to: str | None) -> bytes:
    return publishing.command("PUBLISH", _CHANNEL + (to or publishing.TOPIC), publishing.payload(size_bytes))


def _connect(addresses: Sequence[int]) -> str:
    return _JOIN + json.dumps([publishing.address(number) for number in addresses])


def _sink(name: str, title: str, topic: str, *extra: str, addressing: Mapping[Kind, Addressing] | None = None) -> Variant:
    def start(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
        command = [str(BINARIES / "sink"), str(port), bus.socket, _CHANNEL + topic, NAMESPACE, *extra]
        return started(command, core, folder, listens(port))

    return Variant(name, title, start, _template, _JOIN, _JOIN, lambda: "", addressing=addressing or {})


_LISTENING = Addressing(_connect, lambda _count: _JOIN, publishing.ADDRESS)
SINK = _sink("sink", "C, joined sends, no protocol (upper bound)", publishing.TOPIC)
SINK_ADDRESSED = _sink(
    "sink-addressed", "C, one send per delivery, by address, no protocol", "*", "--addressed",
    addressing={"own": _LISTENING, "topics": _LISTENING},
)  # fmt: skip
