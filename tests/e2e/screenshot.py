"""Make the pictures of the README with the tests' own browser: `python -m tests.e2e.screenshot [folder]`.

In: a gateway started here with the demo, and two people at work. Out: `screenshot.png` (light) and `screenshot-dark.png` of
the two-pane page in `folder` (default `docs`), which differ from run to run in epoch and times only.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import DEADLINE_MS
from tests.e2e.shop import publish
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess
from tools import chromium

VIEWPORT: ViewportSize = {"width": 1760, "height": 978}
PICTURES = {"light": "screenshot.png", "dark": "screenshot-dark.png"}


def main(folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=list(BROWSER_SWITCHES))
        for scheme, name in PICTURES.items():
            # A gateway for each, so that both show the same orders.
            with tempfile.TemporaryDirectory() as data, GatewayProcess(Path(data), arguments=("--demo",)) as gateway:
                picture(browser, gateway, scheme, folder / name)
                print(f"wrote {folder / name}")
        browser.close()


def picture(browser: Browser, gateway: GatewayProcess, scheme: str, target: Path) -> None:
    """Let Ben go offline through a flood, Ana ship an order and Ben write a note; take the picture of what both see."""
    context = browser.new_context(viewport=VIEWPORT, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{gateway.url}/two")
    ana, ben = (BoardPage(page, gateway.url, user, page.frame(user)) for user in ("ana", "ben"))
    ana.wait_until_live()
    ben.wait_until_live()
    ben.burst(50)
    expect(ana.verdict()).to_contain_text("Nothing lost")
    ben.view.get_by_role("button", name="Go offline").click()
    expect(ben.diary()).to_contain_text("offline")
    ana.burst(500)
    expect(ana.verdict()).to_contain_text("Nothing lost: 500")
    # So long that the chart shows it as more than a moment.
    expect(ben.view.locator("#pulse .is-offline")).to_have_attribute("width", re.compile(r"[4-9]0"))
    ben.view.get_by_role("button", name="Go online").click()
    for board in (ana, ben):
        expect(board.verdict()).to_contain_text("Nothing lost: 500")
    expect(ben.diary()).to_contain_text("caught up")
    expect(ben.view.locator("#pulse .is-catching-up")).not_to_have_count(0)
    ben.write("41", "note", "Leave with the neighbour")
    expect(ana.field("41", "note")).to_have_value("Leave with the neighbour")
    ana.move_button("42", "shipped").click()
    expect(ben.toast("Order 42 shipped")).to_be_visible()
    publish(gateway, "users.ben.hello", {"text": "Your shift starts at nine"})
    expect(ben.toast("users.ben.hello")).to_be_visible()
    ben.bell().click()
    expect(ben.notification("Order 42 shipped")).to_be_visible()
    page.mouse.move(0, 0)
    page.screenshot(path=target)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
