"""The pages of examples/webpack, /rollup, /esbuild and /vite: built with the packed client, and fed without socket.io-client."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from headgate.services.publisher import Publisher
from tests.examples.conftest import BUILT, OpenShop
from tests.support.gateway_process import StartGateway

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("bundler", ["webpack", "rollup", "esbuild"])
def test_a_bundled_page_hears_events_and_requests_no_chunk_of_socket_io(
    page: Page, open_shop: OpenShop, publisher: Publisher, bundler: str
) -> None:
    """The build has a chunk with socket.io-client beside the page's script, and the page does not load it."""
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(open_shop(bundler).url)
    expect(page.locator("#status")).to_have_text("live")
    publisher.publish("orders.1.created", {"version": 1})
    expect(page.locator("#events li")).to_have_text("orders.1.created 1")
    scripts = {path.name for path in (BUILT / bundler / "dist").glob("*.js")}
    chunks = {path for path in scripts if "engine.io" in (BUILT / bundler / "dist" / path).read_text() and path != "main.js"}
    assert chunks, f"no chunk among {scripts}"
    assert not [url for url in loaded if url.rpartition("/")[2] in chunks]


def test_a_page_of_vite_and_flask_hears_what_flask_publishes(page: Page, start_gateway: StartGateway, redis_url: str) -> None:
    """Its build has checked the types; Flask serves it, and publishes."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url, "PYTHONPATH": str(BUILT / "vite")}, "app:app", "--dev")
    page.goto(gateway.url)
    expect(page.locator("#status")).to_have_text("live")
    page.locator("#ship").click()
    expect(page.locator("#events li")).to_have_text("orders.42.shipped by UPS")


def test_a_chat_shows_who_is_there_and_each_message_once(
    browser: Browser, page: Page, start_gateway: StartGateway, redis_url: str
) -> None:
    """The sender sees its own message once, others get it, and a reload brings it back."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url, "PYTHONPATH": str(BUILT / "chat")}, "app:app", "--dev")
    with browser.new_context() as other:
        pages = {"ana": page, "ben": other.new_page()}
        for name, opened in pages.items():
            opened.goto(gateway.url)
            opened.get_by_label("Your name").fill(name)
            opened.get_by_role("button").click()
        expect(page.locator("#members")).to_have_text("ana, ben")
        page.get_by_label("Message").fill("hello <b>")
        expect(pages["ben"].locator("#members")).to_have_text("ana …, ben")
        page.get_by_role("button", name="Send").click()
        for opened in pages.values():
            expect(opened.locator("#messages li")).to_have_text(["ana: hello <b>"])
        expect(page.locator("li.sending")).to_have_count(0)
        pages["ben"].reload()
        pages["ben"].get_by_label("Your name").fill("eve")
        pages["ben"].get_by_role("button").click()
        expect(pages["ben"].locator("#messages li")).to_have_text(["ana: hello <b>"])


def test_a_bell_shows_what_flask_has_put_into_the_inbox(page: Page, start_gateway: StartGateway, redis_url: str) -> None:
    """Its build has checked the types of headgate/inbox and headgate/react."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url, "PYTHONPATH": str(BUILT / "bell")}, "app:app", "--dev")
    page.goto(f"{gateway.url}/?name=ana")
    page.get_by_role("button", name="Place an order that fails").click()
    page.get_by_role("button", name="Notifications, 1 unread").click()
    page.get_by_role("button", name="Mark as read").first.click()
    expect(page).to_have_title("Shop")
