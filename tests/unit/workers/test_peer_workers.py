"""The owner in a session id: letters that select a row of the board, and nothing else.

A connection for a departed sibling is left to this worker, and logged seldom; counts of ended workers stay.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gevent.socket
import msgspec
import pytest
from structlog.testing import capture_logs

from headgate.settings.settings import MAX_WORKERS
from headgate.workers.board import Board, State
from headgate.workers.counted import FILE_NAME, LOCK_NAME, Totals
from headgate.workers.peer_workers import PeerWorkers, letters_of, owner_of

RANDOM = "abcdefghij0123456_-Z"


def request(row: int) -> bytes:
    return f"GET /socket.io/?EIO=4&sid={letters_of(row)}{RANDOM} HTTP/1.1\r\n\r\n".encode()


@pytest.fixture
def peer_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerWorkers]:
    """Worker 1 of a gateway with a worker 2 that serves, as the board has it, and is at no door; worker 3 boots."""
    monkeypatch.setattr(socket, "socket", gevent.socket.socket)  # as in a worker, in a process that gevent has patched
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
    """As on a full disk, Prometheus would take that for a restart, and the next scrape for as many new events."""
    ended = Totals(ended=[("shop_orders", "counter", "Help.", [("shop_orders_total", {}, 41.0)])])
    (peer_workers._folder / FILE_NAME).write_bytes(msgspec.json.encode(ended))
    assert b"shop_orders_total 41.0" in peer_workers.exposition()[1]
    (peer_workers._folder / LOCK_NAME).unlink()
    (peer_workers._folder / LOCK_NAME).mkdir()
    assert b"shop_orders_total 41.0" in peer_workers.exposition()[1]
    assert "the counts of ended workers are not kept" in capfd.readouterr().err


def test_every_worker_has_letters_of_its_own_that_lead_back_to_it() -> None:
    """So any sibling finds the owner of a session."""
    rows = range(MAX_WORKERS)
    assert len({letters_of(row) for row in rows}) == MAX_WORKERS
    assert [owner_of(request(row)) for row in rows] == list(rows)


@pytest.mark.parametrize(
    "sid",
    [
        *("", RANDOM, f"zz{RANDOM}", f"AA{RANDOM}x", f"AA{RANDOM[:-1]}", f"A/{RANDOM}", f"AA{RANDOM[:-1]}."),
        *(f"10.0.0AA{RANDOM}", f"AbC-_9AA{RANDOM}", "../../etc/passwd0000000"),
    ],
)
def test_what_is_no_id_of_a_worker_names_none(sid: str) -> None:
    """A path, or a host, is never read out of it."""
    assert owner_of(b"GET /socket.io/?EIO=4&transport=polling&sid=%b HTTP/1.1\r\n\r\n" % sid.encode()) is None


def test_only_the_first_line_counts() -> None:
    """A header or a body may say anything."""
    for end in (b"\r\n", b"\n"):
        assert owner_of(b"GET / HTTP/1.1" + end + b"Referer: /?sid=AA" + RANDOM.encode() + b" \r\n\r\n") is None
