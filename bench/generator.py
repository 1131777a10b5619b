"""The load generator (load/load.c) as seen from here: one command, one answer. See load/load.c for the commands."""

from __future__ import annotations

import fcntl
import json
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .child import Child, Failed
from .machine import cores

BINARIES = Path(__file__).parent / "bin"
# Every command may take so long beyond its own time: the generator gives up on events that do not come after 60 s.
ANSWER_MARGIN_S = 75.0

Answer = dict[str, Any]


def build() -> None:
    """Compile load and sink if their sources are newer.

    Raises:
        Failed: with the compiler's output.
    """
    BINARIES.mkdir(exist_ok=True)
    with (BINARIES / ".lock").open("w") as lock:  # held by one process at a time, to its end
        fcntl.flock(lock, fcntl.LOCK_EX)
        make = ["make", "-C", str(BINARIES.parent), "all"]
        done = subprocess.run(make, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Failed(f"cannot build the load generator (it needs cc and make):\n{done.stderr[-2000:]}")


class Generator(Child):
    """A running load generator with its own connection to the bus, on the load's core.

    Args:
        folder: for its files.
        port: of the server.
        server_pids: whose CPU time it reads, with how busy the server's core is.
        bus: path of the Redis socket, or host:port.
        connects: CONNECT texts, used in turn.
        ready: the beginning of the text after which a client gets events.
        room: how many clients there may be.
        audience: the addresses of each client; without it every event is for every client.
        path: of a WebSocket that does not speak Engine.IO.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int,
        server_pids: Sequence[int] = (),
        bus: str,
        connects: Sequence[str],
        ready: str,
        room: int,
        bus_pid: int = 0,
        path: str | None = None,
        audience: Sequence[Sequence[int]] = (),
    ) -> None:
        server_core, load_core = cores()
        self._folder = folder
        options = {
            "host": host,
            "port": port,
            "connects": _written(folder / "connects", connects),
            "ready": ready,
            "redis": bus,
            "clients": room,
            "server-pid": _joined(server_pids) or "0",
            "server-core": server_core if server_pids else -1,
            "redis-pid": bus_pid,
            **({"path": path} if path else {}),
            **({"audience": _written(folder / "audience", [_joined(each, " ") for each in audience])} if audience else {}),
        }
        super().__init__(
            [
                str(BINARIES / "load"),
                *(word for name, value in options.items() for word in (f"--{name}", str(value))),
                *(["--speaks-first"] if path else []),
            ],
            core=load_core,
            log=folder / "load.log",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, command: str, *numbers: float, takes_s: float = 0.0) -> Answer:
        """Give a command and return its answer.

        Raises:
            Failed: the generator ended, or did not answer within `takes_s` and a margin.
        """
        self.tell(command, *numbers)
        return self.answer(takes_s)

    def tell(self, command: str, *words: object) -> None:
        """Send a command; `answer` fetches its answer later."""
        assert self.process.stdin
        self.process.stdin.write(" ".join([command, *(str(word) for word in words)]).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, takes_s: float = 0.0) -> Answer:
        """Return the answer to the oldest command without one. Raises Failed as `ask` does."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], takes_s + ANSWER_MARGIN_S)[0]:
            raise Failed(f"the load generator did not answer: {self.output()}")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the load generator ended: {self.output()}")
        answer: Answer = json.loads(line)
        return answer

    def publishes(self, template: bytes) -> None:
        """Use this command from now on.

        Raises:
            Failed: it holds no marker.
        """
        path = self._folder / "template"
        path.write_bytes(template)
        self.tell("template", path)
        if self.answer()["outcome"] != "ok":
            raise Failed(f"the template was refused: {self.output()}")

    def connects(self, count: int, limit_s: float = 60.0) -> Answer:
        """Connect more clients, 64 at a time, and return the answer.

        Raises:
            Failed: not all of them have joined in time.
        """
        answer = self.ask("connect", count, 64, limit_s * 1000, takes_s=limit_s)
        if answer["outcome"] != "ok":
            raise Failed(f"{answer['clients']} clients connected, {count} more wanted: {answer['first_failure']}")
        return answer

    def open(self, events_per_s: float, seconds: float) -> Answer:
        """Publish on a schedule."""
        return self.ask("open", events_per_s, seconds * 1000, takes_s=seconds)

    def closed(self, window: int, warm_s: float, measure_s: float) -> Answer:
        """Keep `window` events under way."""
        return self.ask("window", window, warm_s * 1000, measure_s * 1000, takes_s=warm_s + measure_s)


def _joined(numbers: Sequence[int], by: str = ",") -> str:
    return by.join(map(str, numbers))


def _written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path
