"""The fixtures of the tests of examples/, which `node tools/examples.mjs` has built: a gateway with the shop, a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headgate.services.publisher import Publisher
from tests.support.checkout import wheel
from tests.support.chromium import BROWSER_SWITCHES
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.held_port import HeldPort
from tests.support.python_examples import example

__all__ = ["example", "wheel"]  # fixtures

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/examples"
DEADLINE_MS = 60_000

OpenShop = Callable[..., GatewayProcess]


@pytest.fixture(scope="session")
def browser(browser_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser_path, args=list(BROWSER_SWITCHES))
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails its test if it raised an error."""
    context = browser.new_context()
    context.set_default_timeout(DEADLINE_MS)
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    context.close()
    assert faults == []


@pytest.fixture
def open_shop(start_gateway: StartGateway, redis_url: str, tmp_path: Path) -> Iterator[OpenShop]:
    """Start the shop of examples/server with the built page of an example; after a restart it has the same port."""
    held = HeldPort()

    def start(name: str, built: str = "dist") -> GatewayProcess:
        settings = {
            "HEADGATE_PORT": str(held.port),
            "HEADGATE_REDIS_URL": redis_url,
            "PYTHONPATH": str(ROOT / "examples/server"),
            "SHOP_DATABASE": str(tmp_path / "shop.db"),
            "SHOP_PAGE": str(BUILT / name / built),
        }
        return start_gateway(settings, "shop:app", "--dev")

    yield start
    held.close()


@pytest.fixture
def port() -> Iterator[int]:
    held = HeldPort()
    yield held.port
    held.close()


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """Publishes as another program does."""
    running = Publisher(redis_url)
    yield running
    running.close()
