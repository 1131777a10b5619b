"""Publishing without a connection, in Chromium against a real gateway: IndexedDB, reloads, several tabs."""

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from headgate.redis.client import Client, call, open_client
from headgate.redis.data_folder import find_private_redis
from headgate.redis.keys import log_key
from tests.e2e.conftest import NewPage, wait_until
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_server import COPY_EVERY_KEY, PUT_BACK

# Half of it is an outbox's own pace. At 50 per second, 200 publishes would take six seconds.
SETTINGS = {"HEADGATE_INBOUND_PER_S": "2000"}

# As WebKit keeps a page in its back/forward cache: it hears nothing, its locks are taken away, and it gets no others.
KEEP = """
  for (const each of ["online", "offline", "visibilitychange"])
    addEventListener(each, (event) => window.isAway && event.stopImmediatePropagation(), true);
  const { set } = Object.getOwnPropertyDescriptor(BroadcastChannel.prototype, "onmessage");
  Object.defineProperty(BroadcastChannel.prototype, "onmessage", {
    set(hear) { set.call(this, (message) => window.isAway || hear(message)); },
  });
  const { request } = LockManager.prototype;
  const lock = (...words) => request.apply(navigator.locks, words);
  LockManager.prototype.request = async (...words) => {
    while (window.isAway) await new Promise((wake) => setTimeout(wake, 20));
    return lock(...words);
  };
  const locks = async () => (await navigator.locks.query()).held;
  const own = crypto.randomUUID();
  const me = lock(own, async () => (await locks()).find(({ name }) => name === own).clientId);
  const { transaction } = IDBDatabase.prototype;
  IDBDatabase.prototype.transaction = function (...words) {
    const made = transaction.apply(this, words);
    if (window.leaves) {
      window.leaves = false;
      window.isAway = true;
      made.onerror = () => { window.isCut = true; };
      queueMicrotask(async () => {
        dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true }));
        const id = await me;
        for (const { name, clientId } of await locks()) if (clientId === id) lock(name, { steal: true }, () => {});
      });
    }
    return made;
  };
"""

# The page is alone with the outbox, so others wait for their turns, until it calls `letGo`.
HOLD_TURN = """() => {
  navigator.locks.request(`headgate outbox ${page.gate.address} ann`, () => new Promise((done) => { window.letGo = done; }));
}"""


@pytest.fixture(scope="module")
def redis(site: GatewayProcess) -> Iterator[Client]:
    url = find_private_redis(site.folder / "data")
    assert url is not None
    opened = open_client(url)
    yield opened
    opened.close()


@pytest.fixture
def open_page(new_page: NewPage, site: GatewayProcess) -> NewPage:
    """Open the page in a tab and return when its service worker has it."""

    def open_one() -> Page:
        page = new_page()
        page.goto(f"{site.url}/outbox")
        wait_until(page, "window.page !== undefined")
        return page

    return open_one


@pytest.fixture
def logged(redis: Client) -> Callable[[], list[int]]:
    """Return the numbers that the log holds since the test began, in its order."""
    key = log_key("notifications")
    last = call(redis, "XREVRANGE", key, "+", "-", "COUNT", 1)
    after = f"({last[0][0].decode()}" if last else "-"

    def read() -> list[int]:
        entries = call(redis, "XRANGE", key, after, "+")
        return [json.loads(fields[b"data"]) for _, fields in entries]

    return read


def wait_until_up(page: Page) -> None:
    wait_until(page, "page.gate.state.connection === 'up'")


def take_network(context: BrowserContext, page: Page) -> None:
    """Return when a connected page has noticed; until then its open connection may carry a publish."""
    context.set_offline(True)
    wait_until(page, "page.gate.state.connection !== 'up'")


def pending(page: Page) -> int:
    found: int = page.evaluate("page.outbox.pending().then(({ length }) => length)")
    return found


def wait_until_sent(page: Page) -> None:
    wait_until(page, "page.outbox.pending().then(({ length }) => length === 0)")


def test_publishes_of_a_page_without_network_survive_its_reload(
    open_page: NewPage, context: BrowserContext, logged: Callable[[], list[int]]
) -> None:
    """Fifty, kept over a reload without network. The log has each once, in order, and the new page learns of each.

    Two more than there is room for are refused at once, and there is room again when all are sent.
    """
    page = open_page()
    wait_until_up(page)
    take_network(context, page)
    assert page.evaluate("page.publish(1, 52, page.open(50))") == 50
    assert page.evaluate("page.fates") == ["limit_reached", "limit_reached"]
    page.reload()
    wait_until(page, "window.page !== undefined")
    assert pending(page) == 50
    assert logged() == []
    context.set_offline(False)
    wait_until(page, "page.receipts.length === 50")
    assert logged() == page.evaluate("page.receipts") == list(range(1, 51))
    assert page.evaluate("page.restored") == 50
    page.evaluate("page.publish(53, 53, page.open(1))")
    wait_until(page, "page.fates.length === 1")
    assert page.evaluate("page.fates") == ["published"]


def test_reloads_in_the_middle_of_sending_publish_nothing_twice(open_page: NewPage, logged: Callable[[], list[int]]) -> None:
    """An entry without an answer after a reload is sent again under its id."""
    page = open_page()
    wait_until_up(page)
    page.evaluate("page.publish(1, 60)")
    for _ in range(3):
        # On a slow machine all of them may be sent before the first reload.
        wait_until(page, "page.outbox.pending().then(({ length }) => length === 0 || page.receipts.length >= 5)")
        page.reload()
        wait_until(page, "window.page !== undefined")
    wait_until_sent(page)
    assert logged() == list(range(1, 61))


def test_two_tabs_share_what_is_kept_and_each_entry_is_sent_once(
    open_page: NewPage, context: BrowserContext, logged: Callable[[], list[int]]
) -> None:
    """Each tab's promises are settled there, whichever tab has sent its entries. After its end the others report its entries."""
    one, two, third = open_page(), open_page(), open_page()
    context.set_offline(True)
    for n in range(1, 31, 3):
        for nth, page in enumerate((one, two, third)):
            page.evaluate(f"page.publish({n + nth}, {n + nth})")
    third.close()
    context.set_offline(False)
    for page in (one, two):
        wait_until(page, "page.fates.length === 10")
        assert page.evaluate("[...new Set(page.fates)]") == ["published"]
    wait_until_sent(one)
    assert logged() == list(range(1, 31))
    own, others = [page.evaluate("page.receipts.filter((n) => n % 3 === 1)") for page in (one, two)]
    assert (own, others) == (list(range(1, 31, 3)), [])
    assert one.evaluate("page.restored") + two.evaluate("page.restored") == 10


def test_a_page_in_the_back_forward_cache_holds_up_no_other_and_learns_what_came_of_its_publishes(
    open_page: NewPage, context: BrowserContext, logged: Callable[[], list[int]]
) -> None:
    """It leaves in a transaction, which it ends, and while it waits for its turn. Another page sends what it has kept."""
    context.add_init_script(KEEP)
    gone, other = open_page(), open_page()
    take_network(context, gone)
    other.evaluate(HOLD_TURN)
    wait_until(other, "Boolean(window.letGo)")
    assert gone.evaluate("page.publish(1, 3)") == 3
    gone.evaluate("window.leaves = true; void page.publish(4, 4)")
    wait_until(gone, "window.isCut")
    other.evaluate("letGo()")
    context.set_offline(False)
    wait_until(other, "page.receipts.length === 3")
    assert (logged(), other.evaluate("page.restored"), gone.evaluate("page.fates")) == ([1, 2, 3], 3, [])
    gone.evaluate("window.isAway = false; dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    wait_until(gone, "page.fates.length === 4")
    assert gone.evaluate("page.fates") == ["published"] * 4
    assert (logged(), gone.evaluate("page.receipts")) == ([1, 2, 3, 4], [4])


def test_a_page_whose_storage_is_cleared_keeps_its_next_publishes(
    open_page: NewPage, context: BrowserContext, site: GatewayProcess, logged: Callable[[], list[int]]
) -> None:
    """As when the user deletes the site's data, the browser closes the database under the page."""
    page = open_page()
    wait_until(page, "page.gate.status === 'live'")
    page.evaluate("page.publish(1, 2)")
    wait_until(page, "page.fates.length === 2")
    devtools = context.new_cdp_session(page)
    devtools.send("Storage.clearDataForOrigin", {"origin": site.url, "storageTypes": "indexeddb"})
    page.evaluate("page.publish(3, 4)")
    wait_until(page, "page.fates.length === 4")
    assert page.evaluate("page.fates") == ["published"] * 4
    assert logged() == [1, 2, 3, 4]


def test_publishes_that_redis_loses_after_their_receipts_are_sent_again(
    open_page: NewPage, site: GatewayProcess, redis: Client, logged: Callable[[], list[int]]
) -> None:
    """Redis goes on with data that are a moment older. A page gets new receipts for the lost events, and for nothing else.

    It is another page than the publishing one. The next event begins another epoch, and they come after it, once each.
    """
    page = open_page()
    wait_until_up(page)
    page.evaluate("page.publish(1, 2)")
    wait_until(page, "page.fates.length === 2")
    copied = call(redis, "EVAL", COPY_EVERY_KEY, 0)
    page.evaluate("page.publish(3, 5)")
    wait_until(page, "page.fates.length === 5")
    page.reload()
    wait_until(page, "window.page !== undefined")
    wait_until_up(page)
    call(redis, "EVAL", PUT_BACK, 0, *(word for key in copied for word in key))
    page.evaluate("page.publish(6, 6)")
    wait_until(page, "page.receipts.length === 4")
    assert page.evaluate("[page.receipts, page.replaced]") == [[6, 3, 4, 5], 3]
    assert logged() == [1, 2, 6, 3, 4, 5]
