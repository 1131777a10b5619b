"""The bell of examples/bell in Chromium: its content, with the keyboard alone, and by the rules of axe."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from tests.e2e.conftest import NewPage
from tests.e2e.test_looks import violations
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.pictures import picture

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/bell"
ITEMS = 25
SIZE = {"width": 760, "height": 470}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built with the React of this repository."""
    folder = tmp_path_factory.mktemp("bell")
    words = [
        "--bundle",
        "--format=esm",
        "--jsx=automatic",
        "--define:process.env.NODE_ENV='production'",
        f"--outdir={folder}/dist",
    ]
    command = ["node_modules/.bin/esbuild", "examples/bell/src/main.tsx", *words, "--log-level=warning"]
    subprocess.run(command, cwd=ROOT, check=True)
    page = (EXAMPLE / "index.html").read_text()
    style = '<link rel="stylesheet" href="/main.css">'
    (folder / "dist/index.html").write_text(page.replace("</title>", f"</title>{style}").replace("/src/main.tsx", "/main.js"))
    (folder / "app.py").write_text((EXAMPLE / "app.py").read_text())
    return folder


@pytest.fixture
def gateway(start_gateway: StartGateway, redis_url: str, folder: Path) -> GatewayProcess:
    return start_gateway({"HEADGATE_REDIS_URL": redis_url, "PYTHONPATH": str(folder)}, "app:app", "--dev")


@pytest.fixture
def inbox(redis_url: str) -> Iterator[Inbox]:
    with Publisher(redis_url, timeout_s=30) as publisher:
        yield Inbox(publisher)


@pytest.fixture
def page(new_page: NewPage) -> Page:
    opened = new_page()
    opened.set_viewport_size(SIZE)  # type: ignore[arg-type]
    return opened


def send(inbox: Inbox, number: int) -> None:
    detail = ("The card was declined", "Out of stock", "The address is unknown")[number % 3]
    inbox.send("ana", "orders.failed", {"title": f"Order {4100 + number} failed", "detail": detail}, f"failed-{number}")


def test_an_item_is_read_with_the_keyboard_and_everywhere(page: Page, gateway: GatewayProcess, inbox: Inbox) -> None:
    """It is announced, counted in bell and title, and read in another tab and after a reload; the focus never gets lost."""
    send(inbox, 1)
    page.goto(gateway.url)
    other = page.context.new_page()
    other.goto(gateway.url)
    status = page.get_by_role("status")
    expect(status).to_have_text("1 unread. Order 4101 failed")
    send(inbox, 2)
    expect(status).to_have_text("2 unread. Order 4102 failed")
    expect(page).to_have_title("(2) Shop")
    page.get_by_role("button", name="Notifications, 2 unread").focus()
    page.keyboard.press("Enter")
    read = page.get_by_role("button", name="Mark as read: Order 4102 failed")
    expect(read).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Mark all as read")).to_be_focused()
    page.keyboard.press("Tab")
    expect(read).to_be_focused()
    page.keyboard.press("Enter")
    expect(read).to_have_count(0)
    expect(page.get_by_role("heading", name="Notifications")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Notifications")).to_be_hidden()
    expect(page.get_by_role("button", name="Notifications, 1 unread")).to_be_focused()
    expect(other).to_have_title("(1) Shop")
    other.reload()
    expect(other.get_by_role("button", name="Notifications, 1 unread")).to_be_visible()


@pytest.mark.nightly
def test_the_bell_breaks_no_rule_of_accessibility(page: Page, gateway: GatewayProcess, inbox: Inbox) -> None:
    """Open and closed, empty and with older items to be shown, light and dark, and on a phone."""
    page.goto(gateway.url)
    bell = page.get_by_role("button", name="Notifications")
    bell.click()
    expect(page.get_by_text("Nothing here")).to_be_visible()
    assert violations(page) == []
    for number in range(ITEMS):
        send(inbox, number)
    inbox.mark_read("ana", [f"orders.failed/failed-{number}" for number in range(0, ITEMS, 3)])
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("unread")
    assert violations(page) == []
    bell.click()
    expect(page.get_by_role("button", name="Show older ones")).to_be_visible()
    picture(page, "bell", **SIZE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (SIZE["width"], 390):
            page.set_viewport_size({"width": width, "height": SIZE["height"]})
            assert violations(page) == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (scheme, width)
    page.get_by_role("button", name="Show older ones").click()
    expect(page.get_by_role("button", name="Archive", exact=False)).to_have_count(ITEMS)
