"""A page in Chromium with a log that loses its end: its lost events go, and the present content of the log comes.

The test plays the gateway and the application's server, so that it decides when the log loses its end and when a connection
breaks. The page, its script-tag build, Backbone and the WebSocket are real.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, WebSocketRoute, expect

from tests.e2e.conftest import DEADLINE_MS

ROOT = Path(__file__).resolve().parents[2]
SITE = "http://site.test"
NAMESPACE = "/notifications"
POLL_MS = 20
OLD, NEW = "0" * 16, "1" * 16
SCRIPTS = {
    "/underscore.js": ROOT / "node_modules/underscore/underscore-umd-min.js",
    "/backbone.js": ROOT / "node_modules/backbone/backbone-min.js",
    "/headgate.js": ROOT / "web/dist/headgate.global.min.js",
}
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>orders</title><link rel="icon" href="data:,">'
    '<ul id="orders"></ul><ol id="told"></ol>'
    + "".join(f'<script src="{path}"></script>' for path in (*SCRIPTS, "/page.js"))
    + "</html>"
)
# Backbone fetches with jQuery; this page has none.
SCRIPT = """
const show = (list, lines) => document.querySelector(list).replaceChildren(...lines.map((line) => {
  const item = document.createElement("li");
  item.textContent = line;
  return item;
}));
Backbone.ajax = ({ url, success, error }) => fetch(url).then((answer) => answer.json()).then(success, error);
const told = [];
const gate = headgate.connect(location.origin, {
  reconnectDelayMinMs: 10,
  reconnectDelayMaxMs: 50,
  resync: ({ reason, from, to }) => {
    told.push(`${reason} ${from} to ${to}`);
    show("#told", told);
  },
});
const Orders = headgate.LiveCollection.extend({ url: "/orders", topic: "orders" });
const orders = new Orders([], { gate, resyncSpreadMs: 0 });
orders.on("update change reset", () => show("#orders", orders.map((order) => `${order.id} ${order.get("note")}`)));
orders.fetch();
"""


class Gateway:
    """The gateway's side of each WebSocket that the page opens, as docs/protocol.md says.

    Attributes:
        connects: the CONNECT objects that the page has sent.
        welcome: further members of the next `welcome`.
    """

    def __init__(self, page: Page) -> None:
        self.connects: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {"epoch": OLD, "offset": 100, "resumed": None, "from": None}
        self._page = page
        self._socket: WebSocketRoute | None = None
        page.route_web_socket("**/socket.io/**", self._opened)

    def emit(self, name: str, *arguments: object) -> None:
        """Send a message to the page."""
        assert self._socket is not None
        self._socket.send(f"42{NAMESPACE},{json.dumps([name, *arguments])}")

    def event(self, offset: int, topic: str, data: object) -> None:
        """Send an event of the log."""
        self.emit("event", topic, data, {"id": f"i{offset}", "time": 1000, "offset": offset})

    def rolled_back(self, first: int, last: int) -> None:
        """Report that the log has lost these events, and goes on in the new epoch."""
        numbers = {"from": first, "to": last, "count": last - first + 1, "bytes": 0}
        self.emit("gap", {"patterns": ["orders.*.*"], **numbers, "reason": "rolled_back", "recoverable": False, "epoch": NEW})

    def cut(self) -> None:
        """Break the connection, and wait until the page has opened another."""
        before = len(self.connects)
        assert self._socket is not None
        self._socket.close()
        self.wait_until(lambda: len(self.connects) > before)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let the browser go on until it is true."""
        give_up = time.monotonic() + DEADLINE_MS / 1000
        while not condition():
            assert time.monotonic() < give_up, "not reached in time"
            self._page.wait_for_timeout(POLL_MS)

    def _opened(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        socket.on_message(lambda message: self._received(socket, str(message)))
        opening = {"sid": "e", "upgrades": [], "pingInterval": 60_000, "pingTimeout": 60_000, "maxPayload": 1_000_000}
        socket.send(f"0{json.dumps(opening)}")

    def _received(self, socket: WebSocketRoute, message: str) -> None:
        kind, _, body = message.partition(",")
        if kind == f"40{NAMESPACE}":
            self.connects.append(json.loads(body))
            socket.send(f"40{NAMESPACE},{json.dumps({'sid': 's'})}")
            subscriptions = [{"pattern": each["pattern"], "ok": True} for each in self.connects[-1]["subscriptions"]]
            more = {"session": "s", "user": "ann", "limits": {}, "subscriptions": subscriptions, "heartbeat_s": 10}
            self.emit("welcome", {**self.welcome, **more})
        elif kind.startswith(f"42{NAMESPACE}"):
            raise AssertionError(f"the page is not expected to ask for anything: {message}")


class Server:
    """The application's server: the page, and the state of its orders."""

    def __init__(self) -> None:
        self.orders: list[dict[str, object]] = []
        self.fetches = 0

    def answer(self, route: Route) -> None:
        """Answer one request of the page."""
        path = route.request.url.removeprefix(SITE)
        if path == "/orders":
            self.fetches += 1
            route.fulfill(json=self.orders)
        elif path in SCRIPTS:
            route.fulfill(path=SCRIPTS[path], content_type="text/javascript")
        elif path == "/page.js":
            route.fulfill(body=SCRIPT, content_type="text/javascript")
        else:
            route.fulfill(body=PAGE, content_type="text/html")


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab. A page that raised an error fails its test."""
    faults: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    assert faults == []


@pytest.fixture
def server(page: Page) -> Server:
    """The application's server: two orders, as they were before any event."""
    running = Server()
    running.orders = [{"id": 1, "version": 1, "note": "new"}, {"id": 2, "version": 1, "note": "new"}]
    page.route(f"{SITE}/**", running.answer)
    return running


@pytest.fixture
def gateway(page: Page, server: Server) -> Gateway:
    """The gateway, and the page, which has shown the changes of two events: order 1 is shipped, and order 3 is there."""
    running = Gateway(page)
    page.goto(f"{SITE}/")
    # Once by itself, and once more when the subscription is active.
    running.wait_until(lambda: server.fetches == 2)
    expect(page.locator("#orders li")).to_have_text(["1 new", "2 new"])
    running.event(101, "orders.1.updated", {"version": 5, "note": "shipped"})
    running.event(102, "orders.3.created", {"version": 1, "note": "ghost"})
    expect(page.locator("#orders li")).to_have_text(["1 shipped", "2 new", "3 ghost"])
    return running


def test_page_drops_what_the_log_has_lost_and_follows_the_line_there_is(page: Page, server: Server, gateway: Gateway) -> None:
    """Lost events leave no trace, the state comes from the server, and the same offsets bring other events."""
    server.orders[0] = {"id": 1, "version": 2, "note": "packed"}
    gateway.rolled_back(101, 102)
    expect(page.locator("#told li")).to_have_text(["rolled_back 101 to 102"])
    expect(page.locator("#orders li")).to_have_text(["1 packed", "2 new"])
    gateway.event(101, "orders.1.updated", {"version": 3, "note": "sent"})
    gateway.event(102, "orders.2.updated", {"version": 2, "note": "packed"})
    expect(page.locator("#orders li")).to_have_text(["1 sent", "2 packed"])
    gateway.cut()
    assert gateway.connects[-1]["resume"] == {"epoch": NEW, "offset": 102}


def test_page_that_was_away_is_told_though_the_connection_breaks_once_more(page: Page, server: Server, gateway: Gateway) -> None:
    """The loss is reported after the welcome; if the connection breaks between the two, the next one reports it."""
    server.orders[0] = {"id": 1, "version": 2, "note": "packed"}
    gateway.welcome = {"epoch": NEW, "offset": 101, "resumed": False, "from": {"epoch": NEW, "offset": 100}}
    gateway.cut()
    gateway.cut()
    assert [each["resume"] for each in gateway.connects[1:]] == [{"epoch": OLD, "offset": 102}] * 2
    gateway.rolled_back(101, 102)
    gateway.event(101, "orders.2.updated", {"version": 2, "note": "sent"})
    expect(page.locator("#told li")).to_have_text(["rolled_back 101 to 102"])
    server.orders[1] = {"id": 2, "version": 2, "note": "sent"}
    expect(page.locator("#orders li")).to_have_text(["1 packed", "2 sent"])


def test_page_pays_nothing_for_a_log_that_goes_on_in_another_epoch(page: Page, server: Server, gateway: Gateway) -> None:
    """A Redis that restarts without a loss costs a cursor, without a notice or a fetch, and the next event follows."""
    gateway.emit("cursor", {"epoch": NEW, "offset": 102})
    gateway.event(103, "orders.2.updated", {"version": 2, "note": "packed"})
    expect(page.locator("#orders li")).to_have_text(["1 shipped", "2 packed", "3 ghost"])
    gateway.welcome = {"epoch": NEW, "offset": 103, "resumed": True, "from": {"epoch": NEW, "offset": 103}}
    gateway.cut()
    assert gateway.connects[-1]["resume"] == {"epoch": NEW, "offset": 103}
    gateway.event(104, "orders.2.updated", {"version": 3, "note": "sent"})
    expect(page.locator("#orders li")).to_have_text(["1 shipped", "2 sent", "3 ghost"])
    expect(page.locator("#told li")).to_have_count(0)
    assert server.fetches == 2
