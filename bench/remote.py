"""A server that runs elsewhere: agents on separate machines join it, publish on a schedule, and report.

    python -m bench --host gate.example --port 8000 --redis redis.example:6379 --clients 10000 --rate 50 \\
        --agent 'ssh load1 cd headgate && .venv/bin/python -m bench.agent' --agent 'ssh load2 …'

Clients and rate are divided among the agents. Each agent has its own topic, and only its own clients listen there: so the
clock of one machine is never compared with that of another. The server's CPU time is not known from here.
"""

from __future__ import annotations

import argparse
import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from .child import Failed
from .generator import Answer
from .publishing import payload
from .variants import VARIANTS, fcall, headgate_connect

LOCAL = f"{shlex.quote(sys.executable)} -m bench.agent"
_COUNTS = ("clients", "published", "deliveries", "undelivered", "missing", "late", "closed", "redis_errors")


class Agent:
    """A running agent; a context manager."""

    def __init__(self, start: str, setup: Mapping[str, object]) -> None:
        """Start it with a command and send it the setup."""
        self._process = subprocess.Popen(shlex.split(start), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._start = start
        with suppress(Failed):  # the first answer is missing then
            self.tell(json.dumps(setup))

    def tell(self, line: str) -> None:
        """Send a line; `answer` returns the agent's answer."""
        assert self._process.stdin
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Failed(f"the agent has ended: {self._start}") from error

    def answer(self) -> Answer:
        """Return the answer to the oldest line without one.

        Raises:
            Failed: the agent ended; its reason is on standard error.
        """
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the agent has ended: {self._start}")
        answer: Answer = json.loads(line)
        return answer

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # lines that it did not read
            self._process.stdin.close()
        with self._process:  # waits
            pass


def setup_of(
    number: int, host: str, port: int, redis: str, clients: int, size_bytes: int, token: str | None
) -> dict[str, object]:
    """Return how agent `number` joins Headgate and publishes to it: to a topic that only its own clients listen to."""
    topic = f"bench.load-{number}"
    return {
        "host": host,
        "port": port,
        "bus": redis,
        "connects": [headgate_connect(subscriptions=[{"pattern": topic}], **({"token": token} if token else {}))],
        "ready": VARIANTS["headgate"].joined,
        "room": clients,
        "template": fcall("headgate_publish", topic, payload(size_bytes)).decode(),
    }


def measure(agents: Sequence[Agent], clients: int, rate: float, seconds: float) -> list[Answer]:
    """Let all join, publish together on a schedule, and return an answer for each agent; its clients and its rate are its share.

    Raises:
        Failed: an agent ended, or not all of its clients joined.
    """
    for agent in agents:
        agent.answer()
    for agent in agents:
        agent.tell(f"connect {clients // len(agents)} 64 60000")
    for answer in [agent.answer() for agent in agents]:
        if answer["outcome"] != "ok":
            raise Failed(f"{answer['clients']} clients joined: {answer['first_failure']}")
    for agent in agents:
        agent.tell(f"open {rate / len(agents)} {seconds * 1000:.0f}")
    return [agent.answer() for agent in agents]


def summed(answers: Sequence[Answer]) -> dict[str, object]:
    """Return one report: counts are sums, latencies those of the agent for which they were worst."""
    counts = {name: sum(answer[name] for answer in answers) for name in _COUNTS}
    worst = {name: max(answer["microseconds"][name] for answer in answers) / 1000 for name in ("p50", "p99", "p99_9", "max")}
    outcome = next((answer["outcome"] for answer in answers if answer["outcome"] != "ok"), "ok")
    return {"outcome": outcome, **counts, "worst_ms": worst, "agents": list(answers)}


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print one report as JSON; return 1 if something went wrong."""
    parser = argparse.ArgumentParser("python -m bench --host", description="Measure a Headgate that runs elsewhere.")
    parser.add_argument("--host", required=True, help="host of the gateway")
    parser.add_argument("--port", type=int, default=8000, help="its port (8000)")
    parser.add_argument("--redis", required=True, help="its Redis, as host:port: the agents publish there")
    parser.add_argument("--token", help="token of the clients; without one they are anonymous")
    parser.add_argument("--clients", type=int, default=1000, help="clients of all agents together (1000)")
    parser.add_argument("--rate", type=float, default=50, help="events per second of all agents together (50)")
    parser.add_argument("--seconds", type=float, default=20, help="time of the measurement (20)")
    parser.add_argument("--size", type=int, default=256, help="payload in bytes (256)")
    parser.add_argument("--agent", action="append", help="command that starts an agent (one here; repeat for more)")
    wanted = parser.parse_args(words)
    starts = wanted.agent or [LOCAL]
    host, redis = socket.gethostbyname(wanted.host), wanted.redis
    if not redis.startswith("/"):
        redis_host, _, redis_port = redis.rpartition(":")
        redis = f"{socket.gethostbyname(redis_host)}:{redis_port}"
    share = wanted.clients // len(starts)
    with ExitStack() as stack:
        agents = [
            stack.enter_context(Agent(start, setup_of(number, host, wanted.port, redis, share, wanted.size, wanted.token)))
            for number, start in enumerate(starts)
        ]
        report = summed(measure(agents, wanted.clients, wanted.rate, wanted.seconds))
    print(json.dumps(report, indent=1))
    return 0 if report["outcome"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
