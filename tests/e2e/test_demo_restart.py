"""A gateway killed and started again: the pages reconnect by themselves, and show the events since."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from headgate.redis.embedded import EmbeddedRedis
from headgate.services.publisher import Publisher
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import VIEWPORT, OpenBoard
from tests.e2e.shop import Shop
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.held_port import HeldPort


@pytest.fixture
def port() -> Iterator[str]:
    """A port that a gateway has again after its restart."""
    held = HeldPort()
    yield str(held.port)
    held.close()


@pytest.fixture
def gateway(start_gateway: StartGateway, port: str) -> GatewayProcess:
    """The test's gateway, on a separate port. `open_board` opens its boards."""
    return start_gateway({"HEADGATE_PORT": port}, "--demo")


def stay(board: BoardPage) -> None:
    """Mark the page, because a reload would lose the mark."""
    board.page.evaluate("window.stayed = true")


def has_stayed(board: BoardPage) -> bool:
    return board.page.evaluate("window.stayed") is True


def test_pages_come_back_after_a_restart_of_the_gateway(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """They go live without a reload, with every order as people left it, and tokens of before are good."""
    ana, ben = open_board("ana"), open_board("ben")
    before = Shop(gateway.url, "ben")
    ana.button("Ship order 42").click()
    expect(ben.card_in("shipped", "42")).to_be_visible()
    made = before.create()
    for board in (ana, ben):
        stay(board)
    # In order, so that Redis has written all of it, because a crash may cost it the last second.
    gateway.stop()
    gateway.start()
    before.move("41", "failed")  # with a token of before
    for board in (ana, ben):
        board.wait_until_live()
        expect(board.card_in("failed", "41")).to_be_visible()
        expect(board.card_in("shipped", "42")).to_be_visible()
        expect(board.card_in("new", made)).to_be_visible()
    ana.button("Retry order 41").click()
    expect(ben.card_in("new", "41")).to_be_visible()
    assert has_stayed(ana)
    assert has_stayed(ben)


def test_changes_published_while_the_gateway_is_dead_show_when_it_is_back(
    browser: Browser, start_gateway: StartGateway, start_redis: Callable[[], EmbeddedRedis], port: str
) -> None:
    """A separate Redis runs on, and a gateway that was killed has lost nothing of the orders."""
    redis = start_redis()
    gateway = start_gateway({"HEADGATE_PORT": port, "HEADGATE_REDIS_URL": redis.url}, "--demo")
    with browser.new_context(viewport=VIEWPORT) as context:
        ana = BoardPage(context.new_page(), gateway.url, "ana")
        ana.open()
        stay(ana)
        ana.button("Pack order 41").click()
        expect(ana.card_in("packed", "41")).to_be_visible()
        gateway.kill()
        with Publisher(redis.url) as publisher:
            publisher.publish("orders.42.shipped", {"customer": "while it was dead"})
        gateway.start()
        ana.wait_until_live()
        expect(ana.card_in("shipped", "42")).to_contain_text("while it was dead")
        assert Shop(gateway.url, "ben").order("41")["status"] == "packed"
        assert has_stayed(ana)
        assert ana.faults == []


def test_a_page_that_is_not_let_in_can_try_again(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """After some refusals the page stops trying, says so, and has a button to try again without a reload."""
    ana = open_board("ana")
    ana.page.route("**/demo/session", lambda route: route.fulfill(json={"token": "forged"}))
    ana.page.goto(f"{gateway.url}/?user=ana")
    stay(ana)
    notice = ana.notice("The gateway does not let this page in").first
    expect(notice).to_contain_text("not authorized: that is not a signed JWT")
    expect(ana.pill()).to_have_text("Refused")
    ana.page.unroute("**/demo/session")
    notice.get_by_role("button", name="Try again").click()
    ana.wait_until_live()
    assert has_stayed(ana)
