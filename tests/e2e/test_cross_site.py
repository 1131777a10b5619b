"""Cross-site WebSocket hijacking, tried by a real browser: a page of another site, opened by a signed-in visitor."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.gateway_process import GatewayProcess
from tests.support.http_receiver import Receiver, status

# A hostile page needs no library. It tries both transports, with the visitor's cookies.
TRY_ALL = """async (gateway) => {
  const found = {};
  found.websocket = await new Promise((resolve) => {
    const socket = new WebSocket(gateway.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket");
    socket.onmessage = ({ data }) => resolve("open: " + data.slice(0, 1));
    socket.onclose = ({ code }) => resolve("closed: " + code);
  });
  const address = gateway + "/socket.io/?EIO=4&transport=polling";
  const read = async (options) => {
    try {
      const answer = await fetch(address, options);
      return `${answer.type} ${answer.status} ${(await answer.text()).slice(0, 1)}`;
    } catch (error) {
      return error.name;
    }
  };
  found.polling = await read({ credentials: "include" });
  found.blind = await read({ credentials: "include", mode: "no-cors" });
  found.post = await read({ method: "POST", body: "40/notifications,", headers: { "x-probe": "1" } });
  return found;
}"""


@pytest.fixture
def evil_url() -> Iterator[str]:
    """The address of a page that its visitor has been lured to: another name and another port for the same machine."""
    with Receiver() as site:
        site.answer = status(200, {"Content-Type": "text/html"}, b"<!doctype html><title>kittens</title>")
        yield site.url("/", "localhost")


@pytest.fixture
def page(browser: Browser, gateway: GatewayProcess) -> Iterator[Page]:
    context = browser.new_context()
    context.add_cookies([{"name": "session", "value": "signed-in", "url": gateway.url}])
    yield context.new_page()
    context.close()


def test_a_page_of_another_site_gets_in_by_no_transport(page: Page, evil_url: str, gateway: GatewayProcess) -> None:
    """No WebSocket, no session to read or write; a request with an unreadable answer gives it nothing either."""
    page.goto(evil_url)
    found = page.evaluate(TRY_ALL, gateway.url)
    assert found == {"websocket": "closed: 1006", "polling": "TypeError", "blind": "opaque 0 ", "post": "TypeError"}


def test_a_page_of_the_gateways_own_site_gets_in_by_both(page: Page, gateway: GatewayProcess) -> None:
    """So that the refusals above were for the origin."""
    page.goto(f"{gateway.url}/healthz")
    found = page.evaluate(TRY_ALL, gateway.url)
    assert (found["websocket"], found["polling"]) == ("open: 0", "basic 200 0")


@pytest.mark.parametrize("transport", ["websocket", "stream"])
def test_a_page_of_an_origin_that_is_not_allowed_learns_which_setting_names_it(
    page: Page, evil_url: str, gateway: GatewayProcess, transport: str
) -> None:
    """The browser hides both answers from the page, so the client names the possible cause, with the page's own origin.

    A page of another origin loads the script, and the module of the fallback, from the gateway.
    """
    page.goto(evil_url)
    page.add_script_tag(url=f"{gateway.url}/headgate/headgate.js")
    code, reason = page.evaluate(
        """([gateway, transport]) => new Promise((resolve) => {
          const gate = headgate.connect(gateway, { transport });
          gate.on("connection:refused", ({ code, parts }) => resolve([code, parts.reason]) || gate.close());
        })""",
        [gateway.url, transport],
    )
    origin = evil_url.rstrip("/")
    first = {"websocket": "websocket error", "stream": "TypeError: Failed to fetch"}[transport]
    expected = f"{first}: no answer, or the gateway may not allow the origin {origin} (HEADGATE_ALLOWED_ORIGINS)"
    assert (code, reason) == ("unreachable", expected)
