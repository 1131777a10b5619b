"""The looks of the page: accessible by axe's rules, in light and dark, from a phone to a wide screen."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.board_page import MAX_TABS, BoardPage
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop, publish
from tests.support.gateway_process import GatewayProcess

AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
# Of the usual screens, from a phone to a large one.
WIDTHS = (390, 768, 1366, 1440, 1536, 1920)
Scheme = Literal["light", "dark"]
# Both schemes, one column and many; every width in both schemes takes minutes.
SHORT: tuple[tuple[Scheme, int], ...] = (("light", 390), ("dark", 1440))
FULL: tuple[tuple[Scheme, int], ...] = tuple((scheme, width) for scheme in ("light", "dark") for width in WIDTHS)
LOOKS = [pytest.param(SHORT, id="short"), pytest.param(FULL, id="full", marks=[pytest.mark.nightly, pytest.mark.timeout(900)])]
WISHES: tuple[Literal["reduce", "no-preference"], ...] = ("reduce", "no-preference")
# Words of names on more than one line, parts of cards wider than their room, and the words in all.
MEASURE = r"""() => {
  const broken = [], wide = [];
  let words = 0;
  for (const name of document.querySelectorAll(".card h4")) {
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
  for (const each of document.querySelectorAll(".column, .card, .card *")) {
    if (!each.getClientRects().length) continue;
    const card = each.closest(".card")?.getBoundingClientRect();
    const { left, right } = each.getBoundingClientRect();
    if (card && (left < card.left - 1 || right > card.right + 1)) wide.push(each.className || each.tagName);
    const face = each.closest(".card")?.querySelector(".face").getBoundingClientRect();
    if (each.matches(".action") && right > face.left) wide.push("an action under a face");
  }
  if (document.documentElement.scrollWidth > innerWidth) wide.push("the page");
  return { broken, wide, words };
}"""


@pytest.fixture
def both(context: BrowserContext, gateway: GatewayProcess) -> Page:
    page = context.new_page()
    page.goto(f"{gateway.url}/?stall_s=2")
    for pane in (0, 1):
        BoardPage(page, gateway.url, "ana", pane, listen=False).wait_until_live()
    return page


@pytest.mark.parametrize("looks", LOOKS)
def test_no_state_of_the_page_looks_wrong(both: Page, shop: Shop, looks: tuple[tuple[Scheme, int], ...]) -> None:
    """Axe finds no violation of WCAG 2.2 A and AA or its best practices, and nothing scrolls sideways, with both boards after
    trouble, with a notice, and the open inbox. One page goes through all widths and both schemes, and has the ground of each."""
    board = BoardPage(both, shop.url, "ana", listen=False)
    show_everything(board, shop)
    found = {"trouble": wrong_on(both, looks)}
    board.bell().click()
    expect(board.view.locator(".item")).not_to_have_count(0)
    found["inbox"] = wrong_on(both, looks)
    assert found == {state: {} for state in found}


def test_no_word_of_a_name_is_broken(both: Page, gateway: GatewayProcess) -> None:
    """A name has as many lines as it needs, and each of its words is on one; nothing in a card is wider than its room."""
    # Longer than an order of the shop, under a number and a total that want room as well.
    publish(gateway, "orders.31415.created", {"customer": "Christopher Featherstone", "total_cents": 129_900, "status": "packed"})
    expect(both.locator('.card[data-id="31415"]')).to_have_count(2)
    for width in (320, *WIDTHS):  # 320 is a window of 1280 at 400 %
        resize(both, width)
        found = both.evaluate(MEASURE)
        assert (found["broken"], found["wide"]) == ([], []), width
        assert found["words"] > 32


def test_the_story_and_the_troubles_are_on_the_first_screen(both: Page) -> None:
    """With both names, and the strip is the largest of the three. Trouble and its repair are seen together, on a phone too."""
    for size in ((390, 844), (768, 1024), (1366, 768), (1440, 900), (1920, 1080)):
        resize(both, *size)
        both.evaluate(
            "document.activeElement.blur(), document.querySelector('.trouble').parentElement.scrollTo(0, 0), scrollTo(0, 0)"
        )
        for part in ("#lanes", "#caption", "#break", ".trouble >> nth=0", ".pane-head >> nth=0", ".pane-head >> nth=1"):
            expect(both.locator(part)).to_be_in_viewport(ratio=1)
        heights = both.evaluate(
            """() => [".story", ".troubles"].map(each => document.querySelector(each).getBoundingClientRect().height)"""
        )
        assert heights[0] > 1.5 * heights[1], size
        last = both.locator(".trouble").last
        last.focus()
        expect(last).to_be_in_viewport(ratio=1)


def test_nothing_moves_for_a_reader_who_asks_for_less_motion(open_board: OpenBoard, shop: Shop) -> None:
    """Every animation and transition of the page takes no time then, and some take time otherwise."""
    board = open_board("ana")
    shop.move(shop.create(), "failed")
    expect(board.view.locator(".notice")).to_be_visible()
    longest = {}
    for wish in WISHES:
        board.page.emulate_media(reduced_motion=wish)
        longest[wish] = max(
            board.page.evaluate(
                """() => [...document.querySelectorAll("*")].flatMap(each => [null, "::before", "::after"].flatMap(part => {
                  const { animationDuration, transitionDuration } = getComputedStyle(each, part);
                  return `${animationDuration}, ${transitionDuration}`.split(", ").map(parseFloat);
                }))"""
            )
        )
    assert longest["reduce"] == 0
    assert longest["no-preference"] > 0


def test_the_focus_is_seen_and_goes_in_reading_order(open_board: OpenBoard) -> None:
    """From the bar to the troubles, to the bell and to the board; every stop of the Tab key has an outline."""
    page = open_board("ana").page
    places = [".skip", ".bar", ".troubles", ".pane-head", ".board"]
    seen: list[str] = []
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        at, style, width = page.evaluate(
            """places => {
              const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
              return [places.find(each => document.activeElement.closest(each)), outlineStyle, parseFloat(outlineWidth)];
            }""",
            places,
        )
        if at is None:
            break
        assert style == "solid"
        assert width >= 2
        if at not in seen:
            seen.append(at)
        assert at == seen[-1]
    assert seen == places


def test_no_frame_and_no_inline_code_is_allowed(browser: Browser, gateway: GatewayProcess) -> None:
    """The policy is strict, and the page of both people has no frames, because each person has a gate in the same document."""
    with browser.new_context() as context:
        page = context.new_page()
        answer = page.goto(gateway.url)
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert re.search(r"default-src '(self|none)'", policy)
        assert len(page.frames) == 1


def show_everything(board: BoardPage, shop: Shop) -> None:
    """Bring up the parts that come and go: a verdict, a face on a card, a notice, an item."""
    number = shop.create()
    board.trouble("cut").click()
    expect(board.trouble("cut")).to_have_attribute("data-outcome", "whole")
    shop.move(number, "failed")
    expect(board.notice(f"Order {number} failed")).to_be_visible()


def resize(page: Page, width: int, height: int = 900) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("width => innerWidth === width", arg=width)


def wrong_on(page: Page, looks: tuple[tuple[Scheme, int], ...]) -> dict[str, list[str]]:
    """Resize the page and change the scheme; return the findings of axe, and whether the page scrolls sideways, by look."""
    found = {}
    for scheme, width in looks:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        resize(page, width)
        broken = violations(page)
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            broken.append("it scrolls sideways")
        if not (ground(page) > 220 if scheme == "light" else ground(page) < 40):
            broken.append("its ground is of the other scheme")
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
