"""Make the pictures of the README with the tests' own browser: `python -m tests.e2e.screenshot [folder]`.

In: a gateway started here with the demo, two people at work, and every trouble. Out: `screenshot.png` (light) and
`screenshot-dark.png` in `folder` (default `docs`), which differ from run to run in times only.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import DEADLINE_MS
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess
from tools import chromium

VIEWPORT: ViewportSize = {"width": 1760, "height": 896}
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
    """Let every trouble run, Ben fail an order, and take the picture with Ana's inbox open and Ben's pointer."""
    context = browser.new_context(viewport=VIEWPORT, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{gateway.url}/?stall_s=4")
    ana, ben = BoardPage(page, gateway.url, "ana"), BoardPage(page, gateway.url, "ben", 1, listen=False)
    for board in (ana, ben):
        board.wait_until_live()
    page.get_by_role("button", name="Break it for me").click()
    expect(page.locator("#caption")).to_contain_text("All 5 done", timeout=2 * DEADLINE_MS)
    ben.button("Fail order 42").click()
    expect(ana.card_in("failed", "42")).to_be_visible()
    ana.button("Dismiss: Order 42 failed").click()
    ana.bell().click()
    expect(ana.item("Order 42 failed")).to_be_visible()
    ben.card("37").hover()
    expect(ana.view.locator(".pointer")).to_be_visible()
    page.screenshot(path=target)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
