"""Tabs that share one connection (`headgate/tabs`) in Chromium: ten tabs, each way in which a leader can end, toasts."""

import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page
from prometheus_client.parser import text_string_to_metric_families

from headgate.services.publisher import Publisher
from tests.e2e.conftest import NewPage, until, wait_until
from tests.e2e.hidden_page import HiddenPage
from tests.support.gateway_process import GatewayProcess

OpenTab = Callable[..., Page]


@pytest.fixture
def open_tab(new_page: NewPage, site: GatewayProcess) -> OpenTab:
    """Open a tab and return when it is connected."""

    def open_one(user: str = "ann") -> Page:
        page = new_page()
        page.goto(f"{site.url}/tabs?user={user}")
        wait_until(page, "window.page?.gate.status === 'live'")
        return page

    return open_one


def clients(site: GatewayProcess) -> float:
    with urllib.request.urlopen(f"{site.url}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == "headgate_clients")


def wait_for_clients(site: GatewayProcess, page: Page, count: int) -> None:
    until(page, lambda: clients(site) == count, lambda: f"{clients(site)} clients, not {count}")


def publish(publisher: Publisher, numbers: range) -> None:
    publisher.publish_many([(f"numbers.n{number}", number) for number in numbers])


def leader_of(tabs: list[Page]) -> Page:
    """Return the tab with the connection, once one has it."""

    def leading() -> list[Page]:
        found = [tab for tab in tabs if tab.evaluate("page.gate.tabs.role") == "leading"]
        return found if len(found) == 1 else []

    [leader] = until(tabs[0], leading, lambda: "no tab leads, or several do")
    assert isinstance(leader, Page)
    return leader


def assert_seen(tabs: list[Page], numbers: range, after: str = "") -> None:
    """Each tab's handlers have had exactly these, in this order."""
    began = time.monotonic()
    for tab in tabs:
        wait_until(tab, f"page.seen.includes({numbers[-1]})")
    if after:
        print(f"{after}: every other tab has everything {time.monotonic() - began:.2f} s after the last publish")
    for tab in tabs:
        assert tab.evaluate("page.seen") == list(numbers)


@pytest.mark.parametrize("count", [6, pytest.param(10, marks=pytest.mark.nightly)])
def test_many_tabs_are_one_connection_whatever_becomes_of_the_leader(
    open_tab: OpenTab, context: BrowserContext, site: GatewayProcess, publisher: Publisher, count: int
) -> None:
    """Closed, crashed, gone elsewhere, or in a debugger. The others go on without a loss, a double or a disconnection."""
    tabs = [open_tab() for _ in range(count)]
    assert clients(site) == 1
    publish(publisher, range(1, 50))
    assert_seen(tabs, range(1, 50))
    assert clients(site) == 1

    def next_leader(gone: Page) -> None:
        tabs.remove(gone)

    # Closed, with events under way.
    leader = leader_of(tabs)
    publish(publisher, range(50, 100))
    leader.close()
    next_leader(leader)
    publish(publisher, range(100, 150))
    assert_seen(tabs, range(1, 150), "closed")

    # Crashed, so that nothing in the page has a chance to say so.
    leader = leader_of(tabs)
    crashed: list[Page] = []
    for tab in tabs:
        tab.on("crash", lambda page: crashed.append(page))
    with suppress(Error):
        leader.goto("chrome://crash")
    publish(publisher, range(150, 200))
    for tab in crashed or [leader]:
        next_leader(tab)
    assert_seen(tabs, range(1, 200), "crashed")

    # Gone elsewhere.
    leader = leader_of(tabs)
    leader.goto(f"{site.url}/elsewhere")
    next_leader(leader)
    publish(publisher, range(200, 250))
    assert_seen(tabs, range(1, 250), "gone elsewhere")

    # Stopped in a debugger at its next statement. It holds its lock, and another takes it away.
    leader = leader_of(tabs)
    session = context.new_cdp_session(leader)
    session.send("Debugger.enable")
    session.send("Debugger.pause")
    others = [tab for tab in tabs if tab is not leader]
    publish(publisher, range(250, 300))
    assert_seen(others, range(1, 300), "in a debugger")
    session.send("Debugger.disable")
    assert_seen(tabs, range(1, 300))

    # No tab's application has heard of any of it, and there is one connection again.
    wait_for_clients(site, tabs[0], 1)
    for tab in tabs:
        assert not {"connection:down", "delivery:gap"} & set(tab.evaluate("page.told"))


def test_a_frozen_tab_leads_no_longer_and_has_what_it_missed_when_it_runs_again(
    browser: Browser, site: GatewayProcess, publisher: Publisher
) -> None:
    """A hidden tab that the browser stops, whether it leads or follows; no tab has a loss, a double or a disconnection."""
    with ExitStack() as closing:
        tabs = [HiddenPage(browser, f"{site.url}/tabs")]
        closing.callback(tabs[0].close)
        tabs += [HiddenPage(browser, f"{site.url}/tabs", tabs[0]) for _ in range(2)]
        for tab in tabs:
            tab.wait_until("window.page?.gate.status === 'live'")
            tab.evaluate("for (const name of ['freeze', 'resume']) document.addEventListener(name, () => (page.last = name))")
        seen = 0

        def publish_more(those: list[HiddenPage]) -> None:
            nonlocal seen
            publish(publisher, range(seen + 1, seen + 51))
            seen += 50
            for tab in those:
                tab.wait_until(f"page.seen.includes({seen})")

        publish_more(tabs)
        for role in ("leading", "following", "leading"):
            frozen = next(tab for tab in tabs if tab.evaluate("page.gate.tabs.role") == role)
            others = [tab for tab in tabs if tab is not frozen]
            frozen.freeze()
            frozen.wait_until("page.last === 'freeze'")
            publish_more(others)  # its last tasks may still run
            before = frozen.evaluate("page.seen.length")
            publish_more(others)
            assert frozen.evaluate("page.seen.length") == before, "it is frozen"
            frozen.resume()
            frozen.wait_until("page.last === 'resume'")
            publish_more(tabs)
        for tab in tabs:
            assert tab.evaluate("page.seen") == list(range(1, seen + 1))
            assert not {"connection:down", "delivery:gap"} & set(tab.evaluate("page.told"))


def test_users_do_not_share_and_a_toast_is_shown_once(open_tab: OpenTab, site: GatewayProcess, publisher: Publisher) -> None:
    """Another user's tab has a separate connection; each user sees an event's toast in one tab."""
    before = clients(site)
    ann = [open_tab("ann") for _ in range(3)]
    ben = open_tab("ben")
    assert clients(site) == before + 2
    publisher.publish("toasts.one", "hello")
    publisher.publish("numbers.end", 1)
    for tab in [*ann, ben]:
        wait_until(tab, "page.seen.includes(1)")
    until(ann[0], lambda: any(tab.evaluate("page.shown") for tab in ann), lambda: "no toast")
    wait_until(ben, "page.shown.length === 1")
    assert [toast for tab in ann for toast in tab.evaluate("page.shown")] == ["hello"]
    ann[0].evaluate("page.gate.close()")
    publisher.publish("numbers.n2", 2)
    for tab in ann[1:]:
        wait_until(tab, "page.seen.includes(2)")
    assert ann[0].evaluate("page.seen") == [1]
