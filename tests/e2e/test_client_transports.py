"""The ways of the browser client in Chromium: its own WebSocket, and socket.io-client where that does not get through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, WebSocketRoute

from headgate.publisher import Publisher
from tests.e2e.conftest import DEADLINE_MS
from tests.support.gateway_process import GatewayProcess, StartGateway

SETTINGS = {
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "HEADGATE_TOKEN_SECRET": "a secret of thirty-two bytes or more, for tests",
}
FALLBACK = "/assets/headgate.socket.io.js"


@pytest.fixture(scope="module")
def site(start_module_gateway: StartGateway) -> GatewayProcess:
    """The application of client_app.py, with a private Redis."""
    return start_module_gateway(SETTINGS, "tests.e2e.client_app:app")


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab; an error in its page, or one that its policy forbids, fails the test."""
    faults: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if "Security Policy" in message.text else None)
    yield opened
    assert faults == []


def requests_of(page: Page) -> list[str]:
    """Return the list to which the addresses that a page asks for are added."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    return asked


def wait_until(page: Page, condition: str) -> None:
    for _ in range(DEADLINE_MS // 20):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"not in time: {condition}; {page.evaluate('[page.told, page.seen, page.refusals, page.gate.state]')}")


def see_events(page: Page, site: GatewayProcess, publisher: Publisher, query: str = "") -> None:
    """Events before, during and after a time without a network reach the page once, in order."""
    page.goto(f"{site.url}/client?{query}")
    wait_until(page, "window.page?.gate.state.connection === 'up'")
    publisher.publish("numbers.a", 1)
    wait_until(page, "page.seen.length === 1")
    page.context.set_offline(True)
    wait_until(page, "page.gate.state.connection !== 'up'")
    publisher.publish_many([("numbers.a", number) for number in range(2, 50)])
    page.context.set_offline(False)
    wait_until(page, "page.seen.length >= 49 && page.gate.state.connection === 'up'")
    assert page.evaluate("page.seen") == list(range(1, 50))
    assert page.evaluate("page.gate.state.gaps") == 0


def test_a_page_uses_a_websocket_and_loads_no_socket_io(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """Nothing is asked of the gateway's polling either while the network is fine."""
    asked = requests_of(page)
    page.goto(f"{site.url}/client")
    wait_until(page, "window.page?.gate.state.connection === 'up'")
    publisher.publish("numbers.a", 1)
    wait_until(page, "page.seen.length === 1")
    assert [url for url in asked if FALLBACK in url or "transport=polling" in url] == []
    assert len([url for url in asked if "transport=websocket" in url]) == 1


def test_a_websocket_of_its_own_resumes(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """The same as below, by the ordinary way."""
    see_events(page, site, publisher)


def test_a_page_whose_network_takes_no_websocket_comes_by_polling(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """The file beside the script is loaded, under a policy that allows the site's own scripts and requires Trusted Types."""
    asked = requests_of(page)

    def refuse(socket: WebSocketRoute) -> None:
        socket.close()

    page.route_web_socket("**/*", refuse)
    see_events(page, site, publisher)
    assert len([url for url in asked if url.endswith(FALLBACK)]) == 1
    assert any("transport=polling" in url for url in asked)


def test_socket_io_client_can_be_chosen(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """`transport: "socket.io"` loads it at once; it uses a WebSocket as well, and the client resumes as ever."""
    asked = requests_of(page)
    see_events(page, site, publisher, "transport=socket.io")
    assert any(url.endswith(FALLBACK) for url in asked)
