"""Trouble on purpose: each is real, every published event is shown or reported, and the verdict says so by counts.

web/test/demo/story.test.js has the counts.
"""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.board_page import BoardPage
from tests.support.gateway_process import GatewayProcess, StartGateway


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """The demo, with patience for a line that stands still."""
    return start_module_gateway({"HEADGATE_WRITE_DEADLINE_S": "120", "HEADGATE_PING_TIMEOUT_S": "120"}, "--demo")


def test_all_troubles_run_one_after_another(browser: Browser, gateway: GatewayProcess) -> None:
    """On the page of both, by one button; each ends whole, and no mark of the strip covers another."""
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        page.goto(f"{gateway.url}/?stall_s=2")
        for pane in (0, 1):
            BoardPage(page, gateway.url, "ana", pane, listen=False).wait_until_live()
        page.get_by_role("button", name="Break it for me").click()
        expect(page.locator('.trouble[data-outcome="whole"]')).to_have_count(5, timeout=60_000)
        assert page.locator('.trouble[data-outcome="short"], .notice').count() == 0
        marks = page.locator("#marks li")
        expect(marks).not_to_have_count(0)
        edges = marks.evaluate_all("each => each.map(mark => mark.getBoundingClientRect()).map(({left, right}) => [left, right])")
        assert all(right <= left for (_, right), (left, _) in pairwise(edges))
        assert re.fullmatch(r"Ana 2 · Ben 1", page.locator('[data-lane="gap"] .lane-count').inner_text())
