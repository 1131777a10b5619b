"""The boards of examples/react, /vue and /svelte, built with Vite and the packed client, in Chromium against a real gateway."""

import re

import pytest
from playwright.sync_api import Page, expect

from headgate.services.publisher import Publisher
from tests.examples.conftest import OpenShop
from tests.support.pictures import picture
from tests.support.redis_server import wait_until

pytestmark = pytest.mark.nightly
PLAIN = ["vue", "svelte"]


def lines(page: Page, panel: str) -> list[str]:
    return [text.strip() for text in page.locator(f"#{panel} li").all_inner_texts()]


def wait_for_subscriptions(page: Page, wanted: list[str]) -> None:
    """Look until the gate's subscriptions are these, because an ending one is there until the gateway has answered."""

    def are_there() -> bool:
        page.locator("#list").click()
        return sorted(page.locator("#toast").inner_text().split()) == sorted(wanted)

    wait_until(are_there, f"the subscriptions {wanted}")


@pytest.mark.parametrize("framework", PLAIN)
def test_a_board_shows_what_happens_and_loses_nothing_over_a_restart(
    page: Page, open_shop: OpenShop, publisher: Publisher, framework: str
) -> None:
    """Orders are loaded, made and shipped; both panels show each event once, also those from during the restart."""
    shop = open_shop(framework)
    page.goto(shop.url)
    expect(page.locator("#status")).to_have_text("live")
    expect(page.locator("#standing")).to_have_text("current")
    page.locator("#create").click()
    expect(page.locator("#orders li")).to_contain_text("Order 1: new")
    page.get_by_role("button", name="Ship").click()
    expect(page.locator("#orders li")).to_contain_text("Order 1: shipped")
    expect(page.locator("#toast")).to_have_text("Order 1 was shipped")
    expected = ["orders.1.created 1", "orders.1.shipped 2"]
    for panel in ("left", "right"):
        expect(page.locator(f"#{panel} li")).to_have_count(2)
        assert lines(page, panel) == expected
    shop.kill()
    expect(page.locator("#status")).not_to_have_text("live")
    for number in range(2, 12):
        publisher.publish(f"orders.{number}.created", {"id": number, "version": 1, "status": "new"})
        expected.append(f"orders.{number}.created 1")
    shop.start()
    for panel in ("left", "right"):
        expect(page.locator(f"#{panel} li")).to_have_count(12)
        assert lines(page, panel) == expected
    expect(page.locator("#orders li")).to_have_count(11)
    expect(page.locator("#status")).to_have_text("live")


@pytest.mark.parametrize("framework", PLAIN)
def test_components_of_one_pattern_share_a_subscription_that_ends_with_the_last(
    page: Page, open_shop: OpenShop, framework: str
) -> None:
    """The gate has each pattern once, keeps it while one panel is mounted, and unsubscribes when none is."""
    page.goto(open_shop(framework).url)
    expect(page.locator("#status")).to_have_text("live")
    others = ["orders.*.*", "orders.*.shipped"]
    wait_for_subscriptions(page, ["orders.#", *others])
    for panel, left in (("left", ["orders.#"]), ("right", [])):
        page.locator(f"#{panel} h2 button").click()
        expect(page.locator(f"#{panel}")).to_have_count(0)
        page.locator("#create").click()
        wait_for_subscriptions(page, [*left, *others])


def test_the_react_board_moves_orders_between_columns_and_loses_nothing_over_a_restart(
    page: Page, open_shop: OpenShop, publisher: Publisher
) -> None:
    """Orders are loaded, made and shipped, and events published while the gateway was stopped appear after it."""
    shop = open_shop("react")
    page.goto(shop.url)
    columns = [page.get_by_role("region", name=name).locator("p") for name in ("To ship", "Shipped")]
    expect(page.locator("#standing")).to_have_text("current")
    for _ in range(3):
        page.get_by_role("button", name="New order").click()
    expect(columns[0]).to_have_text([re.compile(f"Order {number}") for number in (1, 2, 3)])
    columns[0].first.get_by_role("button", name="Ship").click()
    expect(columns[1]).to_have_text([re.compile("Order 1")])
    expect(page.locator("#toast")).to_have_text("Order 1 was shipped")
    picture(page, "react", 1000, 420)
    expected = [*(f"orders.{number}.created 1" for number in (1, 2, 3)), "orders.1.shipped 2"]
    expect(page.locator("#activity li")).to_have_text(expected)
    shop.kill()
    expect(page.locator("#status")).not_to_have_text("live")
    for number in range(4, 9):
        publisher.publish(f"orders.{number}.created", {"id": number, "version": 1, "status": "new"})
        expected.append(f"orders.{number}.created 1")
    shop.start()
    expect(page.locator("#activity li")).to_have_text(expected)
    expect(columns[0]).to_have_count(7)
