"""The ways of the browser client in Chromium: a WebSocket, a stream over HTTP where none gets through, socket.io-client."""

import pytest
from playwright.sync_api import Page, Route, WebSocketRoute

from headgate.services.publisher import Publisher
from tests.e2e.conftest import NewPage, until, visit, wait_until
from tests.support.gateway_process import GatewayProcess

FALLBACK, SOCKET_IO = "/assets/headgate.http.js", "/assets/headgate.socket.io.js"


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return new_page()


def requests_of(page: Page) -> list[str]:
    """Return the list to which the addresses that a page asks for are added."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    return asked


def see_events(page: Page, site: GatewayProcess, publisher: Publisher, query: str = "", path: str = "client") -> None:
    """Events before, during and after a time without a network reach the page once, in order."""
    visit(page, site, f"{path}?{query}")
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
    visit(page, site)
    publisher.publish("numbers.a", 1)
    wait_until(page, "page.seen.length === 1")
    assert [url for url in asked if FALLBACK in url or SOCKET_IO in url or "transport=polling" in url] == []
    assert len([url for url in asked if "transport=websocket" in url]) == 1


def refuse(socket: WebSocketRoute) -> None:
    """Take no WebSocket, as some proxies do."""
    socket.close()


def test_a_page_whose_network_takes_no_websocket_reads_a_stream(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """The file beside the script is loaded, under a policy that allows the site's own scripts and requires Trusted Types."""
    asked = requests_of(page)
    page.route_web_socket("**/*", refuse)
    see_events(page, site, publisher)
    assert len([url for url in asked if url.endswith(FALLBACK)]) == 1
    assert any("/socket.io/stream?" in url for url in asked)
    assert not any(SOCKET_IO in url for url in asked)


@pytest.mark.parametrize("takes_websockets", [True, False])
def test_a_page_of_modules_works_under_a_strict_policy(
    page: Page, site: GatewayProcess, publisher: Publisher, takes_websockets: bool
) -> None:
    """Its own scripts alone, and Trusted Types, by a WebSocket, and by the fallback that it imports without one."""
    asked = requests_of(page)
    if not takes_websockets:
        page.route_web_socket("**/*", refuse)
    see_events(page, site, publisher, path="strict")
    assert len([url for url in asked if url.endswith("/modules/headgate.http.js")]) == (0 if takes_websockets else 1)


def test_a_page_behind_a_proxy_that_holds_streams_back_polls(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """Nothing comes of a stream until it ends, so the page asks for answers that end."""
    asked = requests_of(page)

    def hold_back(route: Route) -> None:
        if route.request.headers["accept"] == "application/json":
            route.continue_()  # a stream never answers

    page.route("**/socket.io/stream?**", hold_back)
    see_events(page, site, publisher, "transport=stream")
    assert any("wait=25" in url for url in asked)


def test_socket_io_client_can_be_chosen(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """`transport: "socket.io"` loads it at once; it uses a WebSocket as well, and the client resumes as ever."""
    asked = requests_of(page)
    see_events(page, site, publisher, "transport=socket.io")
    assert any(url.endswith(SOCKET_IO) for url in asked)


@pytest.mark.parametrize("query", ["", "transport=stream"])
def test_a_page_asks_again_after_the_application_could_not_authorize(
    page: Page, site: GatewayProcess, publisher: Publisher, query: str
) -> None:
    """Its other subscription goes on. What a refresh ends in that way comes later, each event once, and no error is told."""
    faulty = page.request.post
    faulty(f"{site.url}/faults?pattern=letters.*")
    try:
        visit(page, site, f"client?{query}")
        page.evaluate("page.letters = []; void page.gate.on('letters.*', (letter) => page.letters.push(letter))")
        wait_until(page, "page.gate.state.subscriptions['letters.*'] === 'retrying'")
        publisher.publish("numbers.a", 1)
        wait_until(page, "page.seen.length === 1")
        faulty(f"{site.url}/faults")
        wait_until(page, "page.gate.state.subscriptions['letters.*'] === 'active'")
        publisher.publish("letters.a", "a")
        wait_until(page, "page.letters.length === 1")
        faulty(f"{site.url}/faults?pattern=letters.*")
        page.evaluate("void page.gate.refresh()")
        wait_until(page, "page.gate.state.subscriptions['letters.*'] === 'retrying'")
        publisher.publish("letters.b", "b")
        publisher.publish("numbers.a", 2)
        wait_until(page, "page.seen.length === 2")
        faulty(f"{site.url}/faults")
        publisher.publish("letters.c", "c")
        wait_until(page, "page.letters.length >= 3 && page.gate.state.subscriptions['letters.*'] === 'active'")
        publisher.publish("letters.d", "d")
        wait_until(page, "page.letters.length >= 4")
        assert page.evaluate("page.letters") == ["a", "b", "c", "d"]
        assert page.evaluate("page.told.filter((name) => name.startsWith('delivery:error'))") == []
    finally:
        faulty(f"{site.url}/faults")


def test_a_browser_that_asks_for_it_has_a_line_for_each_transition(page: Page, site: GatewayProcess) -> None:
    """In a page that knows nothing of the log; another browser does not load it."""
    asked = requests_of(page)
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text) if message.text.startswith("headgate ") else None)
    visit(page, site)
    assert (lines, [url for url in asked if "debug" in url]) == ([], [])
    page.evaluate("localStorage.headgate = 'debug'")
    page.reload()
    wait_until(page, "window.page?.gate.state.connection === 'up'")
    page.evaluate("page.gate.on('numbers.debug', () => {})")
    until(page, lambda: any("numbers.debug: requested → active" in line for line in lines), lambda: lines)
    # The log may be loaded when the client is live already.
    assert [line for line in lines if "→ live" in line or "status: live" in line], lines
