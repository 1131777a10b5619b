"""Sessions that live anywhere: real gateways, with and without workers, behind a proxy that knows nothing of sessions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.publisher import Publisher
from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.integration.transport.server_process import ROOT
from tests.support.epoll_sets import children_of, stale
from tests.support.gateway_process import StartGateway

ECHO = "/engine.io/"
PATIENT = {"ping_interval_s": 3600, "handshake_deadline_s": 3600}


@contextmanager
def printing(*command: str) -> Iterator[list[int]]:
    """Run a program that ends with its standard input; yield the ports that it prints."""
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield [int(each) for each in process.stdout.readline().split()]
        finally:
            process.stdin.close()
            process.wait(60)


def workers() -> list[int]:
    """Return the workers of the clusters that this test has started."""
    found = [worker for started in children_of(os.getpid()) for worker in children_of(started)]
    assert len(found) >= 6
    return found


def upgrade(session: Polling, port: int) -> WebSocket:
    """Move a polling session to a WebSocket, asked for at this port."""
    socket = WebSocket(port, session.path, session.sid)
    assert socket.status == 101
    socket.send("2probe")
    assert socket.receive() == "3probe"
    socket.send("5")
    return socket


def test_three_gateways_with_two_workers_each_need_no_sticky_sessions(redis_url: str) -> None:
    """Each request goes to the next gateway, and there to any worker. Every message comes back, also after an upgrade.

    No worker's kernel goes on watching a connection that lives on in another worker.
    """
    given = {"redis_url": redis_url, "gateways": 3, "workers": 2, "limits": PATIENT}
    with (
        printing(sys.executable, "-m", "tests.support.relay_cluster", json.dumps(given)) as gateways,
        printing("node", str(Path("tests/support/round_robin.mjs")), "0", *map(str, gateways)) as (port,),
    ):
        sessions = [Polling(port, ECHO) for _ in range(12)]
        assert len({session.sid[:6] for session in sessions}) == 3
        for number in range(3):
            for session in sessions:
                answer = session.post(f"4{number}", "bAQIDBA==", "4" + "x" * 100_000)
                assert (answer.status, answer.body) == (200, "ok")
                received: list[str] = []
                while len(received) < 3:
                    received += session.packets()
                assert received == [f"4{number}", "bAQIDBA==", "4" + "x" * 100_000]
        for session in sessions:
            socket = upgrade(session, port)
            with closing(socket):
                for message in ("4after", "4" + "y" * 200_000, b"\1\2\3"):
                    socket.send(message)
                    assert socket.receive() == message
                assert not any(stale(worker) for worker in workers())


def test_two_gateways_relay_for_each_other_until_one_is_gone(start_gateway: StartGateway, redis_url: str) -> None:
    """`headgate serve` with workers and without. A session whose owner is dead ends with the protocol's code."""
    settings = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_INTERNAL_ADDRESS": "127.0.0.1:0"}
    settings["HEADGATE_RELAY_KEY"] = "a key that is long enough for a relay"
    one = start_gateway(settings, "--dev", "--workers", "2")
    two = start_gateway(settings, "--dev")
    ports = [int(gateway.url.rpartition(":")[2]) for gateway in (one, two)]
    sessions = [Polling(ports[0]), Polling(ports[0]), Polling(ports[1])]
    opening = json.dumps({"subscriptions": [{"pattern": "orders.#"}]})
    for number, session in enumerate(sessions):
        session.port = ports[number < 2]
        assert session.post(f"40/notifications,{opening}").status == 200
        while '"welcome"' not in next(session.messages()):
            pass
    with Publisher(redis_url) as publisher:
        publisher.publish("orders.1.shipped", {})
    for session in sessions[1:]:
        while "orders.1.shipped" not in next(session.messages()):
            pass
    socket = upgrade(sessions[0], ports[1])
    with closing(socket):
        while "orders.1.shipped" not in str(socket.receive()):
            pass
    two.kill()
    answer = sessions[2].get()
    assert (answer.status, answer.json["code"]) == (400, 1)
    one.wait_for_line(re.compile("a connection to another gateway is over|another gateway could not be reached"))
    assert "Traceback" not in one.output
