"""The page of examples/next: built with the packed client, and served by Next.js, which passes requests on to the gateway."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from headgate.services.publisher import Publisher
from tests.examples.conftest import BUILT, OpenShop
from tests.support.redis_server import wait_until

pytestmark = pytest.mark.nightly
START_DEADLINE_S = 60
# What next.config.ts says where SHOP_URL is not set. The rewrites are part of the build.
BUILT_FOR = "http://127.0.0.1:8000"

StartNext = Callable[[str], str]


@contextmanager
def running(folder: Path, log: Path) -> Iterator[str]:
    """Run the production server of a folder on a free port, and return its address."""
    words = ["node_modules/.bin/next", "start", "--hostname", "127.0.0.1", "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "NEXT_TELEMETRY_DISABLED": "1"}
        )
        try:
            address = wait_until(
                lambda: re.search(r"Local:\s+(http://\S+)", log.read_text()), "Next.js names its address", START_DEADLINE_S
            )
            yield str(address[1])
        finally:
            process.kill()  # it would wait for the connections of the page
            process.wait(START_DEADLINE_S)


@pytest.fixture
def start_next(tmp_path: Path) -> Iterator[StartNext]:
    """Serve the built example for a shop at another address than the one that it was built for."""
    with ExitStack() as stack:

        def start(shop_url: str) -> str:
            folder = tmp_path / "next"
            shutil.copytree(BUILT / "next", folder, symlinks=True, ignore=shutil.ignore_patterns("node_modules", "cache"))
            (folder / "node_modules").symlink_to(BUILT / "next/node_modules")
            for name in ("routes-manifest.json", "required-server-files.json"):
                file = folder / ".next" / name
                text = file.read_text()
                assert BUILT_FOR in text, name
                file.write_text(text.replace(BUILT_FOR, shop_url))
            return stack.enter_context(running(folder, tmp_path / "next.log"))

        yield start


def test_a_page_of_next_connects_by_a_rewrite_and_loses_nothing_over_a_restart(
    page: Page, open_shop: OpenShop, start_next: StartNext, publisher: Publisher
) -> None:
    """The server renders it without a connection. It connects to its own origin, and resumes after the gateway was killed."""
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    shop = open_shop("next")
    url = start_next(shop.url)
    with urlopen(url) as answer:
        assert re.search(r'<output id="status">\w+</output>', answer.read().decode())
    page.goto(url)
    expect(page.locator("#status")).to_have_text("live")
    assert [socket.split("?")[0] for socket in sockets] == [f"{url.replace('http', 'ws')}/socket.io/"]
    page.locator("#create").click()
    expect(page.locator("#orders li")).to_have_text(["Order 1: new"])
    shop.kill()
    expect(page.locator("#status")).not_to_have_text("live")
    publisher.publish("orders.1.shipped", {"id": 1, "version": 2, "status": "shipped"})
    shop.start()
    expect(page.locator("#orders li")).to_have_text(["Order 1: shipped"])
    expect(page.locator("#status")).to_have_text("live")


def test_a_page_of_next_whose_network_takes_no_websocket_reads_a_stream(
    page: Page, open_shop: OpenShop, start_next: StartNext, publisher: Publisher
) -> None:
    """Its chunk is one of the build's, and the rewrite passes the stream on as it comes."""
    page.route_web_socket("**/*", lambda socket: socket.close())
    shop = open_shop("next")
    page.goto(start_next(shop.url))
    expect(page.locator("#status")).to_have_text("live")
    publisher.publish("orders.7.created", {"id": 7, "version": 1, "status": "new"})
    expect(page.locator("#orders li")).to_have_text(["Order 7: new"])
