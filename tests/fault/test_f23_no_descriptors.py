"""F23: a gateway has no file descriptor left for new clients, or none at all."""

import http.client
import json
import resource
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice

import pytest

from headgate.transport.descriptors import LEAST_OWN_DESCRIPTORS
from headgate.transport.http_admission import EXHAUSTED_LOG_S
from tests.fault.conftest import SITE_SETTINGS
from tests.fault.figures import Figures
from tests.fault.knocking import knocking
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import DEADLINE_S, Load, Site, publish_burst, wait_for, wait_until_had
from tests.fault.usage import cpu_seconds, descriptors
from tests.support.gateway_process import GatewayProcess

SPARE = LEAST_OWN_DESCRIPTORS
KNOCKING = 60
SILENT = 100
COMING_BACK = 300
MEASURED_S = 2.0
HEALTH = ("/livez", "/healthz", "/metrics")
STREAM = b"GET /api/v1/stream?pattern=other.# HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def session_site(load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A separate site, because clients of tests before would leave low numbers free in the middle of a test."""
    with Site(tmp_path_factory.mktemp("site"), load, **SITE_SETTINGS) as site:
        yield site


@contextmanager
def descriptors_end(gateway: GatewayProcess, spare: int | None) -> Iterator[Callable[[], None]]:
    """Let the process open only so many descriptors more; None: none at all, not even in the place of a closed one.

    The value does so again, as connections of the tests before may have been closed late, and have left room.
    """
    soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)

    def lower() -> None:
        limit = 3
        if spare is not None:
            # Of those, too, that were closed since the newest was opened, which depends on the tests before.
            limit = 1 + list(islice((number for number in count() if number not in descriptors(gateway.pid)), spare))[-1]
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (limit, hard))

    lower()
    try:
        yield lower
    finally:
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (soft, hard))


def wait_until_full(address: tuple[str, int], lower: Callable[[], None], streams: ExitStack) -> None:
    """Wait until a new client finds no descriptor. Streams stay in the low numbers that the gateway has closed."""

    def is_full() -> bool:
        stream = streams.enter_context(socket.create_connection(address, timeout=DEADLINE_S))
        stream.sendall(STREAM)
        if stream.recv(64).startswith(b"HTTP/1.1 503"):
            return True
        lower()
        return False

    wait_for(is_full, "clients to have all their descriptors")


def test_health_pages_answer_and_new_clients_are_told_when_no_descriptor_is_left_for_them(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Silent connections make room for health pages; connected clients lose nothing, even when Redis was unreachable."""
    swarm = start_swarm()
    gateway, address = site.gateways[0], swarm.clients[0].address
    known = len(lines(gateway, "no room for new clients"))
    with ExitStack() as silent, site.publishing() as publishing, descriptors_end(gateway, SPARE) as lower:
        limited_s = time.monotonic()
        wait_until_full(address, lower, silent)
        for _ in range(SILENT):
            silent.enter_context(socket.create_connection(address, timeout=DEADLINE_S)).sendall(b"GET /liv")
        asked_s = time.monotonic()
        statuses = [ask(address, page)[0] for page in HEALTH]
        healthy_s = time.monotonic() - asked_s
        refusals = [ask(address, "/socket.io/?EIO=4&transport=websocket") for _ in range(KNOCKING)]
        site.proxies[0].reset()
        site.proxies[0].heal()
        publish_burst(site.redis.url, publishing.history, 300, site.load.payload_bytes)
        history = publishing.stop()
        epoch, offset = site.head()
        wait_until_had(swarm, history, epoch, offset)
        wait_for(lambda: ask(address, "/healthz")[0] == 200, "readiness over new connections to Redis")
        counted = ask(address, "/metrics")[1]
        told, limited_s = lines(gateway, "no room for new clients")[known:], time.monotonic() - limited_s
    late = Swarm(site.urls[:1], 1, lambda index: ["load.#"], name="late").open()
    late.close()
    site.come_to_rest(swarm, history)
    assert statuses == [200, 200, 200]
    assert {status for status, _, _ in refusals} == {503}
    assert {json.loads(body)["error"]["name"] for _, body, _ in refusals} == {"connections"}
    assert all(1 <= int(after or 0) <= 5 for _, _, after in refusals)
    assert len({after for _, _, after in refusals}) > 1
    assert 'headgate_http_ended_total{reason="no descriptor"}' in counted
    assert 'headgate_http_ended_total{reason="longest waiting in a reserved place"}' in counted
    assert not disconnects(swarm)
    figures("F23", f"three health pages answered, {SILENT} silent connections before them", healthy_s, "s", "≤ 2 s")
    assert 1 <= len(told) <= 1 + limited_s / EXHAUSTED_LOG_S  # not one for each attempt
    assert "Traceback" not in gateway.output


def test_health_pages_answer_while_refused_clients_come_back_at_once(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """They ignore `Retry-After`; at the same time the gateway reconnects to Redis, for which it needs its own descriptors."""
    swarm = start_swarm()
    gateway, address = site.gateways[0], swarm.clients[0].address
    clients = min(COMING_BACK, 2 * site.load.clients)
    took_s, statuses = [], set()
    with ExitStack() as streams, site.publishing() as publishing, descriptors_end(gateway, SPARE) as lower:
        wait_until_full(address, lower, streams)
        known = len(lines(gateway, "cannot accept connections"))  # one may be from before the limit was low
        with knocking(address, clients) as answers:
            site.proxies[0].reset()
            until_s = time.monotonic() + 2 * MEASURED_S  # the length of the measurement
            while time.monotonic() < until_s:
                asked_s = time.monotonic()
                statuses.add(ask(address, "/livez")[0])
                took_s.append(time.monotonic() - asked_s)
        history = publishing.stop()
        epoch, offset = site.head()
        wait_until_had(swarm, history, epoch, offset)
        told = lines(gateway, "cannot accept connections")[known:]
    wait_for(lambda: site.ready(gateway), "readiness to be 200")
    site.come_to_rest(swarm, history)
    assert statuses == {200}
    assert answers["503"] > clients
    assert not disconnects(swarm)
    assert told == []  # it never paused as it does without any descriptor
    during = f"{clients} refused clients come back at once"
    figures("F23", f"health page while {during}, median", statistics.median(took_s), "s", "≤ 1 s")
    figures("F23", f"health page while {during}, slowest", max(took_s), "s", "≤ 1 s")


def ask(address: tuple[str, int], path: str) -> tuple[int, str, str | None]:
    """Return status, body and Retry-After of an answer over a new connection. A cut one is tried again."""
    give_up_s = time.monotonic() + DEADLINE_S
    while True:
        connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.getheader("Retry-After")
        except ConnectionError:  # on a machine that stood still before the request was sent
            if time.monotonic() > give_up_s:
                raise
        finally:
            connection.close()


def test_without_descriptors_accept_backs_off_and_clients_notice_nothing(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """The processor is left alone, connected clients get everything, and waiting ones are let in as soon as possible."""
    swarm = start_swarm()
    gateway = site.gateways[0]
    known = len(lines(gateway, "cannot accept connections"))
    with ExitStack() as open_sockets:
        with descriptors_end(gateway, None):
            host, port = swarm.clients[0].address
            limited_s = time.monotonic()
            for _ in range(KNOCKING):
                knocking = open_sockets.enter_context(socket.create_connection((host, port), timeout=DEADLINE_S))
                knocking.sendall(LIVEZ)
            used_s, began_s = cpu_seconds(gateway.pid), time.monotonic()
            time.sleep(MEASURED_S)  # the length of the measurement
            used = (cpu_seconds(gateway.pid) - used_s) / (time.monotonic() - began_s)
            with site.publishing() as publishing:
                publishing.wait_for(20)
                publish_burst(site.redis.url, publishing.history, 300, site.load.payload_bytes)
                history = publishing.stop()
                epoch, offset = site.head()
                delivered_s = wait_until_had(swarm, history, epoch, offset)
            # (Not at once if it said so a moment ago, in the test before.)
            wait_for(lambda: lines(gateway, "cannot accept connections")[known:], "the gateway to say that it cannot accept")
            told, limited_s = lines(gateway, "cannot accept connections")[known:], time.monotonic() - limited_s
        freed_s = time.monotonic()
        with knocking.makefile("rb") as answers:
            answer = answers.readline()
        let_in_s = time.monotonic() - freed_s
    late = Swarm(site.urls[:1], 1, lambda index: ["load.#"], name="late").open()
    late.close()
    wait_for(lambda: site.ready(gateway), "readiness to be 200")
    site.come_to_rest(swarm, history)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not disconnects(swarm)
    figures("F23", "processor time of the gateway while it cannot accept", 100 * used, "%", "≤ 20 %")
    figures("F23", "burst of 300 events to clients that were in", delivered_s, "s", "0 lost (checked)")
    figures("F23", "the last waiting client is answered after room was made", let_in_s, "s", "≤ 2 s")
    assert all('reason="Too many open files"' in line for line in told)
    assert len(told) <= 1 + limited_s / EXHAUSTED_LOG_S  # not one for each attempt
    assert "Traceback" not in gateway.output
    assert used <= 0.2


def lines(gateway: GatewayProcess, event: str) -> list[str]:
    """Return the lines of its log about an event."""
    return [line for line in gateway.output.splitlines() if f'event="{event}"' in line]
