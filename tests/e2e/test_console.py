"""The console in a real browser: sign in, live numbers of every process, the faults, the tail, and its looks."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from headgate.auth.api_keys import new_key
from headgate.redis import api_keys
from headgate.redis.client import open_client
from headgate.redis.data_folder import find_private_redis
from headgate.redis.pauses import PUBLISHES, pause, resume
from headgate.services.publisher import Publisher
from headgate_server.api.console.pages import VIEWS
from tests.e2e.board_page import BoardPage
from tests.e2e.console_page import KEY, SETTINGS, ConsolePage
from tests.e2e.test_looks import resize, violations
from tests.support.gateway_process import GatewayProcess, StartGateway

WIDTHS = (390, 768, 1366, 1440, 1920)
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


@pytest.fixture(scope="module")
def site(start_module_gateway: StartGateway) -> GatewayProcess:
    return start_module_gateway({**SETTINGS, "HEADGATE_WORKERS": "2"}, "--demo")


@contextmanager
def consoles(browser: Browser, site: GatewayProcess) -> Iterator[ConsolePage]:
    """A page of the console in a browser of its own."""
    with browser.new_context(viewport={"width": 1366, "height": 900}, reduced_motion="reduce") as context:
        yield ConsolePage(context.new_page(), site.url)


@pytest.fixture
def fresh(browser: Browser, site: GatewayProcess) -> Iterator[ConsolePage]:
    """A console before its sign-in, for one test."""
    with consoles(browser, site) as page:
        yield page


@pytest.fixture(scope="module")
def signed_in(browser: Browser, site: GatewayProcess) -> Iterator[ConsolePage]:
    """One page of the console for all tests of this module, each of which goes to its view."""
    with consoles(browser, site) as page:
        page.sign_in()
        page.wait_until_live()
        yield page


@pytest.fixture
def console(signed_in: ConsolePage) -> Iterator[ConsolePage]:
    """The console, signed in; a test fails at its end when the page raised an error or met its policy."""
    signed_in.page.set_viewport_size({"width": 1366, "height": 900})
    yield signed_in
    assert signed_in.faults == []


def test_a_wrong_key_is_told_and_the_right_one_signs_in_until_signed_out(fresh: ConsolePage) -> None:
    """By keyboard; the page before is not in the history of a signed-out browser."""
    fresh.sign_in("a wrong key")
    expect(fresh.page.get_by_role("alert")).to_have_text("This is not the admin key.")
    assert violations(fresh.page) == []
    fresh.sign_in()
    fresh.wait_until_live()
    fresh.page.get_by_role("button", name="Sign out").click()
    expect(fresh.page.locator("h1")).to_have_text("Sign in to the console")
    fresh.page.go_back()
    expect(fresh.page.locator("h1")).to_have_text("Sign in to the console")
    assert fresh.faults == []


def test_a_browser_whose_language_has_no_tag_shows_the_console(fresh: ConsolePage) -> None:
    """WebKit says `C`, and Chromium said `en-US@posix`, where the system names no language."""
    fresh.page.add_init_script("Object.defineProperty(navigator, 'language', { value: 'C' })")
    fresh.sign_in()
    fresh.wait_until_live()
    assert fresh.faults == []


def test_the_overview_shows_every_process_and_what_is_wrong(
    console: ConsolePage, publisher: Publisher, site: GatewayProcess
) -> None:
    """Both workers, with rates and charts of the publishes; a pause in words, until it ends; and nothing moves in between."""
    console.page.goto(f"{site.url}/console")
    rows = console.panel("Gateways and workers").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(console.panel("Gateways and workers")).to_contain_text("(this page)")
    expect(console.troubles()).to_contain_text("2 processes answer")
    expect(console.panel("Redis")).to_contain_text("append-only file")
    chart = console.page.get_by_role("img", name=re.compile(r"Events published.*at most [1-9]"))
    rate = console.tile("Published").locator("dd").first
    for nth in range(60):
        publisher.publish("orders.1.updated", {"nth": nth})
        if chart.count() and re.match(r"[1-9]", rate.inner_text()):
            break
        console.page.wait_for_timeout(100)
    expect(chart).to_be_visible()
    expect(console.panel("Namespaces")).to_contain_text("live")
    url = find_private_redis(site.folder / "data")
    assert url is not None
    client = open_client(url)
    pause(client, PUBLISHES)
    expect(console.troubles()).to_contain_text("An operator has paused publishes.")
    resume(client, PUBLISHES)
    client.close()
    expect(console.troubles()).to_contain_text("Nothing is wrong.")
    assert console.shifts() <= 0.02


def test_the_tail_shows_events_as_text(console: ConsolePage, publisher: Publisher) -> None:
    """From the log and live; chosen by keyboard, paused, filtered, published with the form; never as HTML."""
    publisher.publish("orders.42.shipped", {"note": HOSTILE, HOSTILE: [1, None]})
    console.go("tail")
    expect(console.events().first).to_contain_text("orders.42.shipped")
    console.page.get_by_role("list", name="Events").focus()
    console.page.keyboard.press("ArrowDown")
    console.page.keyboard.press("Enter")
    chosen = console.panel("Chosen event")
    expect(chosen).to_contain_text(HOSTILE.replace('"', '\\"'))
    expect(chosen.locator("img, script")).to_have_count(0)
    assert console.page.evaluate("window.hacked === undefined")

    console.page.get_by_role("button", name="Pause").click()
    form = console.panel("Publish an event")
    form.get_by_label("Topic").fill("orders.43.failed")
    form.get_by_label("Data (JSON)").fill("{")
    form.get_by_role("button", name="Publish").click()
    expect(form.get_by_role("status")).to_contain_text("not JSON")
    form.get_by_label("Data (JSON)").fill('{"why": "lost"}')
    form.get_by_role("button", name="Publish").click()
    expect(form.get_by_role("status")).to_contain_text("Published at offset")
    expect(console.panel("Events")).to_contain_text("1 new event")
    expect(console.events().first).to_contain_text("orders.42.shipped")
    console.page.get_by_role("button", name="Resume").click()
    expect(console.events().first).to_contain_text("orders.43.failed")
    console.page.get_by_label("Filter by text in topic or data").fill("img src")
    expect(console.events().first).to_contain_text("orders.42.shipped")
    console.page.get_by_label("From").select_option("time")
    console.page.get_by_role("button", name="Follow").click()
    expect(console.page.get_by_role("region", name="Follow a pattern")).to_contain_text("Say when to begin.")
    ago = "(date => (date.setMinutes(date.getMinutes() - date.getTimezoneOffset() - 9), date.toISOString().slice(0, 19)))"
    console.page.get_by_label("Time", exact=True).fill(console.page.evaluate(f"{ago}(new Date())"))
    console.page.get_by_label("Pattern", exact=True).fill("orders.**")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("region", name="Follow a pattern")).to_contain_text("orders.*.shipped or orders.#")
    console.page.get_by_label("Pattern", exact=True).fill("orders.42.#")
    console.page.keyboard.press("Enter")
    expect(console.events()).to_have_count(1)


def test_clients_are_listed_and_disconnected(console: ConsolePage, browser: Browser, site: GatewayProcess) -> None:
    """A board of the demo appears with its subscriptions; disconnecting it is asked for first, and it comes back by itself."""
    with browser.new_context() as context:
        board = BoardPage(context.new_page(), site.url, "ben")
        board.open()
        console.go("clients")
        console.page.get_by_label("User", exact=True).fill("ben")
        console.page.keyboard.press("Enter")
        # A tab in a room has a separate connection, besides the one that tabs share.
        expect(console.panel("Clients")).to_contain_text("2 clients")
        before = console.page.get_by_role("button", name=re.compile("Details of ben")).first.get_attribute("aria-label") or ""
        session = console.page.get_by_role("button", name=before, exact=True)
        session.click()
        expect(console.panel("ben")).to_contain_text("orders.*.*")
        for answer in ("Cancel", "Disconnect"):
            console.panel("ben").get_by_role("button", name="Disconnect", exact=True).click()
            question = console.page.get_by_role("dialog")
            assert violations(console.page) == []
            question.get_by_role("button", name=answer).click()
            expect(question).to_have_count(0)
        expect(console.page.get_by_text("1 client disconnected.")).to_be_visible()
        board.wait_until_live()
        expect(session).to_have_count(0)
        assert board.faults == []


def test_a_key_is_made_shown_once_and_revoked(console: ConsolePage) -> None:
    """By keyboard; an invalid scope is reported."""
    console.go("keys")
    form = console.panel("Make a key")
    form.get_by_label("Name").fill("billing")
    form.get_by_label("The admin key again").fill(KEY)
    form.get_by_label("Scopes, separated by spaces").fill("everything")
    console.page.keyboard.press("Enter")
    expect(form.get_by_role("status")).to_contain_text("expected one of")
    form.get_by_label("Scopes, separated by spaces").fill("publish:orders.# clients")
    console.page.keyboard.press("Enter")
    expect(console.panel("The key billing")).to_contain_text("hgk_")
    expect(console.panel("API keys")).to_contain_text("publish:orders.# clients")
    console.page.get_by_role("button", name="Revoke billing").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(console.panel("API keys")).to_contain_text("There are no keys.")


def test_a_key_of_elsewhere_comes_and_goes_in_the_open_view(console: ConsolePage, site: GatewayProcess) -> None:
    """The command line does so beside the console; the page is not reloaded, and no button loses the focus."""
    console.go("keys")
    expect(console.panel("API keys")).to_contain_text("There are no keys.")
    made = [new_key(name, ["clients"]).stored for name in ("reports", "mail")]
    url = find_private_redis(site.folder / "data")
    assert url is not None
    client = open_client(url)
    try:
        for key in made:
            api_keys.add(client, key)
        revoke = console.page.get_by_role("button", name=f"Revoke reports, {made[0].id}")
        revoke.focus()
        expect(console.panel("API keys")).to_contain_text("mail")
        api_keys.remove(client, made[1].id)
        expect(console.panel("API keys")).not_to_contain_text("mail")
        expect(revoke).to_be_focused()
        api_keys.remove(client, made[0].id)
        expect(console.panel("API keys")).to_contain_text("There are no keys.")
    finally:
        client.close()


def test_a_view_without_an_answer_says_so_and_not_that_there_is_nothing(fresh: ConsolePage) -> None:
    """Redis is unreachable. The view shows neither `no client is connected` nor `there are no keys`. Later it has an answer."""
    refusal = {"code": "bus_unavailable", "detail": "the bus is unavailable: it does not answer", "retry": True}
    titles = {
        "consumers": "Consumers",
        "keys": "API keys",
        "topics": "Topics by traffic",
        "clients": "Clients",
        "presence": "Members",
    }
    fresh.sign_in()
    fresh.wait_until_live()
    fresh.page.route(re.compile(f"/console/api/({'|'.join(titles)})"), lambda route: route.fulfill(status=503, json=refusal))
    for path, title in titles.items():
        fresh.go(path)
        if path == "presence":
            fresh.page.get_by_label("Topic", exact=True).fill("rooms.1")
            fresh.page.keyboard.press("Enter")
        what = "members" if path == "presence" else path
        expect(fresh.panel(title).locator(".none")).to_have_text(f"The {what} could not be asked for.")
        expect(fresh.page.locator(".outcome.fault")).to_have_text(re.compile("bus is unavailable", re.IGNORECASE))
    fresh.page.unroute_all()
    expect(fresh.panel("Members")).to_contain_text("Nobody is in rooms.1.")
    expect(fresh.page.locator(".outcome.fault")).to_have_count(0)
    assert [fault for fault in fresh.faults if "status of 503" not in fault] == []


def test_a_page_without_its_gateway_does_not_say_that_nothing_is_wrong(fresh: ConsolePage) -> None:
    """The overview names its lost connection at once, and shows the gateway's state again when the connection is back."""
    fresh.sign_in()
    expect(fresh.troubles()).to_contain_text("Nothing is wrong.")
    fresh.page.context.set_offline(True)
    expect(fresh.troubles()).to_have_text(re.compile("^This page has lost its connection"))
    fresh.page.context.set_offline(False)
    expect(fresh.troubles()).to_contain_text("Nothing is wrong.")


def test_topics_are_counted_while_one_looks(console: ConsolePage, publisher: Publisher) -> None:
    """With ids put together, or each by itself."""
    console.go("topics")
    grid = console.panel("Topics by traffic")
    give_up = time.monotonic() + 30
    while not grid.get_by_text("counted.*.now").count():
        assert time.monotonic() < give_up
        for nth in range(3):
            publisher.publish(f"counted.{nth}.now", {})
        console.page.wait_for_timeout(200)
    grid.get_by_label("Show").select_option("topic")
    expect(grid.get_by_role("row", name=re.compile(r"counted\.2\.now"))).to_be_visible()


def test_an_event_is_traced_and_a_room_and_consumers_are_looked_at(console: ConsolePage, publisher: Publisher) -> None:
    """Each view names the missing data where there is nothing."""
    receipt = publisher.publish("orders.7.created", {"n": 1})
    console.go("trace")
    console.page.get_by_label("Event", exact=True).fill(receipt.id)
    console.page.keyboard.press("Enter")
    expect(console.panel("The path of the event")).to_contain_text("Published to orders.7.created")
    console.page.get_by_label("Event", exact=True).fill("no-such-event")
    console.page.keyboard.press("Enter")
    expect(console.page.locator(".fault")).to_be_visible()
    console.go("consumers")
    expect(console.panel("Consumers")).to_contain_text("There are no consumers.")
    console.go("presence")
    console.page.get_by_label("Topic", exact=True).fill("rooms.1")
    console.page.keyboard.press("Enter")
    expect(console.panel("Members")).to_contain_text("Nobody is in rooms.1.")
    console.go("schemas")
    expect(console.page.locator(".outcome")).to_contain_text("There are no schemas.")
    console.page.go_back()
    expect(console.page.locator("h1")).to_have_text("Presence")


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["in part", "everywhere"])
def test_every_view_is_accessible_and_fits(console: ConsolePage, everywhere: bool) -> None:
    """Axe finds nothing, in turn on a phone in the dark and at a desk in the light, or everywhere; nothing scrolls sideways.

    A view begins right below the bar, or at the top beside the rail.
    """
    for nth, view in enumerate(VIEWS):
        console.go(view)
        for width in WIDTHS:
            resize(console.page, width)
            assert console.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, width)
            edge = "bottom" if width < 1000 else "top"
            above = console.page.evaluate(f"document.querySelector('.rail').getBoundingClientRect().{edge}")
            assert console.page.evaluate("main.getBoundingClientRect().top") == above, (view, width)
            schemes = SCHEMES if everywhere else (SCHEMES[width == 390],) if width == (390, 1440)[nth % 2] else ()
            for scheme in schemes:
                console.page.emulate_media(color_scheme=scheme)
                assert violations(console.page) == [], (view, width, scheme)
        assert console.page.locator("h1").count() == 1


def test_the_link_of_the_present_view_is_in_sight_on_a_phone(console: ConsolePage) -> None:
    """The views are one line that scrolls, when one is chosen, loaded by its address, or shown again by the browser's history."""
    page = console.page
    resize(page, 390)
    in_sight = """(() => {
        const { left, right } = document.querySelector("a[aria-current]").getBoundingClientRect();
        const { left: from, right: to } = document.querySelector(".rail nav").getBoundingClientRect();
        return from <= left && right <= to;
    })()"""
    for view in [*VIEWS, next(iter(VIEWS))]:
        page.evaluate(f"document.querySelector('a[data-view=\"{view}\"]').click()")
        expect(page.locator("h1")).to_have_text(VIEWS[view])
        assert page.evaluate(in_sight), view
    page.go_back()
    expect(page.locator("h1")).to_have_text(list(VIEWS.values())[-1])
    assert page.evaluate(in_sight)
    page.reload()
    console.wait_until_live()
    assert page.evaluate(in_sight)


def test_the_keyboard_reaches_everything_and_shows_where_it_is(console: ConsolePage) -> None:
    """First the link over the rail, then the views; the focused element has an outline; a view takes the focus to its content."""
    page = console.page
    page.goto(f"{console.url}/console")
    console.wait_until_live()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen: list[str] = []
    for _ in VIEWS:
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.dataset.view"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert seen == list(VIEWS)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(list(VIEWS.values())[-1])
    assert page.evaluate("document.activeElement.id") == "main"
