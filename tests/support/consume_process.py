"""Real consumers: `headgate consume` as a separate process, and a sink of the tests that reports in files what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.gateway_process import START_DEADLINE_S, GatewayFailed, GatewayProcess
from tests.support.redis_server import wait_until

# Written as a user would. It writes a line into `got` for each event, and its process into `pid`; topics control the rest.
SINK = """
import os, time
from pathlib import Path
from headgate.consumers import Consumer, Reject

class Sink(Consumer):
    def start(self):
        if Path("sick").exists():
            raise RuntimeError("not yet")
        with open("pid", "a") as file:
            file.write(f"{os.getpid()}\\n")

    def handle(self, delivery):
        word = delivery.topic.rpartition(".")[2]
        if word == "bad":
            raise Reject("it is bad")
        if word == "slow":
            Path("begun").touch()
            while not Path("go").exists():
                time.sleep(0.01)
        with open("got", "a") as file:
            file.write(f"{delivery.identity} {delivery.topic}\\n")

    def preview(self, delivery):
        if delivery.topic.endswith(".exit"):
            raise SystemExit(3) if delivery.value() == "exit" else ValueError("no idea")
        return f"write {delivery.topic}\\nand {delivery.data.decode()}"
"""
SINK_TABLE = '[consumers.{name}]\ntype = "sink:Sink"\npatterns = ["orders.#"]\n{more}\n'


class ConsumeProcess(GatewayProcess):
    """One `headgate consume`; it is started when it says that it consumes."""

    subcommand = "consume"

    def start(self, deadline_s: float = START_DEADLINE_S) -> ConsumeProcess:
        """Start it and return when it has said that its first consumer runs."""
        self._launch()
        try:
            self.wait_for_line(r"^headgate: consuming ", deadline_s)
        except GatewayFailed:
            self.stop()
            raise
        return self

    def end(self) -> int:
        return self.wait_until_ended()


class SinkFolder:
    """A folder with the sink, and a configuration file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / "sink.py").write_text(SINK)
        self.configure(SINK_TABLE.format(name="sink", more=""))

    def configure(self, content: str) -> None:
        (self.path / "headgate.toml").write_text(content)

    def got(self) -> list[str]:
        return [line.split()[1] for line in self._lines("got")]

    def pids(self) -> list[int]:
        """The processes in which it was started, in order; a number for each worker."""
        return [int(line) for line in self._lines("pid")]

    def wait_for(self, *topics: str) -> None:
        """Wait until it has got these; a new process takes its time."""
        wait_until(lambda: self.got() == list(topics), f"the sink has got {topics}, and nothing else", START_DEADLINE_S)

    def _lines(self, name: str) -> list[str]:
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def sink_folder(tmp_path: Path) -> SinkFolder:
    return SinkFolder(tmp_path / "sink")


@pytest.fixture
def start_consume(sink_folder: SinkFolder, redis_url: str) -> Iterator[Callable[..., ConsumeProcess]]:
    """Start real consumers in the folder of the sink, on the Redis of the run; they end with the test."""
    started: list[ConsumeProcess] = []

    def start(*arguments: str) -> ConsumeProcess:
        process = ConsumeProcess(sink_folder.path, {"HEADGATE_REDIS_URL": redis_url}, arguments)
        started.append(process)
        return process.start()

    yield start
    for process in reversed(started):
        process.stop()
        print(f"--- output of headgate consume ---\n{process.output}")
