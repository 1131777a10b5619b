"""A connection for a sibling that is gone is left to this worker, and told seldom; counts of workers that have ended stay."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gevent.socket
import msgspec
import pytest
from structlog.testing import capture_logs

from headgate.workers.board import Board, State
from headgate.workers.counted import FILE_NAME, LOCK_NAME, Family, Sample, Totals
from headgate.workers.peer_workers import PeerWorkers, letters_of

RANDOM = "abcdefghij0123456_-Z"


def request(row: int) -> bytes:
    return f"GET /socket.io/?EIO=4&sid={letters_of(row)}{RANDOM} HTTP/1.1\r\n\r\n".encode()


@pytest.fixture
def peer_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerWorkers]:
    """Worker 1 of a gateway whose worker 2 serves, as the board has it, and is behind no door; worker 3 boots."""
    monkeypatch.setattr(socket, "socket", gevent.socket.socket)  # as in a worker, whose process gevent has patched
    board = Board()
    for age in (1, 2, 3):
        board.take(age)
    board.move(0, State.SERVING)
    board.move(1, State.SERVING)
    with tempfile.TemporaryDirectory() as folder:
        made = PeerWorkers(board, Path(folder), 0, dict, lambda *_: None)
        yield made
        made.close()


def test_a_sibling_that_is_gone_is_told_once_however_often_it_is_asked_for(peer_workers: PeerWorkers) -> None:
    """A client may repeat the id of its session."""
    with capture_logs() as logs:
        for _ in range(100):
            assert not peer_workers.hand_over(request(1), 0)
    assert [(each["event"], each["to"]) for each in logs] == [("a connection could not be handed over", 2)]


@pytest.mark.parametrize("row", [0, 2, 999])
def test_nobody_is_asked_for_what_is_no_siblings(peer_workers: PeerWorkers, row: int) -> None:
    """Its own sessions, those of a worker that does not serve, and of no worker."""
    with capture_logs() as logs:
        assert not peer_workers.hand_over(request(row), 0)
        assert not peer_workers.hand_over(b"GET / HTTP/1.1\r\n\r\n", 0)
    assert logs == []


def test_sums_do_not_go_back_while_the_file_of_ended_workers_cannot_be_used(
    peer_workers: PeerWorkers, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk: Prometheus would take that for a restart, and the next scrape for as many new events."""
    ended = Totals(ended=[Family("shop_orders", "counter", "Help.", [Sample("shop_orders_total", {}, 41.0)])])
    (peer_workers._folder / FILE_NAME).write_bytes(msgspec.json.encode(ended))
    assert b"shop_orders_total 41.0" in peer_workers.exposition()[1]
    (peer_workers._folder / LOCK_NAME).unlink()
    (peer_workers._folder / LOCK_NAME).mkdir()
    assert b"shop_orders_total 41.0" in peer_workers.exposition()[1]
    assert "the counts of ended workers are not kept" in capfd.readouterr().err
