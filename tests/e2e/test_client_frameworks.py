"""headgate/react in a page in strict mode, and the client in workers, in Chromium against a real gateway."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.redis_server import wait_until

ROOT = Path(__file__).parents[2]
SCRIPTS = ["frameworks_page.jsx", "worker.js"]
PAGE = '<!doctype html><html lang="en"><title>x</title><link rel="icon" href="data:,"><body><div id="app"></div>{}</body></html>'


@pytest.fixture(scope="module")
def site(start_module_gateway: StartGateway, tmp_path_factory: pytest.TempPathFactory) -> GatewayProcess:
    """The shop of examples/server, with subscriptions open to all, with the scripts of this folder in an empty page."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "empty.html").write_text(PAGE.format(""))
    (folder / "react.html").write_text(PAGE.format('<script src="frameworks_page.js"></script>'))
    words = ["--bundle", "--format=iife", "--jsx=automatic", "--define:process.env.NODE_ENV='development'", f"--outdir={folder}"]
    sources = [f"tests/e2e/{name}" for name in SCRIPTS]
    subprocess.run(["node_modules/.bin/esbuild", *sources, *words, "--log-level=warning"], cwd=ROOT, check=True)
    shop = {"PYTHONPATH": str(ROOT / "examples/server"), "SHOP_DATABASE": str(folder / "shop.db"), "SHOP_PAGE": str(folder)}
    return start_module_gateway(shop, "shop:app", "--dev")


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that fails its test if it raised an error."""
    faults: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield opened
    assert faults == []


def test_hooks_in_strict_mode(page: Page, site: GatewayProcess, publisher: Publisher) -> None:
    """Each pattern is subscribed once by one connection, whatever React mounts twice, suspends or renders again."""
    page.goto(f"{site.url}/react.html")
    page.evaluate("page.gate.subscribed('numbers.*')")
    # The first CONNECT carries the pattern.
    assert page.evaluate("page.sent") == ["connect"]
    for number in range(1, 6):
        publisher.publish(f"numbers.n{number}", number)
    expect(page.locator("#numbers")).to_have_text("3 4 5")
    assert page.evaluate("page.handled") == [[1, number] for number in range(1, 6)]
    # Another handler function is called, and nothing is subscribed again, though options are other objects.
    subscribes = page.evaluate("page.subscribes")
    page.evaluate("page.again()")
    expect(page.locator("#round")).to_have_text("2")
    publisher.publish("numbers.n6", 6)
    expect(page.locator("#numbers")).to_have_text("4 5 6")
    assert page.evaluate("page.handled.at(-1)") == [2, 6]
    assert page.evaluate("page.subscribes") == subscribes
    # A component that suspended hears of later events once it is there.
    expect(page.locator("#waiting")).to_be_attached()
    page.evaluate("page.hurry()")
    expect(page.locator("#slow")).to_be_attached()
    publisher.publish("numbers.n7", 7)
    expect(page.locator("#slow")).to_have_text("7")
    # A component that comes back starts again, and does not show a list with a hole.
    page.evaluate("page.show(false)")
    expect(page.locator("#numbers")).to_have_count(0)
    publisher.publish("numbers.n8", 8)
    expect(page.locator("#slow")).to_have_text("8")
    page.evaluate("page.show(true)")
    expect(page.locator("#numbers")).to_be_attached()
    publisher.publish("numbers.n9", 9)
    expect(page.locator("#numbers")).to_have_text("9")
    assert page.evaluate("page.sent") == ["connect"]
    assert page.evaluate("[page.gate.status, page.statuses.at(-1)]") == ["live", "live"]
    # Options that come with another topic are the other topic's.
    page.evaluate("page.move('pears')")
    expect(page.locator("#stock")).to_have_text("pears")
    # Without the provider the connection is closed; with it there is another.
    page.evaluate("page.first = page.gate; page.open(false)")
    wait_until(lambda: page.evaluate("page.first.status") == "closed", "the gate is closed")
    page.evaluate("page.open(true)")
    wait_until(lambda: page.evaluate("page.gate !== page.first && page.gate.status") == "live", "another gate is live")
    assert page.evaluate("page.sent.filter((name) => name === 'connect').length") == 2


@pytest.mark.parametrize("kind", ["Worker", "SharedWorker"])
def test_the_client_works_in_a_worker(page: Page, site: GatewayProcess, publisher: Publisher, kind: str) -> None:
    """It connects, subscribes and hears events where there is no window."""
    page.goto(f"{site.url}/empty.html")
    page.evaluate(
        """(kind) => {
            window.heard = [];
            const worker = kind === "Worker" ? new Worker("worker.js") : new SharedWorker("worker.js").port;
            worker.onmessage = ({data}) => window.heard.push(data);
            worker.postMessage(location.origin);
        }""",
        kind,
    )
    wait_until(lambda: page.evaluate("heard.length") == 1, "the worker is connected")
    assert page.evaluate("heard") == ["undefined live"]
    publisher.publish("numbers.n1", 1)
    wait_until(lambda: page.evaluate("heard.at(-1)") == 1, "the worker hears the event")
