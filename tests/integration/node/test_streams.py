"""Streams over real sockets: three gateways, readers that go from one to the next, kills; and the example's reader.

tests/unit/node/requests/test_streams.py has requests, losses and refusals.
"""

import http.client
import http.server
import itertools
import json
import re
import runpy
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headgate import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.redis_server import wait_until
from tests.support.stream_reader import StreamReader

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "stream" / "follow.py"
READERS, BURSTS, BURST_EVENTS = 20, 12, 25
DEADLINE_S = 60


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    return start_module_gateway({"HEADGATE_READ_PER_S": "100000"}, "--dev")


class TurningReader(threading.Thread):
    """Reads streams of one gateway after the other, as through a proxy that takes them in turn; every third request is a poll."""

    def __init__(self, urls: list[str], first: int) -> None:
        super().__init__(daemon=True)
        self.reader, self.ended = StreamReader(), threading.Event()
        self._turns = itertools.islice(itertools.cycle(urls), first, None)
        self._polls = itertools.islice(itertools.cycle((False, False, True)), first, None)

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                self._read(urlsplit(next(self._turns)).netloc, polls=next(self._polls))
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)  # of a departed gateway; the next one

    def _read(self, address: str, *, polls: bool) -> None:
        link = http.client.HTTPConnection(address, timeout=2)
        headers = {"Last-Event-ID": self.reader.cursor} if self.reader.cursor else {}
        if polls:
            link.request("GET", "/api/v1/stream?pattern=orders.%23&wait=1", headers={**headers, "Accept": "application/json"})
            answer = json.load(link.getresponse())
            if "error" not in answer:
                self.reader.events += answer["events"]
                self.reader.notices += [(each["type"], each["body"]) for each in answer["notices"]]
                self.reader.cursor = answer["cursor"]
        else:
            link.request("GET", "/api/v1/stream?pattern=orders.%23", headers=headers)
            answer = link.getresponse()
            until_s = time.monotonic() + 0.5  # then it is cut
            while answer.status == 200 and time.monotonic() < until_s and (data := answer.read1(65536)):
                self.reader.feed(data)
        link.close()


def test_readers_that_go_from_gateway_to_gateway_get_every_event_once(
    gateway: GatewayProcess, start_gateway: StartGateway
) -> None:
    """Cut at any moment, with a gateway killed under them, without a session, and nothing lost, doubled or reordered."""
    redis = f"unix://{gateway.folder}/data/redis.sock"
    more = {"HEADGATE_REDIS_URL": redis, "HEADGATE_READ_PER_S": "100000"}
    gateways = [gateway, *(start_gateway(more, "--dev") for _ in range(2))]
    readers = [TurningReader([each.url for each in gateways], at) for at in range(READERS)]
    for reader in readers:
        reader.start()
    wait_until(lambda: all(reader.reader.cursor for reader in readers), "a cursor for everybody")
    with Publisher(redis) as publisher:
        sent = []
        for number in range(BURSTS):
            if number == BURSTS // 2:
                gateways[-1].kill()
            sent += [publisher.publish("orders.1", number).offset for number in range(BURST_EVENTS)]
            time.sleep(0.05)
    newest = [sent[-1]]
    wait_until(
        lambda: all([each["offset"] for each in reader.reader.events[-1:]] == newest for reader in readers), "the last event"
    )
    for reader in readers:
        reader.ended.set()
    for reader in readers:
        reader.join(DEADLINE_S)
        assert [each["offset"] for each in reader.reader.events] == sent
        assert reader.reader.named("gap") == []


def test_the_reader_of_the_example_follows(gateway: GatewayProcess) -> None:
    """As its README says."""
    redis = f"unix://{gateway.folder}/data/redis.sock"
    command = [sys.executable, str(EXAMPLE), gateway.url, "orders.#"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader, Publisher(redis) as publisher:
        assert reader.stdout is not None
        try:
            wait_until(lambda: _is_read(gateway.url), "the example's stream")
            publisher.publish("orders.1", {"total": 1})
            assert reader.stdout.readline() == 'orders.1 {"total": 1}\n'
        finally:
            reader.kill()


class BehindAProxy(http.server.BaseHTTPRequestHandler):
    """Answers once as a proxy without a server, and then as a gateway."""

    answers = iter(((502, "<html>502 Bad Gateway</html>"), (200, 'id: e:1\ndata: {"topic": "orders.1"}\n\n')))

    def do_GET(self) -> None:
        status, body = next(self.answers)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None: ...


def test_the_reader_of_the_example_comes_back_after_an_error_of_a_proxy() -> None:
    """Its body is no JSON."""
    with http.server.HTTPServer(("127.0.0.1", 0), BehindAProxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        follow = runpy.run_path(str(EXAMPLE))["follow"]
        assert next(follow(f"http://127.0.0.1:{proxy.server_port}", "orders.#", {})) == ("message", {"topic": "orders.1"})
        proxy.shutdown()


def _is_read(url: str) -> bool:
    link = http.client.HTTPConnection(urlsplit(url).netloc, timeout=2)
    link.request("GET", "/metrics")
    return 'headgate_subscriptions{namespace="notifications"} 1.0' in link.getresponse().read().decode()


def test_a_stream_counts_as_a_client_and_a_poll_as_a_connection_too(gateway: GatewayProcess) -> None:
    """HTTP connections have a quarter of the descriptors, and streams would leave none for a WebSocket's handshake."""
    address = urlsplit(gateway.url).netloc

    def counted() -> tuple[float, float]:
        with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        connections, clients = (
            float(re.search(rf"^{name}(?:{{.*}})? (.+)$", text, re.MULTILINE)[1])  # type: ignore[index]
            for name in ("headgate_http_connections", "headgate_clients")
        )
        return connections - 1, clients  # but for the one that asks

    links = [http.client.HTTPConnection(address, timeout=DEADLINE_S) for _ in range(3)]
    for link, wait in zip(links, ("", "", "&wait=60"), strict=True):
        link.request("GET", f"/api/v1/stream?pattern=orders.%23{wait}", headers={"Accept": "application/json" if wait else "*/*"})
    first = [link.getresponse() for link in links[:2]]

    wait_until(lambda: counted() == (1, 3), "two streams and a poll")
    assert [answer.headers["Connection"] for answer in first] == ["close", "close"]
    for answer in first:
        answer.close()
    for link in links:
        link.close()
    wait_until(lambda: counted() == (0, 0), "them to be forgotten")
