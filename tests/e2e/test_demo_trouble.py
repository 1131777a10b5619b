"""Trouble on purpose: a flood, a stalled tab, a cut connection; each time the page shows every published event, and says so."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import Browser, Route, expect

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import VIEWPORT, OpenBoard
from tests.e2e.shop import Shop
from tests.fault.chaos_proxy import ChaosProxy
from tests.support.gateway_process import StartGateway

STALL_S = 2.0
# Longer than a slow machine takes from the first event of a stall to the stall itself.
LONG_STALL_S = 4.0
# Far more than a client queue (1 MiB) and the kernel's buffers on the way through a proxy (0.7 MB) hold.
LARGE_EVENTS = 300
LARGE_BYTES = 8_000
# The longest that there is: until then a second one is refused.
LONGEST_BURST_S = 10.0


@pytest.fixture
def stallable(open_board: OpenBoard) -> BoardPage:
    """Ana's board with a short stall."""
    ana = open_board("ana")
    ana.open(f"&stall_s={STALL_S:g}")
    return ana


def test_a_flood_is_shown_whole_in_every_browser(open_board: OpenBoard) -> None:
    """Both boards compare five hundred numbered events with the server's receipts, and miss none."""
    ana, ben = open_board("ana"), open_board("ben")
    ana.burst(500)
    for board in (ana, ben):
        expect(board.verdict()).to_contain_text("Nothing lost: 500 published, 500 shown, none twice")
        expect(board.tally("published")).to_have_text("500")
        expect(board.tally("shown")).to_have_text("500")
        expect(board.tally("twice")).to_have_text("0")
        expect(board.view.locator("#verdict-status")).to_contain_text("Nothing lost")


def test_a_stalled_tab_shows_everything_afterwards(open_board: OpenBoard) -> None:
    """The tab really stalls: the events published during the stall wait, and are shown late and without a loss."""
    ana = open_board("ana")
    ana.open(f"&stall_s={LONG_STALL_S:g}")
    events = round(40 * LONG_STALL_S)
    ana.view.get_by_role("button", name="Stall this tab for 4 s").click()
    expect(ana.verdict()).to_contain_text(f"Nothing lost: {events} published, {events} shown, none twice")
    expect(ana.diary()).to_contain_text("this tab stalled for")
    expect(ana.view.locator("#pulse .is-stalled")).not_to_have_count(0)
    slowest = ana.tally("slowest").inner_text()
    assert slowest.endswith(" s")
    assert float(slowest.removesuffix(" s")) >= 1.0
    expect(ana.view.get_by_role("button", name="Stall this tab for 4 s")).to_be_focused()


def test_a_stall_delays_nobody_else(open_board: OpenBoard, stallable: BoardPage) -> None:
    """The other user's tab shows the whole burst and stays connected."""
    ben = open_board("ben")
    events = round(40 * STALL_S)
    stallable.view.get_by_role("button", name="Stall this tab for 2 s").click()
    expect(ben.verdict()).to_contain_text(f"Nothing lost: {events} published, {events} shown, none twice")
    expect(ben.diary()).not_to_contain_text("offline")


def test_changes_published_while_offline_wait_and_follow(open_board: OpenBoard, shop: Shop) -> None:
    """The tab says that it is offline and how many events wait; online again it resumes, catches up, and says so."""
    number = shop.create()
    ana = open_board("ana")
    ana.view.get_by_role("button", name="Go offline").click()
    expect(ana.view.locator("#banner")).to_contain_text("Offline on purpose")
    expect(ana.view.locator("#connection")).to_have_text("Offline, on purpose")
    ana.burst(50)
    expect(ana.verdict()).to_contain_text("50 of 50 events wait in the log")
    shop.change(number, carrier="while away")
    assert ana.events(f"orders.{number}.updated") == []
    ana.view.get_by_role("button", name="Go online").click()
    expect(ana.verdict()).to_contain_text("Nothing lost: 50 published, 50 shown, none twice")
    expect(ana.field(number, "carrier")).to_have_value("while away")
    expect(ana.view.locator("#banner")).to_be_hidden()
    expect(ana.view.get_by_role("button", name="Go offline")).to_be_visible()
    for note in ("offline: on purpose", "online again, resumed", "caught up"):
        expect(ana.diary()).to_contain_text(note)
    expect(ana.view.locator("#pulse .is-offline")).not_to_have_count(0)
    expect(ana.figure("missed")).to_have_text("0 in 0")


def test_the_chart_names_the_trouble_and_its_repair(open_board: OpenBoard) -> None:
    """The words stand where it happened: offline, caught up, nothing lost."""
    ana = open_board("ana")
    words = ana.view.locator("#pulse-words span")
    ana.view.get_by_role("button", name="Go offline").click()
    expect(words.get_by_text("offline", exact=True)).to_be_visible()
    ana.burst(50)
    expect(ana.verdict()).to_contain_text("50 of 50 events wait in the log")
    ana.view.get_by_role("button", name="Go online").click()
    for word in ("caught up", "nothing lost"):
        expect(words.get_by_text(word, exact=True)).to_be_visible()


def test_a_tab_that_is_offline_on_purpose_says_so_and_keeps_its_subscriptions(open_board: OpenBoard) -> None:
    """It does not claim to reconnect or to know the bus, and it keeps its subscriptions and resumes them."""
    ana = open_board("ana")
    patterns = sorted(ana.view.locator("#subscriptions li").all_inner_texts())
    assert len(patterns) == len(ana.chosen())
    kept = ana.view.locator("#kept")
    expect(kept).to_be_hidden()
    ana.view.get_by_role("button", name="Go offline").click()
    expect(ana.view.locator("#connection")).to_have_text("Offline, on purpose")
    expect(ana.figure("connection")).to_have_text("Offline, on purpose")
    expect(ana.figure("bus")).to_have_text("unknown")
    expect(kept).to_have_text("Kept, and resumed when you go online:")
    assert sorted(ana.kept().all_inner_texts()) == patterns
    expect(ana.view.locator("#subscriptions")).to_have_accessible_description("Kept, and resumed when you go online:")
    # A choice that is made meanwhile is kept as well.
    ana.way("updated", "toast").check()
    expect(ana.kept()).to_have_count(len(patterns) + 1)
    ana.view.get_by_role("button", name="Go online").click()
    ana.wait_until_live()
    expect(kept).to_be_hidden()
    expect(ana.kept()).to_have_count(0)
    expect(ana.figure("connection")).to_have_text("Live")
    expect(ana.figure("bus")).to_have_text("up")


def test_a_tab_that_is_cut_off_says_that_it_reconnects(open_board: OpenBoard) -> None:
    """The words differ from those of a line that is cut on purpose; the client keeps the subscriptions as well."""
    ana = open_board("ana")
    subscribed = ana.view.locator("#subscriptions li").count()
    ana.page.context.set_offline(True)
    expect(ana.kept()).to_have_count(subscribed)
    expect(ana.view.locator("#kept")).to_have_text("Kept, and resumed with the next connection:")
    expect(ana.view.locator("#connection")).to_have_text(re.compile("Reconnecting…|Connecting…"))
    ana.page.context.set_offline(False)
    ana.wait_until_live()


def test_a_tab_behind_a_line_that_stands_still_catches_up(browser: Browser, start_gateway: StartGateway) -> None:
    """Its queue in the gateway overflows, no other client waits, and it reads the log and shows every event."""
    gateway = start_gateway({"HEADGATE_WRITE_DEADLINE_S": "120", "HEADGATE_PING_TIMEOUT_S": "120"}, "--demo")
    shop = Shop(gateway.url, "ben")
    with (
        ChaosProxy(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as line,
        Publisher(find_private_redis(gateway.folder / "data")) as publisher,
        browser.new_context(viewport=VIEWPORT) as context,
    ):
        ana = BoardPage(context.new_page(), f"http://127.0.0.1:{line.port}", "ana")
        ben = BoardPage(context.new_page(), gateway.url, "ben")
        for board in (ana, ben):
            board.open()
        line.pause()
        for number in range(LARGE_EVENTS):
            publisher.publish("orders.31.updated", {"scans": number, "padding": "x" * LARGE_BYTES})
        shop.burst(50, over_s=0)
        expect(ben.verdict()).to_contain_text("Nothing lost: 50 published, 50 shown, none twice")
        line.heal()
        expect(ana.verdict()).to_contain_text("Nothing lost: 50 published, 50 shown, none twice")
        expect(ana.diary()).to_contain_text("backpressure on in the gateway")
        expect(ana.diary()).not_to_contain_text("offline")
        expect(ana.view.locator("#pulse .is-backpressure")).not_to_have_count(0)
        expect(ana.figure("backpressure")).to_have_text("none")
        expect(ana.figure("received")).to_have_text(str(LARGE_EVENTS + 50))
        expect(ana.figure("missed")).to_have_text("0 in 0")
        assert ana.faults == ben.faults == []


def test_an_offline_tab_stays_offline_until_it_is_asked(open_board: OpenBoard) -> None:
    """The client goes on trying, and none of its attempts gets through."""
    ana = open_board("ana")
    ana.view.get_by_role("button", name="Go offline").click()
    expect(ana.view.locator("#banner")).to_contain_text("Offline on purpose")
    welcomes = [message for message in ana.received if message[0] == "welcome"]
    # The browser says that the network is there: the client tries at once, instead of after its back-off.
    for _ in range(3):
        ana.page.evaluate("dispatchEvent(new Event('online'))")
        expect(ana.view.locator("#connection")).to_have_text("Offline, on purpose")
    assert [message for message in ana.received if message[0] == "welcome"] == welcomes
    ana.view.get_by_role("button", name="Go online").click()
    ana.wait_until_live()


def test_the_chart_says_the_same_in_words_and_in_a_table(stallable: BoardPage) -> None:
    """The chart's name is a sentence, and the table has a row for each second with events."""
    stallable.burst(50)
    expect(stallable.verdict()).to_contain_text("Nothing lost")
    expect(stallable.view.get_by_role("img", name="50 events in the last minute")).to_be_visible()
    stallable.tab_to(stallable.view.locator("#pulse-table summary"))
    stallable.page.keyboard.press("Enter")
    rows = stallable.view.locator("#pulse-rows tr")
    expect(rows).not_to_have_count(0)
    counted = rows.locator("td:nth-of-type(1)").all_inner_texts()
    assert sum(map(int, counted)) == 50


def test_a_board_that_is_not_live_says_why_it_counts_nothing(open_board: OpenBoard) -> None:
    """It is not subscribed, so it neither claims a loss nor waits in silence."""
    ana = open_board("ana")
    ana.choose("live", False)
    ana.burst(50)
    expect(ana.verdict()).to_contain_text("not subscribed")
    expect(ana.tally("published")).to_have_text("50")
    assert ana.events("orders.42.updated") == []


def test_a_second_burst_at_a_time_is_refused_and_told(open_board: OpenBoard, shop: Shop) -> None:
    """A toast names the limit; the running burst goes on and is shown whole."""
    ana, ben = open_board("ana"), open_board("ben")
    shop.burst(40, over_s=LONGEST_BURST_S)
    # The one of which the page hears last is the one that it judges.
    expect(ana.verdict()).to_contain_text("Publishing 40 events")
    ana.burst(50)
    expect(ana.toast("The burst was cut short")).to_contain_text("bursts at a time")
    expect(ana.verdict()).to_contain_text("did not run")
    expect(ben.verdict()).to_contain_text("Nothing lost: 40 published, 40 shown, none twice")


def test_a_burst_whose_record_is_asked_for_before_it_is_there_is_judged_all_the_same(open_board: OpenBoard) -> None:
    """The page asks once a second for the record, and such a question may overtake a slow request to publish."""
    ana = open_board("ana")
    held: list[Route] = []
    ana.page.route("**/demo/burst", lambda route: held.append(route), times=1)
    with ana.page.expect_response("**/demo/burst/*") as early:
        ana.burst(50)
    assert early.value.status == 404
    held[0].continue_()
    expect(ana.verdict()).to_contain_text("Nothing lost: 50 published, 50 shown, none twice")


def test_a_stall_is_never_longer_than_ten_seconds(open_board: OpenBoard) -> None:
    """The address cannot ask for more."""
    ana = open_board("ana")
    for asked in ("0", "600", "x", "-1", "nan"):
        ana.page.goto(f"{ana.url}/?user=ana&stall_s={asked}")
        expect(ana.view.locator("#stall")).to_have_text("Stall this tab for 10 s")


def test_bursts_need_a_token(open_board: OpenBoard) -> None:
    """The server refuses a burst without a token."""
    url = f"{open_board('ana').url}/demo/burst"
    request = urllib.request.Request(url, json.dumps({"events": 500}).encode(), {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 401
