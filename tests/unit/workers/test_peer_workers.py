"""The workers of one port: the owner in a session id, a connection for a sibling, their counts, and the health of all."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import msgspec
import pytest
from structlog.testing import capture_logs

from headgate.settings.settings import MAX_WORKERS
from headgate.workers.all_health import joined
from headgate.workers.counted import FILE_NAME, LOCK_NAME, Totals
from headgate.workers.peer_workers import PeerWorkers, letters_of, owner_of
from headgate.workers.scoreboard import Row, Scoreboard, State
from headgate.workers.worker_sockets import WorkerSocket

RANDOM = "abcdefghij0123456_-Z"


def request(row: int) -> bytes:
    return f"GET /socket.io/?EIO=4&sid={letters_of(row)}{RANDOM} HTTP/1.1\r\nHost: test\r\n\r\n".encode()


@pytest.fixture
def peer_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerWorkers]:
    """Worker 1 of a gateway with a worker 2 that serves, as the scoreboard has it, and is at no door; worker 3 boots."""
    monkeypatch.setattr(socket, "socket", gevent.socket.socket)  # as in a worker, in a process that gevent has patched
    scoreboard = Scoreboard()
    for age in (1, 2, 3):
        scoreboard.take(age)
    scoreboard.move(0, State.SERVING)
    scoreboard.move(1, State.SERVING)
    with tempfile.TemporaryDirectory() as folder:
        made = PeerWorkers(scoreboard, Path(folder), 0, dict, lambda *_: None)
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
        assert not peer_workers.hand_over(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", 0)
    assert logs == []


@pytest.mark.parametrize("states", [(), (State.DRAINING,), (State.DRAINING, State.ALONE)])
def test_a_worker_keeps_its_sessions_until_it_has_left(peer_workers: PeerWorkers, states: tuple[State, ...]) -> None:
    """While it drains, a poll brings the answer of a function, or the notice to move, also in the last worker of all."""
    scoreboard = peer_workers._scoreboard
    for state in states:
        scoreboard.move(1, state)
    taken: list[bytes] = []

    def adopt(descriptor: int, received: bytes) -> None:
        os.close(descriptor)
        taken.append(received)

    owner = WorkerSocket(peer_workers._path(scoreboard.row(1)), lambda _: b"", adopt)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_workers.hand_over(request(1), ours.fileno())
        gevent.sleep(0)
    owner.close()
    assert taken == [request(1)]


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
    assert owner_of(b"GET /socket.io/?EIO=4&transport=polling&sid=%b HTTP/1.1\r\nHost: test\r\n\r\n" % sid.encode()) is None


def test_only_the_first_line_counts() -> None:
    """A header or a body may say anything."""
    for end in (b"\r\n", b"\n"):
        assert owner_of(b"GET / HTTP/1.1" + end + b"Referer: /?sid=AA" + RANDOM.encode() + b" \r\n\r\n") is None


UP = {"ready": True, "bus": "up", "revocations": True}


def row(number: int, state: State = State.SERVING) -> Row:
    return Row(number - 1, state, age=number, process_id=100 + number, connections=0)


def answer(clients: int = 1, offset: int = 5, **changed: Any) -> dict[str, Any]:
    bus = changed.get("bus", "up")
    namespaces = {"n": {"bus": bus, "epoch": "e", "offset": offset, "clients": clients}}
    return {**UP, "namespaces": namespaces, **changed}


def test_all_that_serve_are_well() -> None:
    """Their clients are counted together, and the lowest offset is reported."""
    report = joined([row(1), row(2)], {1: answer(2, offset=9), 2: answer(3, offset=7)})
    assert (report["ready"], report["bus"], report["revocations"]) == (True, "up", True)
    assert report["namespaces"] == {"n": {"bus": "up", "epoch": "e", "offset": 7, "clients": 5}}
    assert [(each["worker"], each["process"], each["state"], each["ready"]) for each in report["workers"]] == [
        (1, 101, "serving", True),
        (2, 102, "serving", True),
    ]


@pytest.mark.parametrize(("bad", "bus"), [(answer(bus="down", ready=False), "down"), (answer(ready=False), "up"), (None, "up")])
def test_one_that_serves_and_is_not_well_is_enough(bad: dict[str, Any] | None, bus: str) -> None:
    """A silent one as well, because its connections are stuck in it."""
    report = joined([row(1), row(2)], {1: answer(), 2: bad})
    assert (report["ready"], report["bus"]) == (False, bus)
    assert [each["ready"] for each in report["workers"]] == [True, False]
    assert ("error" in report["workers"][1]) == (bad is None)


@pytest.mark.parametrize("state", [State.BOOTING, State.DRAINING, State.ALONE])
def test_one_that_begins_or_leaves_is_named_and_does_not_count(state: State) -> None:
    """The others serve in the meantime."""
    report = joined([row(1), row(2, state)], {1: answer(), 2: answer(ready=False)})
    assert report["ready"]
    assert report["workers"][1] == {"worker": 2, "process": 102, "state": state.name.lower()}


def test_the_worst_admission_is_told_and_every_pause() -> None:
    """Each worker has separate room, and may learn of a pause a second before another."""
    answers = {1: answer(admission="admitting", paused=["connects"]), 2: answer(admission="shedding", paused=["namespace n"])}
    report = joined([row(1), row(2)], answers)
    assert (report["admission"], report["paused"]) == ("shedding", ["connects", "namespace n"])
    assert [each["admission"] for each in report["workers"]] == ["admitting", "shedding"]


def test_nobody_serves() -> None:
    report = joined([row(1, State.BOOTING)], {})
    assert (report["ready"], report["bus"]) == (False, "down")


def test_the_reason_for_unknown_revocations_is_told() -> None:
    report = joined([row(1), row(2)], {1: answer(), 2: answer(revocations=False, revocations_error="why")})
    assert (report["revocations"], report["revocations_error"]) == (False, "why")
