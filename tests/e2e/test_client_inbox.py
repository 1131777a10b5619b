"""The inbox in Chromium: two tabs and another device of one user, which agree whatever happens to the gateway."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from tests.e2e.conftest import until
from tests.e2e.test_client_presence import start
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.held_port import HeldPort


@pytest.fixture
def gateway(start_gateway: StartGateway, redis_url: str) -> Iterator[GatewayProcess]:
    """A gateway around the application of the tests of the client, which may be started again."""
    with closing(HeldPort()) as held:
        yield start(start_gateway, redis_url, HEADGATE_PORT=str(held.port))


@pytest.fixture
def inbox(redis_url: str) -> Iterator[Inbox]:
    with closing(Publisher(redis_url, timeout_s=30)) as publisher:
        yield Inbox(publisher)


def open_tab(context: BrowserContext, gateway: GatewayProcess, way: str = "alone") -> Page:
    tab = context.new_page()
    tab.goto(f"{gateway.url}/inbox?user=ana&way={way}")
    return tab


def wait_until(page: Page, is_so: Callable[[Any], bool]) -> Any:
    """Wait until the page's content satisfies the condition, and return it."""
    content = "window.page?.shown()"
    return until(page, lambda: (shown := page.evaluate(content)) and is_so(shown) and shown, lambda: page.evaluate(content))


def wait_for_items(page: Page, count: int) -> None:
    wait_until(page, lambda shown: len(shown["items"]) == count)


@pytest.mark.parametrize("way", ["tabs", pytest.param("stream", marks=pytest.mark.nightly)])
def test_what_is_read_in_one_tab_is_read_in_the_other_and_after_a_reload(
    context: BrowserContext, gateway: GatewayProcess, inbox: Inbox, way: str
) -> None:
    """Items of before the page came and of after, with the count in the title; over one connection, and over HTTP."""
    inbox.send("ana", "news", 1, "before")
    one, other = (open_tab(context, gateway, way) for _ in range(2))
    for tab in (one, other):
        wait_until(tab, lambda shown: shown["status"] == "current" and shown["unread"] == 1)
    inbox.send("ana", "news", 2, "after")
    for tab in (one, other):
        wait_until(tab, lambda shown: shown["items"] == [["news/after", False], ["news/before", False]])

    one.evaluate("page.act('markRead', 'news/before')")

    for tab in (one, other):
        shown = wait_until(tab, lambda shown: shown["unread"] == 1)
        assert shown["items"] == [["news/after", False], ["news/before", True]]
        assert tab.title() == "(1) inbox"
    other.reload()
    wait_until(other, lambda shown: shown["items"] == [["news/after", False], ["news/before", True]])


def test_every_device_agrees_after_kills_of_the_gateway(
    browser: Browser, context: BrowserContext, gateway: GatewayProcess, inbox: Inbox
) -> None:
    """No item is missed or there twice. Actions without a connection are kept, and done."""
    with closing(browser.new_context()) as device:
        tabs = [open_tab(context, gateway), open_tab(context, gateway), open_tab(device, gateway)]
        for tab in tabs:
            wait_until(tab, lambda shown: shown["status"] == "current")
        sent = []
        for turn in range(4):
            if turn == 2:
                gateway.kill()
            for number in range(10):
                sent.append(f"news/{turn}-{number}")
                inbox.send("ana", "news", number, f"{turn}-{number}")
            if turn < 2:
                for tab in tabs:
                    wait_for_items(tab, len(sent))
            # In each turn each page reads another item, the last two while there is no gateway.
            for nth, tab in enumerate(tabs):
                tab.evaluate(f"page.act('markRead', 'news/{turn % 2}-{nth + 3 * (turn // 2)}'), 0")
        gateway.start()

        read = {f"news/{turn}-{number}" for turn in (0, 1) for number in range(6)}
        expected = [[item, item in read] for item in reversed(sent)]
        for tab in tabs:
            shown = wait_until(tab, lambda shown: shown["items"] == expected and shown["unread"] == 28)
            assert shown["status"] == "current"
            assert tab.evaluate("page.failed") == []
        assert inbox.page("ana").unread == 28


def test_what_is_muted_on_one_device_alerts_on_none(
    browser: Browser, context: BrowserContext, gateway: GatewayProcess, inbox: Inbox
) -> None:
    """The item is there and counted, also after a reload; an unmuted kind alerts again."""
    with closing(browser.new_context()) as device:
        tabs = [open_tab(context, gateway), open_tab(device, gateway)]
        for tab in tabs:
            wait_until(tab, lambda shown: shown["status"] == "current")
        tabs[0].evaluate("page.act('mute', 'news.#', ['page'])")
        wait_until(tabs[1], lambda shown: shown["mutes"] == {"news.#": ["page"]})
        tabs[0].reload()
        wait_until(tabs[0], lambda shown: shown["mutes"] == {"news.#": ["page"]})
        inbox.send("ana", "news.local", 1, "muted")
        inbox.send("ana", "orders", 2, "loud")
        for tab in tabs:
            shown = wait_until(tab, lambda shown: len(shown["items"]) == 2)
            assert (shown["unread"], tab.evaluate("page.alerts")) == (2, ["orders/loud"])

        tabs[1].evaluate("page.act('unmute', 'news.#')")
        wait_until(tabs[0], lambda shown: shown["mutes"] == {})
        inbox.send("ana", "news.local", 3, "again")
        for tab in tabs:
            wait_for_items(tab, 3)
            assert tab.evaluate("[page.alerts, page.failed]") == [["orders/loud", "news.local/again"], []]
