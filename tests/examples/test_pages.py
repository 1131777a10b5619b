"""The pages of examples/chat and /bell, built with the packed client, in Chromium against a real gateway."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.examples.conftest import BUILT
from tests.support.gateway_process import StartGateway
from tests.support.pictures import picture

pytestmark = pytest.mark.nightly


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
        page.get_by_label("Message").fill("Is your order there?")
        expect(pages["ben"].locator("#members")).to_have_text("ana …, ben")
        picture(pages["ben"], "chat")
        pages["ben"].reload()
        pages["ben"].get_by_label("Your name").fill("eve")
        pages["ben"].get_by_role("button").click()
        expect(pages["ben"].locator("#messages li")).to_have_text(["ana: hello <b>"])


def test_a_bell_shows_what_flask_has_put_into_the_inbox(page: Page, start_gateway: StartGateway, redis_url: str) -> None:
    """Its build has checked the types of headgate/inbox and headgate/react."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url, "PYTHONPATH": str(BUILT / "bell")}, "app:app", "--dev")
    page.goto(gateway.url)
    page.get_by_role("button", name="Place an order that fails").click()
    page.get_by_role("button", name="Notifications, 1 unread").click()
    page.get_by_role("button", name="Mark as read").first.click()
    expect(page).to_have_title("Shop")
