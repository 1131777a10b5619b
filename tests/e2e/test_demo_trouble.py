"""Trouble on purpose: each is real, every published event is shown or reported, and the verdict says so by counts."""

import re
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import VIEWPORT, OpenBoard
from tests.e2e.shop import Shop
from tests.fault.chaos_proxy import ChaosProxy
from tests.support.gateway_process import GatewayProcess, StartGateway

SHORT = "&stall_s=2"
# Longer than a slow machine takes from the first event of a stall to the stall itself.
LONG_STALL_S = 4
CUT_EVENTS, AWAY_EVENTS, LOSE_EVENTS = 50, 25, 60
# Far more than a client queue (1 MiB) and the kernel's buffers on the way through a proxy (0.7 MB) hold.
LARGE_EVENTS = 300
LARGE_BYTES = 8_000


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """The demo, with patience for a line that stands still."""
    return start_module_gateway({"HEADGATE_WRITE_DEADLINE_S": "120", "HEADGATE_PING_TIMEOUT_S": "120"}, "--demo")


def bursts(board: BoardPage) -> list[list[Any]]:
    """The events of bursts that have come in."""
    return [message for message in board.received if message[0] == "event" and "burst" in str(message[2])]


def offsets(board: BoardPage) -> list[int]:
    """The offsets of the events of bursts that have come in, in order."""
    return list(dict.fromkeys(message[3]["offset"] for message in bursts(board)))


def numbers(board: BoardPage) -> list[int]:
    """The numbers of the events of bursts that have come in, in order."""
    return list({message[3]["id"]: message[2]["burst"]["number"] for message in bursts(board)}.values())


def drawn(board: BoardPage, lane: str) -> Locator:
    """The events that the strip has drawn in a lane."""
    return board.page.locator(f'[data-lane="{lane}"] path[d^="M"]')


def run(board: BoardPage, name: str) -> str:
    """Make a trouble, and return its verdict."""
    board.trouble(name).click()
    expect(board.trouble(name)).to_have_attribute("data-outcome", re.compile("whole|short"))
    assert board.trouble(name).get_attribute("data-outcome") == "whole", board.trouble(name).inner_text()
    return board.trouble(name).locator(".says").inner_text()


@pytest.mark.nightly
def test_a_flood_is_shown_whole_on_every_board(open_board: OpenBoard) -> None:
    """Five hundred numbered events come once each and in order, here and at another person's, and the strip shows them."""
    ana, ben = open_board("ana"), open_board("ben")
    assert run(ana, "flood").startswith("500 published, 500 shown, none twice, in ")
    for board in (ana, ben):
        expect(board.count("sent")).to_have_text("500")
        expect(board.count("shown")).to_have_text("500")
        assert numbers(board) == list(range(1, 501))
        for lane in ("sent", "shown"):
            expect(drawn(board, lane)).to_have_count(1)
        expect(drawn(board, "gap")).to_have_count(0)
    expect(ana.page.get_by_role("status").filter(has_text="500 published")).to_have_count(1)


@pytest.mark.nightly
def test_a_cut_line_is_said_and_repaired(open_board: OpenBoard, shop: Shop) -> None:
    """It stays cut whatever the client tries. Then the page resumes, and counts its repaired events; others notice nothing."""
    ana, ben = open_board("ana", SHORT), open_board("ben")
    ana.trouble("cut").click()
    expect(ana.pill()).to_have_text("Cut on purpose")
    # The browser says that the network is there, so the client tries at once, instead of after its back-off.
    ana.page.evaluate("dispatchEvent(new Event('online'))")
    shop.move("42", "failed")
    expect(ben.card_in("failed", "42")).to_be_visible()
    assert ana.events("orders.42.failed") == []
    expect(ana.trouble("cut")).to_have_attribute("data-outcome", "whole")
    said = ana.trouble("cut").locator(".says").inner_text()
    assert re.fullmatch(rf"Ana missed {CUT_EVENTS}, repaired {CUT_EVENTS} in \d+ ms, none twice.", said), said
    ana.wait_until_live()
    expect(ana.card_in("failed", "42")).to_be_visible()
    for lane in ("gap", "repair"):
        expect(drawn(ana, lane)).to_have_count(1)
    expect(ana.count("gap")).to_have_text("1")
    expect(ben.count("gap")).to_have_text("0")


@pytest.mark.nightly
def test_a_stalled_tab_shows_everything_afterwards_and_delays_nobody(open_board: OpenBoard) -> None:
    """The tab really stalls. The events wait in it, while the other person's board shows them."""
    ana, ben = open_board("ana", f"&stall_s={LONG_STALL_S}"), open_board("ben")
    said = re.fullmatch(r"(\d+) of (\d+) waited, all shown .* after the stall, none twice.", run(ana, "stall"))
    assert said is not None
    assert 40 <= int(said[1]) <= int(said[2]) == 40 * LONG_STALL_S
    expect(ben.count("shown")).to_have_text(said[2])
    expect(ben.count("gap")).to_have_text("0")
    expect(ana.trouble("stall")).to_be_focused()


@pytest.mark.nightly
def test_a_restart_of_the_gateway_loses_nothing(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """Events published during the restart come when it is back, at every page, without a reload; the process is a fresh one."""
    ana, ben = open_board("ana"), open_board("ben")
    pid = gateway.pid
    for board in (ana, ben):
        board.page.evaluate("window.stayed = true")
    ana.button("Fail order 41").click()
    made = Shop(gateway.url, "ben").create()
    assert run(ana, "restart").startswith(f"{AWAY_EVENTS} published with no browser connected, {AWAY_EVENTS} repaired in ")
    for board in (ana, ben):
        board.wait_until_live()
        expect(board.count("repair")).to_have_text(re.compile(r"2\d"))
        assert board.page.evaluate("window.stayed")
        assert numbers(board)[-AWAY_EVENTS:] == list(range(1, AWAY_EVENTS + 1))
        expect(board.card_in("failed", "41")).to_be_visible()
    expect(open_board("ana").card_in("new", made)).to_be_visible()
    assert len(re.findall("headgate: ready at", gateway.output)) == 2
    assert gateway.pid == pid


@pytest.mark.nightly
def test_what_the_log_loses_is_told_and_taken_back(open_board: OpenBoard) -> None:
    """Each page that has shown lost events is notified of each of them, draws it, and follows what comes in their place."""
    ana, ben = open_board("ana"), open_board("ben")
    said = re.fullmatch(r"Redis lost (\d+) events. (\d+) rolled back, none in silence.", run(ana, "lose"))
    assert said is not None
    count = int(said[1])
    assert 0 < count == int(said[2]) < LOSE_EVENTS
    for board in (ana, ben):
        expect(board.count("rolled")).to_have_text(str(count))
        expect(drawn(board, "rolled")).to_have_count(1)
        gaps = [message[1] for message in board.received if message[0] == "gap"]
        ((reason, first, last),) = {(gap["reason"], gap["from"], gap["to"]) for gap in gaps}
        # The events that the page showed and lost are exactly the reported ones, with nothing unreported, and no ghost.
        assert (reason, last - first + 1) == ("rolled_back", count)
        assert [each for each in offsets(board) if each >= first] == list(range(first, last + 1))
    assert run(ana, "flood").startswith("500 published, 500 shown")


def test_all_troubles_run_one_after_another(browser: Browser, gateway: GatewayProcess) -> None:
    """On the page of both, by one button; each ends whole, and no mark of the strip covers another."""
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        page.goto(f"{gateway.url}/?stall_s=2")
        for pane in (0, 1):
            BoardPage(page, gateway.url, "ana", pane, listen=False).wait_until_live()
        page.get_by_role("button", name="Break it for me").click()
        expect(page.locator('.trouble[data-outcome="whole"]')).to_have_count(5, timeout=60_000)
        assert page.locator('.trouble[data-outcome="short"], .notice').count() == 0
        marks = page.locator("#marks li")
        expect(marks).not_to_have_count(0)
        edges = marks.evaluate_all("each => each.map(mark => mark.getBoundingClientRect()).map(({left, right}) => [left, right])")
        assert all(right <= left for (_, right), (left, _) in pairwise(edges))
        assert re.fullmatch(r"Ana 2 · Ben 1", page.locator('[data-lane="gap"] .lane-count').inner_text())


@pytest.mark.nightly
def test_a_tab_behind_a_line_that_stands_still_catches_up(browser: Browser, gateway: GatewayProcess, shop: Shop) -> None:
    """Its queue in the gateway overflows, no other client waits, and it reads the log and shows every event."""
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
        expect(ben.count("shown")).to_have_text(str(LARGE_EVENTS + 50))
        line.heal()
        expect(ana.count("shown")).to_have_text(str(LARGE_EVENTS + 50))
        expect(ana.count("gap")).to_have_text("0")
        assert numbers(ana) == list(range(1, 51))
        assert ana.faults == ben.faults == []
