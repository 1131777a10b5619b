"""The fixtures of every end-to-end test: one gateway with the demo, one Chromium, and the shop over HTTP."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.e2e.board_page import BoardPage
from tests.e2e.shop import Shop
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess, StartGateway

DEADLINE_MS = 30_000
POLL_MS = 20
VIEWPORT: ViewportSize = {"width": 1360, "height": 900}
# The application around the browser client, and its settings.
CLIENT_APPLICATION = "tests.e2e.client_app:app"
CLIENT_SETTINGS = {
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "HEADGATE_TOKEN_SECRET": "a secret of thirty-two bytes or more, for tests",
}

OpenBoard = Callable[..., BoardPage]
NewPage = Callable[[], Page]


@pytest.fixture(scope="package")
def browser(browser_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser_path, args=list(BROWSER_SWITCHES))
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context()
    opened.set_default_timeout(DEADLINE_MS)
    yield opened
    opened.close()


@pytest.fixture
def new_page(context: BrowserContext) -> Iterator[NewPage]:
    """Open tabs. An error in the page of one, or one that its policy forbids, fails the test."""
    faults: list[str] = []

    def open_one() -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if "Security Policy" in message.text else None)
        return page

    yield open_one
    assert faults == []


@pytest.fixture(scope="module")
def site(start_module_gateway: StartGateway, request: pytest.FixtureRequest) -> GatewayProcess:
    """The application of client_app.py, with a private Redis and the further `SETTINGS` of a module."""
    settings = CLIENT_SETTINGS | getattr(request.module, "SETTINGS", {})
    return start_module_gateway(settings, CLIENT_APPLICATION)


@pytest.fixture
def publisher(site: GatewayProcess) -> Iterator[Publisher]:
    """Publishes into the Redis of a module's site, as a back end does."""
    running = Publisher(find_private_redis(site.folder / "data"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """`headgate serve --demo` as its own process, with a private Redis."""
    return start_module_gateway(None, "--demo")


@pytest.fixture
def shop(gateway: GatewayProcess) -> Shop:
    """The demo's HTTP routes, as a person without a board uses them."""
    return Shop(gateway.url, "ben")


@pytest.fixture
def open_board(browser: Browser, gateway: GatewayProcess) -> Iterator[OpenBoard]:
    with boards_of(browser, gateway) as open_one:
        yield open_one


@contextmanager
def boards_of(browser: Browser, gateway: GatewayProcess) -> Iterator[OpenBoard]:
    """Open boards, each in a separate browser context (another person's browser), until the end of the block.

    It fails at its end when a page raised an error or met its Content-Security-Policy.
    """
    contexts: list[BrowserContext] = []
    boards: list[BoardPage] = []

    def open_one(user: str = "ana", more: str = "", **options: object) -> BoardPage:
        context = browser.new_context(**{"viewport": VIEWPORT, "reduced_motion": "reduce", **options})  # type: ignore[arg-type]
        context.set_default_timeout(DEADLINE_MS)
        contexts.append(context)
        page: Page = context.new_page()
        board = BoardPage(page, gateway.url, user)
        boards.append(board)
        board.open(more)
        return board

    yield open_one
    faults = [fault for board in boards for fault in board.faults]
    for context in contexts:
        context.close()
    assert faults == []


def wait_until(page: Page, condition: str) -> None:
    """Ask until it is true. (Playwright's own wait evaluates text in the page, which a strict policy forbids.)"""
    told = "window.page && ['told', 'refusals', 'seen'].map(name => page[name]?.slice(-100)).concat(page.gate?.state)"
    until(page, lambda: page.evaluate(condition), lambda: f"{condition}; {page.evaluate(told)}")


def visit(page: Page, site: GatewayProcess, path: str = "client") -> None:
    """Open a page of the application, and return when its gate is connected."""
    page.goto(f"{site.url}/{path}")
    wait_until(page, "window.page?.gate.state.connection === 'up'")


def until(page: Page, condition: Callable[[], Any], what: Callable[[], object], deadline_s: float = DEADLINE_MS / 1000) -> Any:
    """Wait until a condition is true, while the page continues, and return it. Fail with `what` after the deadline."""
    give_up = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < give_up, f"not in time: {what()}"
        page.wait_for_timeout(POLL_MS)
    return found
