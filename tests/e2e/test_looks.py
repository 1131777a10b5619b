"""What the page is like for people: accessible by axe's rules, in light and dark, from a phone to a wide screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.board_page import MAX_TABS, BoardPage
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop

AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
SCREENS = {"phone": (360, 740), "pane": (720, 900), "desk": (1440, 900)}


@pytest.mark.parametrize("size", SCREENS.values(), ids=SCREENS.keys())
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong(open_board: OpenBoard, shop: Shop, scheme: str, size: tuple[int, int]) -> None:
    """No violation of WCAG 2.2 A and AA or axe's best practices, with toasts, a conflict and notifications on the page."""
    board = open_board("ana", color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
    show_everything(board, shop)
    assert violations(board.page) == []
    board.bell().click()
    expect(board.centre().locator(".notification")).not_to_have_count(0)
    assert violations(board.page) == []


@pytest.mark.parametrize("path", ["/two", "/?user=ben&pane=1"])
def test_axe_finds_nothing_wrong_on_the_other_pages(open_board: OpenBoard, path: str) -> None:
    """The two-pane page, and a board as it is inside a pane."""
    board = open_board("ana")
    board.page.goto(board.url + path)
    expect(board.page.locator("h1")).to_be_visible()
    assert violations(board.page) == []


def test_the_page_follows_the_systems_colours(open_board: OpenBoard) -> None:
    """A light page has a light ground, a dark one a dark ground."""
    light, dark = (ground(open_board("ana", color_scheme=scheme).page) for scheme in ("light", "dark"))
    assert light > 220
    assert dark < 40


@pytest.mark.parametrize("size", SCREENS.values(), ids=SCREENS.keys())
def test_nothing_sticks_out_sideways(open_board: OpenBoard, shop: Shop, size: tuple[int, int]) -> None:
    """No sideways scrolling, also with words that have no place to break."""
    number = shop.create()
    shop.change(number, note="x" * 140, carrier="y" * 40)
    board = open_board("ana", viewport={"width": size[0], "height": size[1]})
    expect(board.card(number)).to_be_visible()
    assert board.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_has_the_focus_shows_it(open_board: OpenBoard) -> None:
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
    assert seen > 20


def test_the_focus_goes_in_reading_order(open_board: OpenBoard) -> None:
    """From the bar to the board, to what can be tried, to preferences and events; nothing jumps ahead."""
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
    """Bring up what is not always there: a toast, an error on a card, a banner, a verdict, a diary, the chart's table."""
    number = shop.create()
    expect(board.card(number)).to_be_visible()
    board.field(number, "note").fill("mine")
    shop.change(number, note="theirs")
    expect(board.card(number)).to_contain_text("by Ben")
    board.field(number, "note").press("Enter")
    expect(board.card(number).get_by_role("alert")).to_be_visible()
    shop.change(number, status="failed")
    expect(board.toast(f"Order {number} failed")).to_be_visible()
    board.burst(50)
    expect(board.verdict()).to_contain_text("Nothing lost")
    board.view.get_by_role("button", name="Go offline").click()
    expect(board.diary()).to_contain_text("offline")
    expect(board.view.locator("#banner")).to_be_visible()
    board.view.locator("#pulse-table summary").click()
    expect(board.view.locator("#pulse-rows tr")).not_to_have_count(0)


def violations(page: Page) -> list[str]:
    """Run axe in the page; evaluated from outside, so the page's own policy stays as strict as it is."""
    assert AXE.exists(), "axe-core is missing: npm ci"
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run(document).then(result => result.violations)")
    return [f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']][:4]}" for each in found]


def ground(page: Page) -> float:
    """Brightness of the page's background, 0 to 255."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    parts = [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / len(parts)
