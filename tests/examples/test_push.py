"""The example of Web Push, from the page over a push service to the service worker. The subscription is a stand-in's."""

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headgate.consumers.webpush.encryption import new_keys
from tests.support.certificates import Authority
from tests.support.checkout import DEADLINE_S
from tests.support.http_receiver import Receiver, status
from tests.support.pictures import picture
from tests.support.push_service import PushBrowser
from tests.support.python_examples import MakeExample
from tests.support.redis_server import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * DEADLINE_S)]
# Chromium asks the service of its maker for a subscription, which tests do not reach, so the worker gets the message directly.
CLICK = """async () => {
  const [notification] = await self.registration.getNotifications();
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  return notification.body;
}"""


def kept(folder: Path) -> list[str]:
    """Return the endpoints that the example keeps."""
    with closing(sqlite3.connect(folder / "devices.sqlite3")) as database:
        return [endpoint for (endpoint,) in database.execute("SELECT endpoint FROM devices")]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def service(authority: Authority) -> Iterator[Receiver]:
    with Receiver(authority.server_context("127.0.0.1")) as receiver:
        receiver.answer = status(201)
        yield receiver


def test_a_push_shows_an_unread_item_and_a_click_marks_it_as_read(
    example: MakeExample, page: Page, authority: Authority, service: Receiver, port: int
) -> None:
    """The message is encrypted for the browser, its notification names the item, and a departed browser is forgotten."""
    push, (private, public) = example("push", "[server,push,embedded]"), new_keys()
    url = f"http://127.0.0.1:{port}"
    push.environment |= {"HEADGATE_PORT": str(port), "VAPID_PUBLIC_KEY": public, "VAPID_PRIVATE_KEY": private}
    table = push.folder / "headgate.toml"
    here = f'unless_read_s = 0\nallow_private = ["127.0.0.1"]\nca_file = "{authority.ca_file}"'
    table.write_text(table.read_text().replace("unless_read_s = 10", here))
    push.start("headgate", "serve", "app:app", "--with-consumers", "--config", "headgate.toml", "--dev")
    browser = PushBrowser(service.url("/device"))
    wait_until(lambda: is_listening(port), "the gateway")

    page.context.grant_permissions(["notifications"], origin=url)
    devtools = page.context.new_cdp_session(page)
    registrations: list[str] = []
    devtools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(each["registrationId"] for each in event["registrations"]),
    )
    devtools.send("ServiceWorker.enable")
    with page.context.expect_event("serviceworker") as started:
        page.goto(url)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()  # the worker controls later pages
    for refused in ({"endpoint": "http://127.0.0.1/"}, {}, [browser.endpoint]):
        assert page.request.post(f"{url}/devices", data=refused).status == 400
    assert page.request.post(f"{url}/devices", data=browser.subscription).ok
    assert kept(push.folder) == [browser.endpoint]

    page.locator("#fail").click()
    wait_until(lambda: len(service.requests) == 1, "the push")
    (request,) = service.requests
    shown = browser.receive(request.headers, request.body, public, service.url(""))
    assert (shown["title"], shown["body"]) == ("Order 42", "why: no stock")
    expect(page.locator("#items")).to_have_text("new   Order 42: no stock")

    payload = browser.read(request.body).decode()
    devtools.send("ServiceWorker.deliverPushMessage", {"origin": url, "registrationId": registrations[-1], "data": payload})
    notified = (
        "navigator.serviceWorker.ready.then((ready) => ready.getNotifications()).then((all) => all.map(({ title }) => title))"
    )
    wait_until(lambda: page.evaluate(notified) == ["Order 42"], "the notification")
    assert started.value.evaluate(CLICK) == "why: no stock"
    expect(page.locator("#items")).to_have_text("read  Order 42: no stock")
    assert page.evaluate(notified) == []

    service.answer = status(410)
    page.locator("#fail").click()
    expect(page.locator("#items")).to_contain_text("new ")
    picture(page, "push", height=260)
    wait_until(lambda: kept(push.folder) == [], "the end of the subscription")
