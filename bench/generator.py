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

BINARIES = Path(__file__).parent / "bin"
# Every command may take so long beyond its own time: the generator gives up on events that do not come after 60 s.
ANSWER_MARGIN_S = 75.0

Answer = dict[str, Any]


def build() -> None:
    """Compile load and sink if their sources are newer.

    Raises:
        Failed: with what the compiler said.
    """
    BINARIES.mkdir(exist_ok=True)
    with (BINARIES / ".lock").open("w") as lock:  # held by one process at a time, to its end
        fcntl.flock(lock, fcntl.LOCK_EX)
        make = ["make", "-C", str(BINARIES.parent), "all"]
        done = subprocess.run(make, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Failed(f"cannot build the load generator (it needs cc and make):\n{done.stderr[-2000:]}")


class Generator(Child):
    """A running load generator with its own connection to the bus."""

    def __init__(
        self,
        folder: Path,
        core: int,
        *,
        host: str = "127.0.0.1",
        ports: Sequence[int],
        server_pids: Sequence[int],
        server_core: int,
        bus_socket: str,
        connects: Sequence[str],
        ready: str,
        room: int,
        bus_pid: int = 0,
        path: str | None = None,
        audience: Sequence[Sequence[int]] = (),
        offer_deflate: bool = False,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._folder = folder
        connects_file = folder / "connects"
        connects_file.write_text("".join(text + "\n" for text in connects))
        options = ["--host", host, "--port", ",".join(map(str, ports)), "--connects", str(connects_file), "--ready", ready]
        options += ["--redis", bus_socket, "--clients", str(room), "--server-core", str(server_core)]
        options += ["--server-pid", ",".join(map(str, server_pids)) or "0"]
        options += ["--redis-pid", str(bus_pid)] if bus_pid else []
        options += ["--path", path, "--speaks-first"] if path else []
        if audience:
            audience_file = folder / "audience"
            audience_file.write_text("".join(" ".join(map(str, addresses)) + "\n" for addresses in audience))
            options += ["--audience", str(audience_file)]
        options += ["--deflate"] if offer_deflate else []
        options += ["--receive-buffer", str(receive_buffer_bytes)] if receive_buffer_bytes else []
        super().__init__(
            [str(BINARIES / "load"), *options],
            core=core,
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
        """Give a command whose answer `answer` will fetch: something else can be done meanwhile."""
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

    def connects(self, count: int, *, parallel: int = 64, limit_s: float = 60.0) -> Answer:
        """Connect more clients and return the answer.

        Raises:
            Failed: not all of them have joined in time.
        """
        answer = self.ask("connect", count, parallel, limit_s * 1000, takes_s=limit_s)
        if answer["outcome"] != "ok":
            raise Failed(f"{answer['clients']} clients connected, {count} more wanted: {answer['first_failure']}")
        return answer
