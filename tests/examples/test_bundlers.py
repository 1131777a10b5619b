"""The page of examples/bundlers, built with the packed client by each bundler, and fed without socket.io-client."""

import pytest
from playwright.sync_api import Page, expect

from headgate.services.publisher import Publisher
from tests.examples.conftest import BUILT, OpenShop

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("bundler", ["webpack", "rollup", "esbuild"])
def test_a_bundled_page_hears_events_and_requests_no_chunk_of_socket_io(
    page: Page, open_shop: OpenShop, publisher: Publisher, bundler: str
) -> None:
    """The build has a chunk with socket.io-client beside the page's script, and the page does not load it."""
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(open_shop("bundlers", f"dist/{bundler}").url)
    expect(page.locator("#status")).to_have_text("live")
    publisher.publish("orders.1.created", {"version": 1})
    expect(page.locator("#events li")).to_have_text("orders.1.created 1")
    scripts = {path.name: path.read_text() for path in (BUILT / "bundlers/dist" / bundler).glob("*.js")}
    chunks = {name for name, text in scripts.items() if "engine.io" in text and name != "main.js"}
    assert chunks, f"no chunk among {list(scripts)}"
    assert not [url for url in loaded if url.rpartition("/")[2] in chunks]
