"""The C servers without sessions, which no server of the field can beat: load/sink.c."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import publishing
from bench.bus import Bus
from bench.child import Child
from bench.generator import BINARIES

from .headgate import CHANNEL, plain
from .variant import NAMESPACE, Addressing, Variant, listens, started


def _start(*extra: str) -> Callable[[Bus, int, int, Path, int], Child]:
    def start(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
        command = [str(BINARIES / "sink"), str(port), bus.socket, CHANNEL + publishing.TOPIC, NAMESPACE, *extra]
        return started(command, core, folder, listens(port))

    return start


def _variant(name: str, title: str, *extra: str) -> Variant:
    return Variant(name, title, _start(*extra), plain, f"40{NAMESPACE},", f"40{NAMESPACE},", lambda: "")


def _connect(addresses: Sequence[int]) -> str:
    return f"40{NAMESPACE}," + json.dumps([publishing.address(number) for number in addresses])


def _start_addressed(bus: Bus, port: int, core: int, folder: Path, _size_bytes: int) -> Child:
    command = [str(BINARIES / "sink"), str(port), bus.socket, CHANNEL + "*", NAMESPACE, "--addressed"]
    return started(command, core, folder, listens(port))


_LISTENING = Addressing(_connect, lambda _count: f"40{NAMESPACE},", publishing.ADDRESS)
SINK_ADDRESSED = Variant(
    "sink-addressed", "C, one send per delivery, by address, no protocol", _start_addressed, plain, _connect([0]),
    f"40{NAMESPACE},", lambda: "", addressing={"own": _LISTENING, "topics": _LISTENING},
)  # fmt: skip
SINK = _variant("sink", "C, joined sends, no protocol (upper bound)")
SINK_EACH = _variant("sink-each", "C, one send per delivery, no protocol", "--each")
