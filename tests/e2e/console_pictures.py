"""Make the pictures of docs/console.md with the tests' own browser: `python -m tests.e2e.console_pictures [folder]`.

In: a gateway of two workers started here with the demo, boards that are open, events for three quarters of a minute. Out:
pictures of some views in `folder` (default `docs/console`), as WebP, which is a third of a PNG. Runs differ in numbers only.
"""

import base64
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Browser, expect, sync_playwright

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import DEADLINE_MS
from tests.e2e.console_page import SETTINGS, ConsolePage
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess
from tools import chromium

TRAFFIC_S = 45
BOARDS = 4
QUALITY = 82


class Picture(NamedTuple):
    name: str
    view: str
    scheme: Literal["light", "dark"]
    width: int
    height: int


PICTURES = (
    Picture("overview", "", "light", 1440, 880),
    Picture("overview-dark", "", "dark", 1440, 880),
    Picture("overview-phone", "", "dark", 390, 844),
    Picture("tail", "tail", "light", 1440, 900),
    Picture("clients", "clients", "light", 1440, 620),
)


def main(folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=DEADLINE_MS)
    settings = {**SETTINGS, "HEADGATE_WORKERS": "2"}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as data:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=list(BROWSER_SWITCHES))
        with GatewayProcess(Path(data), settings, ("--demo",)) as gateway:
            take(browser, gateway, folder)
        browser.close()


def take(browser: Browser, gateway: GatewayProcess, folder: Path) -> None:
    """Let a shop be busy, and take the pictures."""
    boards = [BoardPage(browser.new_context().new_page(), gateway.url, ("ana", "ben")[nth % 2]) for nth in range(BOARDS)]
    for board in boards:
        board.open()
    console = ConsolePage(browser.new_context(reduced_motion="reduce").new_page(), gateway.url)
    console.page.set_viewport_size({"width": PICTURES[0].width, "height": PICTURES[0].height})
    console.sign_in()
    console.wait_until_live()
    with Publisher(find_private_redis(gateway.folder / "data")) as publisher:
        busy(publisher, console, TRAFFIC_S)
        for picture in PICTURES:
            console.page.emulate_media(color_scheme=picture.scheme)
            console.page.set_viewport_size({"width": picture.width, "height": picture.height})
            if console.page.locator("body").get_attribute("data-view") != picture.view:
                console.go(picture.view)
            busy(publisher, console, 3)
            if picture.view == "tail":
                console.events().nth(2).click()
            elif picture.view == "clients":
                # All clients together would fill the window.
                console.page.get_by_label("User", exact=True).fill("ben")
                console.page.keyboard.press("Enter")
                expect(console.page.get_by_role("button", name="Details of ana")).to_have_count(0)
                console.page.get_by_role("button", name="Details of ben").first.click()
                expect(console.panel("ben")).to_be_visible()
            write(console, folder / f"{picture.name}.webp")


def busy(publisher: Publisher, console: ConsolePage, seconds: float) -> None:
    """Publish some dozen events per second."""
    chance = random.Random(7)
    until = time.monotonic() + seconds
    nth = 0
    while time.monotonic() < until:
        for _ in range(chance.randint(1, 8)):
            nth += 1
            order, verb = chance.randint(41, 60), chance.choice(("updated", "updated", "shipped", "created"))
            data = {"customer": chance.choice(("Ada", "Bo", "Cleo")), "note": f"Parcel {nth}", "items": [{"sku": "A-17"}]}
            publisher.publish(f"orders.{order}.{verb}", {**data, "status": "packed", "by": "shop"})
        console.page.wait_for_timeout(120)


def write(console: ConsolePage, target: Path) -> None:
    """Write the picture of the window; Playwright itself makes no WebP."""
    session = console.page.context.new_cdp_session(console.page)
    shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    target.write_bytes(base64.b64decode(shot["data"]))
    print(f"wrote {target}, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/console"))
