"""F23: a gateway has no file descriptor left for whoever connects."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice

from headgate.transport.http_server import EXHAUSTED_LOG_S
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import DEADLINE_S, Site, publish_burst, wait_for, wait_until_had
from tests.fault.usage import cpu_seconds, descriptors
from tests.support.gateway_process import GatewayProcess

SPARE = 3
KNOCKING = 60
MEASURED_S = 2.0


@contextmanager
def no_descriptors(gateway: GatewayProcess) -> Iterator[None]:
    """Let the process open only a few more."""
    soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    # Of those, too, that were closed since the newest was opened: how many these are is up to the tests before.
    last = list(islice((number for number in count() if number not in descriptors(gateway.pid)), SPARE))[-1]
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (last + 1, hard))
    try:
        yield
    finally:
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_accept_backs_off_and_clients_notice_nothing(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """The processor is left alone, those who are in get everything, and who knocked is let in as soon as that is possible."""
    swarm = start_swarm()
    gateway = site.gateways[0]
    known = len(refusals(gateway))
    with ExitStack() as open_sockets:
        with no_descriptors(gateway):
            host, port = swarm.clients[0].address
            limited_s = time.monotonic()
            for _ in range(KNOCKING):
                knocking = open_sockets.enter_context(socket.create_connection((host, port), timeout=DEADLINE_S))
                knocking.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            used_s, began_s = cpu_seconds(gateway.pid), time.monotonic()
            time.sleep(MEASURED_S)  # the length of what is measured
            used = (cpu_seconds(gateway.pid) - used_s) / (time.monotonic() - began_s)
            with site.publishing() as publishing:
                publishing.wait_for(20)
                publish_burst(site.redis.url, publishing.history, 300, site.load.payload_bytes)
                history = publishing.stop()
                epoch, offset = site.head()
                delivered_s = wait_until_had(swarm, history, epoch, offset)
            # (Not at once if it said so a moment ago, in the test before.)
            wait_for(lambda: refusals(gateway)[known:], "the gateway to say that it cannot accept")
            told, limited_s = refusals(gateway)[known:], time.monotonic() - limited_s
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


def refusals(gateway: GatewayProcess) -> list[str]:
    """Return the lines of its log that say that it cannot accept."""
    return [line for line in gateway.output.splitlines() if 'event="cannot accept connections"' in line]
