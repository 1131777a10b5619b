"""Presence in Chromium: two users with two tabs each at two gateways. `make nightly` kills one of these."""

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.e2e.conftest import CLIENT_APPLICATION, CLIENT_SETTINGS, until
from tests.support.gateway_process import GatewayProcess, StartGateway


def wait_until(page: Page, shown: str) -> None:
    """Wait until a page shows these users with so many connections."""
    content = "window.page?.shown()"
    until(page, lambda: page.evaluate(content) == shown, lambda: f"{page.evaluate(content)!r}, not {shown!r}")


def start(start_gateway: StartGateway, redis_url: str, **more: str) -> GatewayProcess:
    """Start a gateway; `more` settings."""
    return start_gateway({**CLIENT_SETTINGS, "HEADGATE_REDIS_URL": redis_url, **more}, CLIENT_APPLICATION)


def open_tab(context: BrowserContext, gateway: GatewayProcess, user: str, name: str) -> Page:
    tab = context.new_page()
    tab.goto(f"{gateway.url}/presence?user={user}&page={name}")
    return tab


def test_users_are_counted_once(context: BrowserContext, start_gateway: StartGateway, redis_url: str) -> None:
    """Each page shows both users, one with two connections. No user with another page is reported as gone."""
    gateway = start(start_gateway, redis_url)
    ana, ben, tab = (open_tab(context, gateway, user, name) for user, name in (("ana", "1"), ("ben", "1"), ("ben", "2")))
    for page in (ana, ben, tab):
        wait_until(page, "ana 1, ben 2")
    tab.evaluate("page.room.close()")
    wait_until(ana, "ana 1, ben 1")
    assert [told for told in ana.evaluate("page.told") if "leave" in told] == []
    ben.evaluate("page.room.close()")
    wait_until(ana, "ana 1")
    assert [told for told in ana.evaluate("page.told") if "leave" in told] == ["ben leave"]


@pytest.mark.nightly
def test_users_outlive_a_gateway(context: BrowserContext, start_gateway: StartGateway, redis_url: str) -> None:
    """After the death of one gateway they have one connection, and no user has left."""
    stays, dies = (start(start_gateway, redis_url) for _ in range(2))
    tabs = {
        (user, name): open_tab(context, gateway, user, name)
        for user in ("ana", "ben")
        for name, gateway in (("stays", stays), ("dies", dies))
    }
    for page in tabs.values():
        wait_until(page, "ana 2, ben 2")
    dies.kill()
    for user in ("ana", "ben"):
        wait_until(tabs[user, "stays"], "ana 1, ben 1")
        assert [told for told in tabs[user, "stays"].evaluate("page.told") if "leave" in told] == []
    assert tabs["ana", "dies"].evaluate("page.shown()") == "ana 2, ben 2"  # its old members, and its status says so
    assert tabs["ana", "dies"].evaluate("page.room.status") == "waiting"
    tabs["ben", "stays"].evaluate("page.room.close()")
    wait_until(tabs["ana", "stays"], "ana 1")
