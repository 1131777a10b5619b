"""The looks of the page: accessible by axe's rules, in light and dark, from a phone to a wide screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.e2e.board_page import DEADLINE_S, FETCHES, MAX_TABS, POLL_MS, BoardPage
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop, publish
from tests.support.gateway_process import GatewayProcess

AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
# Of the usual screens, from a phone to a large one; on the two-pane page a pane has half of each.
WIDTHS = (390, 768, 1366, 1440, 1536, 1920)
Scheme = Literal["light", "dark"]
# Each width and each scheme once or more, and each of the page's layouts; every width in both schemes takes minutes.
SHORT: tuple[tuple[Scheme, int], ...] = (("light", 390), ("dark", 390), ("dark", 768), ("light", 1366), ("dark", 1440))
FULL: tuple[tuple[Scheme, int], ...] = tuple((scheme, width) for scheme in ("light", "dark") for width in WIDTHS)
LOOKS = [pytest.param(SHORT, id="short"), pytest.param(FULL, id="full", marks=[pytest.mark.nightly, pytest.mark.timeout(900)])]
# In a frame: words of names that are on more than one line, parts of cards that are wider than their room, and the words in all.
MEASURE = r"""() => {
  const broken = [], wide = [];
  let words = 0;
  for (const name of document.querySelectorAll(".card h3")) {
    const walker = document.createTreeWalker(name, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const { 0: word, index } of walker.currentNode.data.matchAll(/\S+/g)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, index);
        range.setEnd(walker.currentNode, index + word.length);
        const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
        if (lines.size !== 1) broken.push(word);
        words++;
      }
    }
  }
  for (const each of document.querySelectorAll(".board, .column, .card, .card :not(input)")) {
    if (!each.getClientRects().length) continue;
    if (each.clientWidth && each.scrollWidth > each.clientWidth) wide.push(each.className || each.tagName);
    const card = each.closest(".card")?.getBoundingClientRect();
    const { left, right } = each.getBoundingClientRect();
    if (card && (left < card.left || right > card.right)) wide.push(each.className || each.tagName);
  }
  if (document.documentElement.scrollWidth > innerWidth) wide.push("the page");
  return { broken, wide, words };
}"""


@pytest.mark.parametrize("looks", LOOKS)
def test_no_state_of_the_page_looks_wrong(open_board: OpenBoard, shop: Shop, looks: tuple[tuple[Scheme, int], ...]) -> None:
    """Axe finds no violation of WCAG 2.2 A and AA or its best practices, and nothing scrolls sideways: the board in trouble with
    toasts, a conflict and a banner, the open centre, the two panes, and the board of a pane.

    One page goes through all widths and both schemes, as a window does that is resized and a system that turns dark.
    """
    board = open_board("ana")
    found = {}
    show_everything(board, shop)
    found["trouble"] = wrong_on(board.page, looks)
    board.bell().click()
    expect(board.centre().locator(".notification")).not_to_have_count(0)
    found["centre"] = wrong_on(board.page, looks[:2] if looks is SHORT else looks)
    for path in ("/two", "/?user=ben&pane=1"):
        board.page.goto(board.url + path)
        expect(board.page.locator("h1")).to_be_visible()
        found[path] = wrong_on(board.page, looks[:1] if looks is SHORT else looks)
    assert found == {state: {} for state in found}


def test_the_page_follows_the_systems_colours(open_board: OpenBoard) -> None:
    """A light page has a light ground, a dark one a dark ground."""
    page = open_board("ana", color_scheme="dark").page
    assert ground(page) < 40
    page.emulate_media(color_scheme="light")
    assert ground(page) > 220


@pytest.mark.parametrize(("path", "boards"), [("/", 1), ("/two", 2)])
def test_no_word_of_a_name_is_broken(browser: Browser, gateway: GatewayProcess, path: str, boards: int) -> None:
    """A name has as many lines as it needs, and each of its words is on one; nothing in a card is wider than its room."""
    with browser.new_context() as context:
        page = context.new_page()
        fetched: list[Request] = []
        page.on("requestfinished", lambda request: fetched.append(request) if request.url.endswith("/demo/orders") else None)
        page.goto(gateway.url + path)
        give_up = time.monotonic() + DEADLINE_S
        while len(fetched) < FETCHES * boards:
            assert time.monotonic() < give_up, "the orders are not fetched in time"
            page.wait_for_timeout(POLL_MS)
        # Longer than what the shop makes up, under a number and a total that want room as well.
        order = {"customer": "Christopher Featherstone", "total_cents": 129_900, "items": 20, "status": "packed", "by": "ben"}
        publish(gateway, "orders.31415.created", order)
        frames = page.frames[1:] or page.frames
        assert len(frames) == boards
        for frame in frames:
            expect(frame.locator('.card[data-id="31415"]')).to_be_visible()
            for width in WIDTHS:
                resize(page, width)
                found = frame.evaluate(MEASURE)
                assert (found["broken"], found["wide"]) == ([], []), width
                assert found["words"] > 16


def test_trouble_and_its_repair_are_seen_together(open_board: OpenBoard) -> None:
    """The board, the last minute, the verdict and each button that makes trouble are on one screen, under the longest verdict."""
    board = open_board("ana")
    board.view.locator("#lose").click()
    expect(board.verdict()).to_contain_text("Nothing lost in silence")
    for width, height in ((1366, 768), (1440, 900), (1536, 864), (1920, 1080)):
        resize(board.page, width, height)
        assert outside(board.page, "#board h2", "#pulse", "#verdict", "#tools button") == [], width


@pytest.mark.parametrize("size", [(390, 844), (768, 1024)])
def test_a_narrow_page_leads_to_the_trouble(open_board: OpenBoard, size: tuple[int, int]) -> None:
    """Where the buttons are below the board, a link at the top goes there, and the last minute is in sight beside them."""
    board = open_board("ana", viewport={"width": size[0], "height": size[1]})
    board.view.get_by_role("link", name="Make trouble").click()
    expect(board.view.locator("#tools button").last).to_be_in_viewport(ratio=1)
    assert outside(board.page, "#pulse", "#verdict", "#tools button") == []


def test_the_bar_begins_and_ends_where_the_page_does(open_board: OpenBoard) -> None:
    """Its name stands over the left edge of the board, its last button over the right edge of the widest part below."""
    page = open_board("ana").page
    for width in (*WIDTHS, 2560):
        resize(page, width)
        left, right, board_left, layout_right = page.evaluate(
            """() => {
              const edges = selector => document.querySelector(selector).getBoundingClientRect();
              const padding = parseFloat(getComputedStyle(document.querySelector(".layout")).paddingRight);
              const text = document.createRange();
              text.selectNodeContents(document.querySelector(".bar > :last-child"));
              const right = edges(".layout").right - padding;
              return [edges(".bar h1").left, text.getBoundingClientRect().right, edges("#board").left, right];
            }"""
        )
        assert left == pytest.approx(board_left, abs=1), width
        assert right == pytest.approx(layout_right, abs=2), width


def test_a_switch_shows_its_state_in_the_systems_own_colours(open_board: OpenBoard) -> None:
    """Where the system replaces every colour of the page, its knob stands out, and on has another ground than off."""
    board = open_board("ana", forced_colors="active")
    colours = "each => [null, '::before'].map(part => getComputedStyle(each, part).backgroundColor)"
    grounds = []
    for on in (True, False):
        board.choose("live", on)
        ground, knob = board.switch("live").evaluate(colours)
        assert ground != knob
        grounds.append(ground)
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize(("wish", "still"), [("reduce", True), ("no-preference", False)])
def test_nothing_moves_for_a_reader_who_asks_for_less_motion(open_board: OpenBoard, shop: Shop, wish: str, still: bool) -> None:
    """Every animation and transition of the page takes no time then, and some take time otherwise."""
    number = shop.create()
    board = open_board("ana", reduced_motion=wish)
    shop.change(number, status="failed")
    expect(board.toast(f"Order {number} failed")).to_be_visible()
    seconds = board.page.evaluate(
        """() => [...document.querySelectorAll("*")].flatMap(each => [null, "::before", "::after"].flatMap(part => {
          const { animationDuration, transitionDuration } = getComputedStyle(each, part);
          return `${animationDuration}, ${transitionDuration}`.split(", ").map(parseFloat);
        }))"""
    )
    assert (max(seconds) == 0) is still


def test_an_element_that_has_the_focus_shows_it(open_board: OpenBoard) -> None:
    """Every stop of the Tab key has an outline that can be seen."""
    page = open_board("ana").page
    stops = page.evaluate("document.querySelectorAll('a, button:not([hidden]), input, [tabindex=\"0\"]').length")
    seen = 0
    for _ in range(stops):
        page.keyboard.press("Tab")
        tag, style, width = page.evaluate(
            "(({tagName}, {outlineStyle, outlineWidth}) => [tagName, outlineStyle, parseFloat(outlineWidth)])"
            "(document.activeElement, getComputedStyle(document.activeElement))"
        )
        if tag == "BODY":
            break
        seen += 1
        assert style == "solid"
        assert width >= 2
    assert seen > 15


def test_the_focus_goes_in_reading_order(open_board: OpenBoard) -> None:
    """The focus goes from the bar to the board, to the lab, to preferences and events, and never jumps ahead."""
    page = open_board("ana").page
    places = [".skip", ".who", "#bell", "#new-order", "#board", "#tools", "#pulse-table", "#alerts", "#timeline"]
    place = "places => places.find(each => document.activeElement.closest(each)) ?? document.activeElement.tagName"
    seen: list[str] = []
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        at = page.evaluate(place, places)
        if at == places[-1]:
            break
        if at in places and at not in seen:
            seen.append(at)
        assert at not in places or places.index(at) == len(seen) - 1
    assert seen == places[:-1]


def show_everything(board: BoardPage, shop: Shop) -> None:
    """Bring up the parts that come and go: a toast, an error on a card, an Undo, a banner, a verdict, the chart's table."""
    number = shop.create()
    # Words that have no place to break.
    shop.change(number, note="x" * 140, carrier="y" * 40)
    expect(board.card(number)).to_be_visible()
    board.field(number, "note").fill("mine")
    shop.change(number, note="theirs")
    expect(board.card(number)).to_contain_text("by Ben")
    board.field(number, "note").press("Enter")
    expect(board.card(number).get_by_role("alert")).to_be_visible()
    shop.change(number, status="failed")
    expect(board.toast(f"Order {number} failed")).to_be_visible()
    gone = shop.create()
    board.delete_button(gone).click()
    expect(board.undo_button(gone)).to_be_visible()
    board.burst(50)
    expect(board.verdict()).to_contain_text("Nothing lost")
    board.view.get_by_role("button", name="Go offline").click()
    expect(board.diary()).to_contain_text("offline")
    expect(board.view.locator("#banner")).to_be_visible()
    board.view.locator("#pulse-table summary").click()
    expect(board.view.locator("#pulse-rows tr")).not_to_have_count(0)


def resize(page: Page, width: int, height: int = 900) -> None:
    """Resize the window, and return when the page knows."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("width => innerWidth === width", arg=width)


def outside(page: Page, *selectors: str) -> list[str]:
    """Return what of the selected parts is not wholly in the window, or is covered there."""
    found: list[str] = page.evaluate(
        """selectors => [...document.querySelectorAll(selectors)].filter(each => {
          const { top, bottom, left, right, width } = each.getBoundingClientRect();
          const [x, y] = [(left + right) / 2, (top + bottom) / 2];
          const over = document.elementFromPoint(x, y);
          const covered = !over || !(each.contains(over) || over.closest(".plot")?.contains(each));
          return !width || top < 0 || bottom > innerHeight || covered;
        }).map(each => each.id || each.textContent)""",
        ", ".join(selectors),
    )
    return found


def wrong_on(page: Page, looks: tuple[tuple[Scheme, int], ...]) -> dict[str, list[str]]:
    """Resize the page and change the scheme; return what axe finds, and whether the page scrolls sideways, by look."""
    found = {}
    for scheme, width in looks:
        page.emulate_media(color_scheme=scheme)
        resize(page, width)
        broken = violations(page)
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            broken.append("it scrolls sideways")
        if broken:
            found[f"{width} {scheme}"] = broken
    return found


def violations(page: Page) -> list[str]:
    """Run axe in the page; evaluated from outside, so the page's own policy stays as strict as it is."""
    assert AXE.exists(), "axe-core is missing: npm ci"
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run(document).then(result => result.violations)")
    return [f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']][:4]}" for each in found]


def ground(page: Page) -> float:
    """Brightness of the page's background, 0 to 255."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    parts = [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / len(parts)
