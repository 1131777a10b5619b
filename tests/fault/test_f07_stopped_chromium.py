"""F7 with a real browser: Chromium's network process stands still, and its pages' connections with it, again and again."""

import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.fault.figures import Figures
from tests.fault.site import FULL, wait_for
from tests.fault.usage import descriptors, resident_bytes
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess, StartGateway

ROOT = str(Path(__file__).parents[2])
SETTINGS = {"PYTHONPATH": ROOT, "HEADGATE_TOKEN_SECRET": "a secret of thirty-two bytes or more, for tests"}
PAGES, ROUNDS, EVENTS, BATCH = 4, 3, 200, 10
# Between two numbers, so that a stop is more than the kernel holds for a browser (6 MB) and the gateway for a client.
PADDING = "x" * 60_000
DEADLINE_S = 120.0


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayProcess:
    """The application of the client's page, with the defaults of production."""
    return start_gateway(SETTINGS, "tests.e2e.client_app:app")


@pytest.fixture
def pages(gateway: GatewayProcess, browser_path: str) -> Iterator[list[Page]]:
    """Connected pages; all share the browser's network process."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(BROWSER_SWITCHES))
        opened = [browser.new_page() for _ in range(PAGES)]
        for page in opened:
            page.goto(f"{gateway.url}/client")
        wait_for(lambda: all(page.evaluate(UP) for page in opened), "pages to be connected", DEADLINE_S)
        yield opened
        browser.close()


SEEN = "page.seen.filter(Number.isInteger)"
UP = "page.gate.state.connection === 'up'"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("load", [pytest.param(FULL, id="full", marks=pytest.mark.nightly)], indirect=True)
def test_pages_of_a_browser_that_stands_still_are_closed_and_come_back_with_everything(
    gateway: GatewayProcess, pages: list[Page], figures: Figures
) -> None:
    """At the write deadline their descriptors are free; when the browser goes on, each page has every event once."""
    network = network_process()
    longest_s, memory, published = 0.0, [], 0
    with Publisher(find_private_redis(gateway.folder / "data")) as publisher:
        for number in range(ROUNDS):
            # A page's connection and no other, as fetches of its token end by themselves.
            wait_for(lambda: count(gateway, "headgate_http_connections") <= 1, "fetches to be over", DEADLINE_S)
            opened, ended = len(descriptors(gateway.pid)), count(gateway, ENDED)
            os.kill(network, signal.SIGSTOP)
            try:
                stopped_s = time.monotonic()
                for first in range(published, published + EVENTS, BATCH):
                    numbers = range(first, first + BATCH)
                    publisher.publish_many([(f"numbers.{kind}", data, None) for n in numbers for kind, data in told(n)])
                published += EVENTS
                wait_for(lambda: count(gateway, ENDED) >= ended + PAGES, "the write deadline", DEADLINE_S)  # noqa: B023
                wait_for(lambda: len(descriptors(gateway.pid)) <= opened - PAGES, "their descriptors to be free", DEADLINE_S)  # noqa: B023
                longest_s = max(longest_s, time.monotonic() - stopped_s)
            finally:
                os.kill(network, signal.SIGCONT)
            for page in pages:
                wait_for(
                    lambda: page.evaluate(f"{SEEN}.length >= {published}"),  # noqa: B023
                    f"a page to have everything in round {number}",
                    DEADLINE_S,
                )
            memory.append(resident_bytes(gateway.pid))
        seen = [page.evaluate(SEEN) for page in pages]
    assert all(each == list(range(published)) for each in seen)
    figures(
        "F7", f"Chromium's network process stopped, {PAGES} pages × {ROUNDS}: descriptors free", longest_s, "s", "≤ 10 + 10 s"
    )
    figures(
        "F7", "Chromium: memory in the last round beyond the first", (memory[-1] - memory[0]) / 2**20, "MiB", "≤ 8 MiB (checked)"
    )
    assert memory[-1] - memory[0] <= 8 * 2**20
    assert "Traceback" not in gateway.output


ENDED = 'headgate_sessions_ended_total{reason="write deadline"}'


def told(number: int) -> list[tuple[str, object]]:
    """Return the kinds and data of the events around a number."""
    return [("one", number), ("padding", PADDING)]


def count(gateway: GatewayProcess, name: str) -> float:
    """Return a number of its metrics; 0 if it is not there yet."""
    with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=DEADLINE_S) as answer:
        found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def network_process() -> int:
    """Return the process id of the network service of the Chromium that this process has started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()  # Chromium may put spaces between its words
            parents = ancestors(int(name))
        except OSError:
            continue  # it has ended
        if b"--utility-sub-type=network.mojom.NetworkService" in command and os.getpid() in parents:
            found.append(int(name))
    (pid,) = found
    return pid


def ancestors(pid: int) -> list[int]:
    """Return the processes that have started a process, directly or not."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found
