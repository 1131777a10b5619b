"""The browser client through a page's life in Chromium: reload, tabs, back and forth, offline, busy, hidden."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route

from headgate.services.publisher import Publisher
from tests.e2e.conftest import DEADLINE_MS, NewPage, until, visit, wait_until
from tests.e2e.hidden_page import HiddenPage
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess

# A client refreshes after 0.8 of a token's life, and the gateway lets it be late by the leeway, for slow machines.
LIFE_S = 3
LEEWAY_S = 10
SETTINGS = {"HEADGATE_TOKEN_LEEWAY_S": str(LEEWAY_S)}
LATE_MS = 300
BATCH_EVENTS = 500

OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(new_page: NewPage, site: GatewayProcess) -> OpenPage:
    """Open the client's page in a tab and return when it is connected."""

    def open_one(query: str = "") -> Page:
        page = new_page()
        visit(page, site, f"client?{query}")
        return page

    return open_one


def wait_until_up(page: Page) -> None:
    wait_until(page, "window.page?.gate.state.connection === 'up'")


def wait_until_down(page: Page) -> None:
    wait_until(page, "page.gate.state.connection !== 'up'")


def publish(publisher: Publisher, numbers: range) -> None:
    for number in numbers:
        publisher.publish(f"numbers.n{number}", number)


def publish_batches(publisher: Publisher, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, BATCH_EVENTS):
        batch = range(first, min(first + BATCH_EVENTS, numbers.stop))
        publisher.publish_many([(f"numbers.n{number}", number) for number in batch])


def wait_for(page: Page, last: int) -> list[int]:
    """Return the events of the page's handlers when `last` is among them."""
    wait_until(page, f"page.seen.includes({last})")
    seen: list[int] = page.evaluate("page.seen")
    return seen


def state(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("page.gate.state")
    return found


def test_an_answer_that_is_read_before_an_event_and_comes_300_ms_later_undoes_nothing(
    open_page: OpenPage, publisher: Publisher
) -> None:
    """A page that subscribes and then fetches shows the old state for good; one that uses `load` shows the new one."""
    page = open_page()
    asked: list[Route] = []
    page.route("**/state", lambda route: asked.append(route))  # Playwright marks the function
    page.evaluate(
        """() => {
            const fetchState = () => fetch("/state").then((answer) => answer.json());
            const reset = (place) => (answer) => { page[place] = answer; };
            const apply = (place) => (data, { topic }) => { page[place] = { ...page[place], [topic]: data }; };
            page.gate.subscribe("states.*", apply("byHand"));
            page.gate.subscribed("states.*").then(fetchState).then(reset("byHand"));
            page.list = headgate.load(page.gate, "states.*", fetchState, { reset: reset("loaded"), apply: apply("loaded") });
        }"""
    )
    until(page, lambda: len(asked) == 2, lambda: asked)
    publisher.publish("states.door", "open")
    wait_until(page, "page.byHand?.['states.door'] === 'open'")
    page.wait_for_timeout(LATE_MS)
    for route in asked:
        route.fulfill(json={"states.door": "shut"})
    wait_until(page, "page.list.status === 'current' && page.byHand['states.door'] === 'shut'")
    assert page.evaluate("page.loaded") == {"states.door": "open"}


def test_a_reload_goes_on_where_the_page_was(open_page: OpenPage, publisher: Publisher) -> None:
    """Events published while the page is away come once, in order, into the new one."""
    page = open_page()
    publish(publisher, range(1, 6))
    wait_for(page, 5)
    page.goto("about:blank")
    publish(publisher, range(6, 60))
    page.go_back()
    wait_until_up(page)
    publish(publisher, range(60, 65))
    assert wait_for(page, 64) == list(range(1, 65))
    page.reload()
    wait_until_up(page)
    publish(publisher, range(65, 67))
    assert wait_for(page, 66) == list(range(1, 67))


@pytest.mark.parametrize("event", ["beforeunload", "pagehide"])
@pytest.mark.parametrize("path", ["client?", "client?transport=stream", "tabs?"])
def test_what_a_page_publishes_while_it_ends_arrives(
    open_page: OpenPage, context: BrowserContext, site: GatewayProcess, path: str, event: str
) -> None:
    """Each kind of connection is gone by then, and a request of its own carries the event."""
    watcher, leading = open_page(), context.new_page()
    visit(leading, site, "tabs")
    page = context.new_page()
    visit(page, site, path)
    page.evaluate(f"addEventListener('{event}', () => {{ page.gate.publish('numbers.last', 7); }})")
    page.goto(f"{site.url}/elsewhere")
    wait_for(watcher, 7)


@pytest.mark.parametrize("query", ["", pytest.param("transport=stream", marks=pytest.mark.nightly)])
def test_a_page_out_of_the_back_forward_cache_catches_up(
    browser_path: str, browser: Browser, site: GatewayProcess, publisher: Publisher, query: str
) -> None:
    """It leaves its connection, which would keep it out of the cache, and resumes when it is shown again."""
    cached = browser.browser_type.launch(
        executable_path=browser_path, args=list(BROWSER_SWITCHES), ignore_default_args=["--disable-back-forward-cache"]
    )
    try:
        page: Page = cached.new_page()
        visit(page, site, f"client?{query}")
        publish(publisher, range(1, 4))
        wait_for(page, 3)
        page.goto(f"{site.url}/elsewhere")
        publish(publisher, range(4, 40))
        page.go_back(wait_until="commit")
        wait_until(page, "window.page?.told.includes('shown again')")
        assert wait_for(page, 39) == list(range(1, 40))
        assert state(page)["gaps"] == 0
    finally:
        cached.close()


def test_a_frozen_page_gets_what_it_missed_when_it_runs_again(
    browser: Browser, site: GatewayProcess, publisher: Publisher
) -> None:
    """A hidden tab that the browser stops with its connection open loses nothing."""
    page = HiddenPage(browser, f"{site.url}/client")
    try:
        page.wait_until("window.page?.gate.state.connection === 'up'")
        page.evaluate("for (const name of ['freeze', 'resume']) document.addEventListener(name, () => page.told.push(name))")
        publish(publisher, range(1, 4))
        page.wait_until("page.seen.includes(3)")
        page.freeze()
        publish(publisher, range(4, 40))
        assert page.evaluate("page.seen") == [1, 2, 3]
        page.resume()
        page.wait_until("page.seen.includes(39)")
        assert page.evaluate("page.seen") == list(range(1, 40))
        assert page.evaluate("page.told.filter((name) => name === 'freeze' || name === 'resume')") == ["freeze", "resume"]
        assert page.evaluate("page.gate.state.gaps") == 0
    finally:
        page.close()


@pytest.mark.parametrize("stall_ms", [1_500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_main_thread_that_stands_still_loses_nothing(open_page: OpenPage, publisher: Publisher, stall_ms: int) -> None:
    """Seconds under load: all events afterwards, in order, and the page still answers to its user in that time."""
    page = open_page()
    stop = threading.Event()
    sent = 0

    def load() -> None:
        nonlocal sent
        while not stop.wait(0.01):
            sent += 1
            publisher.publish(f"numbers.n{sent}", sent)

    load_thread = threading.Thread(target=load)
    load_thread.start()
    try:
        # Long tasks as the page's own timers see them, and clicks that arrive while the backlog is dispatched.
        page.evaluate("ms => { const end = performance.now() + ms; while (performance.now() < end); }", stall_ms)
        assert page.evaluate("new Promise(resolve => requestAnimationFrame(() => resolve('painted')))") == "painted"
    finally:
        stop.set()
        load_thread.join()
    assert sent > 10
    assert wait_for(page, sent) == list(range(1, sent + 1))
    assert state(page)["gaps"] == state(page)["missed"] == 0


@pytest.mark.parametrize(
    ("inbox", "before", "after"),
    [
        (150, 110, 230),
        # The default limit: 6,500 messages wait when the connection is cut.
        pytest.param(10_000, 6_500, 2_500, marks=[pytest.mark.nightly, pytest.mark.timeout(600)]),
    ],
)
def test_a_page_that_cannot_keep_up_when_its_connection_is_cut_loses_nothing(
    open_page: OpenPage, context: BrowserContext, publisher: Publisher, inbox: int, before: int, after: int
) -> None:
    """Its inbox fills while it reconnects. It gets every event once, in order, and no gateway is called unreachable for it."""
    page = open_page(f"slow=3&inbox={inbox}")
    publish_batches(publisher, range(1, before + 1))
    wait_until(page, "page.gate.state.waiting > 0")
    context.set_offline(True)
    wait_until_down(page)
    publish_batches(publisher, range(before + 1, before + after + 1))
    context.set_offline(False)
    # More than the inbox holds comes after the welcome.
    for number in range(before + after + 1, before + after + 6):
        publish(publisher, range(number, number + 1))
    last = before + after + 5
    shown = "[page.seen.length, page.told, page.gate.state]"
    is_over = f"page.seen.includes({last})"
    until(page, lambda: page.evaluate(is_over), lambda: page.evaluate(shown), max(DEADLINE_MS / 1000, last * 0.02))
    assert page.evaluate("page.seen") == list(range(1, last + 1))
    wait_until_up(page)
    # Attempts that it made while there was no network came to nothing at once.
    refused = [reason for reason in page.evaluate("page.reasons") if not reason.endswith("websocket error")]
    assert (state(page)["gaps"], state(page)["missed"], refused) == (0, 0, [])
    assert "the page is too slow" in page.evaluate("page.downs") or inbox > before + after


def test_a_token_that_expires_is_replaced_in_the_same_session(open_page: OpenPage, publisher: Publisher) -> None:
    """Refreshed on the live connection, again and again, without notice by a user."""
    page = open_page(f"life={LIFE_S}")
    session = state(page)["session"]
    # So long that without a refresh the gateway would have put the page out by now.
    expired = page.evaluate("performance.now()") + (LIFE_S + LEEWAY_S + 1) * 1000
    wait_until(page, f"page.tokens >= 3 && performance.now() > {expired}")
    publish(publisher, range(1, 3))
    assert wait_for(page, 2) == [1, 2]
    assert state(page)["session"] == session
    assert page.evaluate("page.told") == ["connection:up"]
