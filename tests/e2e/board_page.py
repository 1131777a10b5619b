"""The demo's page as a person uses it: a board by its words and roles, its WebSocket's messages, and its faults."""

import json
import re
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, WebSocket, expect

# Socket.IO's EVENT in our namespace, by its packet (engine.io's MESSAGE, then socket.io's type).
_PACKET = re.compile(r"4(2)[^,]*,(\d*)(.*)", re.DOTALL)
# More stops of the Tab key than the page has.
MAX_TABS = 200
DEADLINE_S = 30.0
POLL_MS = 20


class BoardPage:
    """One board. `received` holds the Socket.IO events of the page's WebSockets as `[name, …arguments]`.

    A page that ends to share a connection with other tabs has two, and the messages of both are here twice.

    Args:
        pane: which of the page's panes; a page with one has it at 0.
    """

    def __init__(self, page: Page, url: str, user: str, pane: int = 0, *, listen: bool = True) -> None:
        self.page, self.url, self.user = page, url, user
        self.view = page.locator(".pane").nth(pane)
        self.faults: list[str] = []
        self.received: list[list[Any]] = []
        if listen:
            page.on("pageerror", lambda error: self.faults.append(str(error)))
            page.on("console", self._listen_to_console)
            page.on("websocket", self._listen_to_socket)

    def open(self, more: str = "") -> None:
        """Go there, with `more` after the address; return when it is live and shows orders, after which only events change it."""
        self.page.goto(f"{self.url}/?user={self.user}{more}")
        self.wait_until_live()

    def wait_until_live(self) -> None:
        """Return when the gateway has acknowledged the connection, and orders and inbox are loaded."""
        expect(self.pill()).to_have_text("Live")
        expect(self.view.locator(".board:not([aria-busy]) .card")).not_to_have_count(0)
        expect(self.view.locator(".inbox[aria-busy]")).to_have_count(0)

    def pill(self) -> Locator:
        return self.view.locator(".pill")

    # --- The board

    def card(self, number: str) -> Locator:
        return self.view.locator(f'.card[data-id="{number}"]')

    def card_in(self, status: str, number: str) -> Locator:
        return self.view.locator(f'.column[data-status="{status}"] .card[data-id="{number}"]')

    def button(self, name: str) -> Locator:
        return self.view.get_by_role("button", name=name, exact=True)

    def notice(self, title: str) -> Locator:
        return self.view.locator(".notice", has=self.page.get_by_text(title, exact=True))

    def tab_to(self, target: Locator) -> None:
        """Press Tab until `target` has the focus, as a person without a mouse would."""
        for _ in range(MAX_TABS):
            if target.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("Tab never got there")

    # --- The bell

    def bell(self) -> Locator:
        return self.view.locator(".bell")

    def item(self, title: str) -> Locator:
        return self.view.locator(".item", has=self.page.get_by_text(title, exact=True))

    # --- Trouble on purpose

    def trouble(self, name: str) -> Locator:
        """The card of a trouble, which is its button: flood, cut, stall, restart, lose."""
        return self.page.locator(f'[data-trouble="{name}"]')

    def count(self, lane: str) -> Locator:
        """The count of a lane of the strip: sent, shown, gap, repair, rolled."""
        return self.page.locator(f'[data-lane="{lane}"] .lane-count')

    # --- The wire

    def events(self, topic: str) -> list[list[Any]]:
        """The `event` messages of a topic that have come in."""
        return [message for message in self.received if message[:2] == ["event", topic]]

    def _listen_to_socket(self, socket: WebSocket) -> None:
        def received(frame: str | bytes) -> None:
            if isinstance(frame, str) and (packet := _PACKET.fullmatch(frame)):
                self.received.append(json.loads(packet[3]))

        socket.on("framereceived", received)

    def _listen_to_console(self, message: ConsoleMessage) -> None:
        # A refused request (404) and a lost network are logged as errors too, and are part of some tests.
        if message.type == "error" and not re.search("Failed to load resource|WebSocket|could not be loaded", message.text):
            self.faults.append(message.text)
