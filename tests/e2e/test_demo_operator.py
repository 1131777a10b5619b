"""The demo's troubles beyond a tab: the gateway restarts, the log loses a second; the page shows it, and misses nothing."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.e2e.board_page import BoardPage
from tests.e2e.conftest import OpenBoard
from tests.e2e.shop import Shop
from tests.support.gateway_process import GatewayProcess

AWAY_EVENTS = 25
LOSE_EVENTS = 60


def click(board: BoardPage, name: str) -> None:
    board.view.get_by_role("button", name=name, exact=True).click()


def offsets(board: BoardPage) -> list[int]:
    """The offsets of the events of bursts that have come in, in order."""
    return [message[3]["offset"] for message in board.received if message[0] == "event" and "burst" in message[2]]


def test_a_restart_of_the_gateway_loses_nothing(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """Events published while it is away come when it is back, at every page, without a reload; the process is a fresh one.

    It has the orders of the one before.
    """
    ana, ben = open_board("ana"), open_board("ben")
    for board in (ana, ben):
        board.page.evaluate("window.stayed = true")
    pid = gateway.pid
    ana.move_button("42", "shipped").click()
    ana.write("41", "note", "kept through a restart")
    expect(ben.field("41", "note")).to_have_value("kept through a restart")
    made = Shop(gateway.url, "ben").create()
    click(ana, "Restart the gateway")
    for board in (ana, ben):
        expect(board.verdict()).to_contain_text(f"Nothing lost: {AWAY_EVENTS} published, {AWAY_EVENTS} shown, none twice")
        expect(board.diary()).to_contain_text("the gateway restarts")
        expect(board.diary()).to_contain_text("offline: connection lost")
        expect(board.diary()).to_contain_text("online again, resumed")
        expect(board.diary()).to_contain_text("caught up")
        expect(board.view.locator("#pulse .is-offline")).not_to_have_count(0)
        assert board.page.evaluate("window.stayed")
        # Neither lost, nor doubled, nor out of order.
        assert offsets(board) == list(range(offsets(board)[0], offsets(board)[0] + AWAY_EVENTS))
        expect(board.card_in("shipped", "42")).to_be_visible()
        expect(board.field("41", "note")).to_have_value("kept through a restart")
        expect(board.toast("The server was restarted")).to_have_count(0)
    fresh = open_board("ana")
    expect(fresh.card_in("shipped", "42")).to_be_visible()
    expect(fresh.card_in("new", made)).to_be_visible()
    expect(ana.view.get_by_role("button", name="Restart the gateway", exact=True)).to_be_enabled()
    assert len(re.findall("headgate: ready at", gateway.output)) == 2
    assert gateway.pid == pid
    assert "restarting" in gateway.output


def test_what_the_log_loses_is_told_and_taken_back(open_board: OpenBoard) -> None:
    """Each page that has shown lost events is told of each of them, draws it, and follows what comes in their place."""
    ana, ben = open_board("ana"), open_board("ben")
    click(ana, "Lose a second of the log")
    for board in (ana, ben):
        expect(board.verdict()).to_have_attribute("data-outcome", "whole")
        expect(board.verdict()).to_contain_text("Nothing lost in silence: Redis lost its newest")
        expect(board.diary()).to_contain_text("Redis has lost them")
        expect(board.view.locator("#pulse .taken-back")).not_to_have_count(0)
    expect(ana.diary()).to_contain_text("Redis went back a second")
    said = re.search(r"(\d+) events lost \((\d+) to (\d+)\)", ana.diary().inner_text())
    assert said is not None
    count, first, last = map(int, said.groups())
    assert 0 < count < LOSE_EVENTS
    for board in (ana, ben):
        shown = offsets(board)
        gaps = [message[1] for message in board.received if message[0] == "gap"]
        # What was shown and is no more is what the page was told, to the event: nothing unreported, no ghost.
        assert [(gap["reason"], gap["from"], gap["to"]) for gap in gaps] == [("rolled_back", first, last)]
        assert [offset for offset in shown if offset >= first] == list(range(first, last + 1))
    ana.burst(50)
    for board in (ana, ben):
        expect(board.verdict()).to_contain_text("Nothing lost: 50 published, 50 shown, none twice")
        assert offsets(board)[-50:] == list(range(first, first + 50))
