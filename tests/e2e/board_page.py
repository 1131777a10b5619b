"""The demo's board in a browser, in a person's words: cards, preferences, toasts, bursts; and what its socket carried."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from playwright.sync_api import ConsoleMessage, Frame, Locator, Page, Request, WebSocket, expect

# Socket.IO packets of the namespace: EVENT (2) and ACK (3), with or without an acknowledgement id.
_PACKET = re.compile(r"4([23])/notifications,(\d*)(\[.*)", re.DOTALL)
_EVENT = "2"
# A request for a card by keyboard never takes more Tabs than the page has stops.
MAX_TABS = 400
# A board fetches the orders as soon as it can, and once more when no event can be missed any longer.
FETCHES = 2
DEADLINE_S = 30.0
POLL_MS = 20


class BoardPage:
    """One board. `sent` and `received` hold the Socket.IO events of its WebSocket as `[name, …arguments]`."""

    def __init__(self, page: Page, url: str, user: str, frame: Frame | None = None) -> None:
        self.page = page
        self.view: Page | Frame = frame or page
        self.url = url
        self.user = user
        self.faults: list[str] = []
        self.sent: list[list[Any]] = []
        self.received: list[list[Any]] = []
        self._left: list[str] = []
        self._fetched = 0
        if frame is None:
            page.on("pageerror", lambda error: self.faults.append(str(error)))
            page.on("console", self._listen_to_console)
            page.on("websocket", self._listen_to_socket)
            page.on("requestfinished", self._count_fetches)

    def open(self, more: str = "") -> None:
        """Go there, with `more` behind the address; return when every chosen pattern is subscribed and orders show.

        From then on only events change the board: the last answer to a fetch has come.
        """
        self._fetched = 0
        self.page.goto(f"{self.url}/?user={self.user}{more}")
        self.wait_until_live()
        expect(self.view.locator(".card")).not_to_have_count(0)
        give_up = time.monotonic() + DEADLINE_S
        while self._fetched < FETCHES:
            assert time.monotonic() < give_up, "the orders are not fetched in time"
            self.page.wait_for_timeout(POLL_MS)

    def wait_until_live(self) -> None:
        """Return when the gateway has acknowledged the connection and every chosen pattern."""
        expect(self.view.locator("#connection")).to_have_text("Live")
        for name in self.chosen():
            expect(self.chip(self.pattern(name))).to_have_count(1)

    def look_at_toasts(self) -> None:
        """Let toasts wait, as the pointer on them does, until the pointer or the page is gone."""
        self.view.locator("#toasts").dispatch_event("pointerenter")

    # --- The board

    def card(self, number: str) -> Locator:
        return self.view.locator(f'.card[data-id="{number}"]')

    def card_in(self, status: str, number: str) -> Locator:
        """The card, if it is in this column."""
        return self.view.locator(f'.column[data-status="{status}"] .card[data-id="{number}"]')

    def field(self, number: str, name: str) -> Locator:
        return self.card(number).locator(f'input[name="{name}"]')

    def write(self, number: str, name: str, text: str) -> None:
        """Type into a field and commit it with Enter."""
        self.field(number, name).fill(text)
        self.field(number, name).press("Enter")

    def move_button(self, number: str, status: str) -> Locator:
        return self.view.get_by_role("button", name=f"Move order {number} to {status}", exact=True)

    def delete_button(self, number: str) -> Locator:
        return self.view.get_by_role("button", name=f"Delete order {number}", exact=True)

    def deletion(self, number: str) -> Locator:
        """The notice of an order that was deleted here, with any text."""
        return self.view.locator(".notice", has=self.view.get_by_text(re.compile(rf"order {number}\b", re.IGNORECASE)))

    def undo_button(self, number: str) -> Locator:
        return self.view.get_by_role("button", name=f"Undo: restore order {number}", exact=True)

    def go_to(self, target: Locator) -> None:
        """Go to a card, or to something in it, as a person without a mouse would: Tab to the board, arrows, Enter, Tab."""
        card = target.locator("xpath=ancestor-or-self::article")
        self._press("Tab", "document.activeElement.classList.contains('card')")
        place = "[...document.querySelectorAll('.column')].indexOf({}.closest('.column'))"
        wanted = card.evaluate("card => [...document.querySelectorAll('.column')].indexOf(card.closest('.column'))")
        at = self.view.evaluate(place.format("document.activeElement"))
        self._press("ArrowRight" if at < wanted else "ArrowLeft", f"{place.format('document.activeElement')} === {wanted}")
        number = card.get_attribute("data-id")
        above = self.view.evaluate(f"Number(document.activeElement.dataset.id) > {number}")  # the highest number is the first
        self._press("ArrowDown" if above else "ArrowUp", f"document.activeElement.dataset.id === '{number}'")
        if not target.evaluate("element => element === document.activeElement"):
            self.page.keyboard.press("Enter")
            self.tab_to(target)

    def _press(self, key: str, until: str) -> None:
        for _ in range(MAX_TABS):
            if self.view.evaluate(until):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{key} never got there: {until}")

    def tab_to(self, target: Locator) -> None:
        """Press Tab until `target` has the focus, as a person without a mouse would."""
        for _ in range(MAX_TABS):
            if target.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("Tab never got there")

    # --- Preferences, toasts, notification centre, panel

    def switch(self, name: str) -> Locator:
        return self.view.locator(f'#alerts input[name="{name}"][type="checkbox"]')

    def way(self, name: str, way: str) -> Locator:
        """The choice to be told of a type in one `way`: toast, centre or off."""
        return self.view.locator(f'#alerts input[name="{name}"][value="{way}"]')

    def chosen(self) -> list[str]:
        """The names of what should be subscribed."""
        inputs = self.view.locator('#alerts input:checked:not([value="off"])')
        names: list[str] = inputs.evaluate_all("inputs => inputs.map(i => i.name)")
        return names

    def pattern(self, name: str) -> str:
        return self.view.locator(f'#alerts [data-name="{name}"] code').inner_text()

    def chip(self, pattern: str) -> Locator:
        """The pattern among those that the panel shows as subscribed."""
        return self.view.locator("#subscriptions li:not(.kept)").get_by_text(pattern, exact=True)

    def kept(self) -> Locator:
        """The patterns that wait for a connection."""
        return self.view.locator("#subscriptions li.kept")

    def choose(self, name: str, on: bool) -> None:
        """Turn a type (by toast) or the live board on or off, and return when the gateway has acknowledged it."""
        if self.switch(name).count():
            self.switch(name).set_checked(on)
        else:
            self.way(name, "toast" if on else "off").check()
        self._wait_for_answer(name, on)

    def prefer(self, name: str, way: str) -> None:
        """Choose how to be told of a type, and return when the gateway has acknowledged it."""
        self.way(name, way).check()
        self._wait_for_answer(name, way != "off")

    def toast(self, title: str) -> Locator:
        return self.view.locator(".toast", has=self.view.get_by_text(title, exact=True))

    def bell(self) -> Locator:
        return self.view.locator("#bell")

    def centre(self) -> Locator:
        return self.view.get_by_role("dialog", name="Notifications")

    def notification(self, title: str) -> Locator:
        """An entry of the notification centre."""
        return self.view.locator(".notification", has=self.view.get_by_text(title, exact=True))

    def figure(self, name: str) -> Locator:
        return self.view.locator(f"#figure-{name}")

    # --- Trouble on purpose

    def burst(self, events: int) -> None:
        self.view.get_by_role("button", name=f"Publish {events} events", exact=True).click()

    def verdict(self) -> Locator:
        return self.view.locator("#verdict")

    def diary(self) -> Locator:
        """The history of this tab: stalls, the connection, backpressure, gaps."""
        return self.view.locator("#diary")

    def tally(self, name: str) -> Locator:
        return self.view.locator(f"#tally-{name}")

    # --- The wire

    def events(self, topic: str) -> list[list[Any]]:
        """The `event` messages of a topic that have come in on the WebSocket."""
        return [message for message in self.received if message[:2] == ["event", topic]]

    def asked(self, name: str) -> list[str]:
        """The patterns of the requests of a name (`subscribe`, `unsubscribe`) that have gone out."""
        return [message[1]["pattern"] for message in self.sent if message[0] == name]

    def _wait_for_answer(self, name: str, on: bool) -> None:
        """Return when the gateway has acknowledged a choice. A type that is off leaves the panel at once, before that."""
        pattern = self.pattern(name)
        expect(self.chip(pattern)).to_have_count(1 if on else 0)
        give_up = time.monotonic() + DEADLINE_S
        while not on and self._left.count(pattern) < max(1, self.asked("unsubscribe").count(pattern)):
            assert time.monotonic() < give_up, f"{pattern} is not unsubscribed in time"
            self.page.wait_for_timeout(POLL_MS)

    def _listen_to_socket(self, socket: WebSocket) -> None:
        leaving: dict[str, str] = {}

        def sent(frame: str | bytes) -> None:
            if (packet := _packet(frame)) and packet[1] == _EVENT:
                message = json.loads(packet[3])
                self.sent.append(message)
                if message[0] == "unsubscribe":
                    leaving[packet[2]] = message[1]["pattern"]

        def received(frame: str | bytes) -> None:
            if (packet := _packet(frame)) and packet[1] == _EVENT:
                self.received.append(json.loads(packet[3]))
            elif packet and packet[2] in leaving:
                self._left.append(leaving.pop(packet[2]))

        socket.on("framesent", sent)
        socket.on("framereceived", received)

    def _count_fetches(self, request: Request) -> None:
        if request.method == "GET" and request.url == f"{self.url}/demo/orders":
            self._fetched += 1

    def _listen_to_console(self, message: ConsoleMessage) -> None:
        # A refused request (409) and a lost network are logged as errors too, and are part of some tests.
        if message.type == "error" and "Failed to load resource" not in message.text and "WebSocket" not in message.text:
            self.faults.append(message.text)


def _packet(frame: str | bytes) -> re.Match[str] | None:
    return _PACKET.fullmatch(frame) if isinstance(frame, str) else None
