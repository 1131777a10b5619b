"""The React board in Firefox and WebKit, as far as the system has them; a browser that is missing is skipped by name."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from headgate.services.publisher import Publisher
from tests.examples.conftest import OpenShop
from tests.examples.other_browsers import Missing, OtherBrowser, firefox, webkit
from tests.support.redis_server import wait_until

pytestmark = pytest.mark.nightly
DEADLINE_S = 60
STATUS = "document.querySelector('#status')?.textContent"
LINES = "[...document.querySelectorAll('#activity li')].map((line) => line.textContent.trim()).join()"
POLLS = "performance.getEntriesByType('resource').filter(({name}) => name.includes('transport=polling')).length"

Start = Callable[[Path], AbstractContextManager[OtherBrowser]]


@pytest.fixture(params=[firefox, webkit], ids=["Firefox", "WebKit"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OtherBrowser]:
    start: Start = request.param
    profile = tmp_path / "profile"
    profile.mkdir()
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(start(profile))
        except Missing as missing:
            pytest.skip(f"{missing} is not installed")
        yield opened


def test_a_page_hears_events_and_loses_none_over_a_restart(page: OtherBrowser, open_shop: OpenShop, publisher: Publisher) -> None:
    """It connects by WebSocket, hears events in order, and after a crash of the gateway those from in between."""

    def wait_for(expression: str, wanted: str) -> None:
        wait_until(lambda: page.ask(expression) == wanted, f"{expression} is {wanted}", DEADLINE_S)

    shop = open_shop("react")
    page.open(shop.url)
    wait_for(STATUS, "live")
    publisher.publish("orders.1.created", {"id": 1, "version": 1, "status": "new"})
    wait_for(LINES, "orders.1.created 1")
    assert page.ask(POLLS) == 0
    shop.kill()
    wait_until(lambda: page.ask(STATUS) != "live", "the page notices", DEADLINE_S)
    for number in range(2, 6):
        publisher.publish(f"orders.{number}.created", {"id": number, "version": 1, "status": "new"})
    shop.start()
    wait_for(LINES, ",".join(f"orders.{number}.created 1" for number in range(1, 6)))
    wait_for(STATUS, "live")
