"""One load generator for a server on another machine, driven through standard input and output: `python -m bench.agent`.

In: one line of JSON that says which server and how to join (`Setup`), then commands of the load generator, one to a line.
Out: one line of JSON for each of them. It listens on no port and obeys only the program that started it (bench/remote.py; through
ssh, from another machine). The end of input ends it, and its generator with it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import generator, machine
from .generator import Generator

# A run takes as long as it was told to; only a generator that hangs takes longer.
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Setup:
    """A server and how to join it and publish to it. An agent measures only events of its own: one clock."""

    host: str
    port: int
    redis: str
    connect: str
    joined: str
    template: str
    clients: int
    path: str | None = None

    def as_line(self) -> str:
        """Return the first line for an agent."""
        return json.dumps(dataclasses.asdict(self))


def main() -> int:
    """Serve one driver."""
    generator.build()
    setup = Setup(**json.loads(sys.stdin.readline()))
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, _generator(setup, Path(name)) as load:
        load.publishes(setup.template.encode())
        print(json.dumps({"outcome": "ready", "machine": machine.describe()}), flush=True)
        for line in sys.stdin:
            command, *words = line.split()
            load.tell(command, *words)
            print(json.dumps(load.answer(LONGEST_S)), flush=True)
    return 0


def _generator(setup: Setup, folder: Path) -> Generator:
    return Generator(
        folder,
        host=setup.host,
        ports=[setup.port],
        bus=setup.redis,
        connects=[setup.connect],
        ready=setup.joined,
        room=setup.clients,
        path=setup.path,
    )


if __name__ == "__main__":
    sys.exit(main())
