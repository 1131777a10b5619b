"""A wait that begins awake: where it pays, and that it costs little where it does not."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from random import Random

import gevent.socket
import pytest
import redis

from headgate.redis import round_trip
from headgate.redis.brief_wait import AWAKE_S, MOST_CREDIT, PRICE, REST_CALLS, TRANSITIONS, BriefWait, Outcome, UnderWay, Waiting
from headgate.redis.round_trip import _ask_awake, _is_of_this_thread


def live(wait: BriefWait, outcomes: Iterable[bool]) -> tuple[int, int, int]:
    """Make a call for each outcome that a wait awake would have; return how many were awake, in time and late."""
    awake = in_time = late = 0
    for outcome in outcomes:
        if wait.begins_awake():
            awake += 1
            in_time += outcome
            late += not outcome
            wait.ended(in_time=outcome)
    return awake, in_time, late


def test_waits_are_awake_as_long_as_answers_come_in_time() -> None:
    """From the first on."""
    assert live(BriefWait(), repeat(True, 1000)) == (1000, 1000, 0)


def test_a_server_that_always_answers_late_costs_one_try_of_many() -> None:
    """A network takes longer than a wait is awake."""
    awake, _, late = live(BriefWait(), repeat(False, 100 * REST_CALLS))
    assert awake == late <= 101


def test_a_server_that_is_fast_again_is_noticed() -> None:
    """One call of so many tries."""
    wait = BriefWait()
    live(wait, repeat(False, 1000))
    awake, _, _ = live(wait, repeat(True, 1000))
    assert awake >= 1000 - REST_CALLS


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.7])
def test_where_answers_are_often_late_few_waits_are_awake(share: float) -> None:
    """Less than PRICE answers in time for each late one do not pay."""
    draw = Random(7).random
    awake, _, _ = live(BriefWait(), [draw() < share for _ in range(50_000)])
    assert awake < 50_000 * 0.05


def test_late_waits_are_bounded_by_answers_in_time_and_by_calls() -> None:
    """Whatever the order: a late one costs credit that had to be earned, or is a try."""
    for seed in range(50):
        random = Random(seed)
        wait, calls, in_time, late = BriefWait(), 0, 0, 0
        for _ in range(200):
            outcomes = [random.random() < random.random()] * random.randint(1, 300)
            _, good, bad = live(wait, outcomes)
            calls, in_time, late = calls + len(outcomes), in_time + good, late + bad
            assert late <= 2 + in_time / PRICE + calls / REST_CALLS + MOST_CREDIT / PRICE


def test_every_step_is_in_the_table() -> None:
    """States and outcomes by name; any other pair is a step that another thread has taken."""
    assert {state for state, _ in TRANSITIONS} == {*Waiting} == {*TRANSITIONS.values()}
    assert {outcome for _, outcome in TRANSITIONS} == {*Outcome}


def test_one_of_several_threads_is_not_alone() -> None:
    """And is again when the others have ended; a forked child has none of them."""
    under_way = UnderWay()
    with under_way:
        assert under_way.is_alone
        with under_way:
            assert not under_way.is_alone
        assert under_way.is_alone
        with under_way:
            under_way.forget()
            assert under_way.is_alone
            with under_way:
                pass


# On a socket -------------------------------------------------------------------------------------------------------------


class Socket:
    """A socket that sends as many bytes as it has room for, and gives what the script says; None: nothing has come."""

    def __init__(self, script: Iterable[bytes | None], room: int = 1 << 20) -> None:
        self._script: Iterator[bytes | None] = iter(script)
        self._room = room
        self.timeout_s: float | None = 5.0
        self.sent = b""

    def gettimeout(self) -> float | None:
        return self.timeout_s

    def settimeout(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s

    def send(self, data: bytes) -> int:
        assert self.timeout_s == 0.0, "it would wait"
        if not self._room:
            raise BlockingIOError
        self.sent += data[: self._room]
        return min(len(data), self._room)

    def sendall(self, data: bytes) -> None:
        assert self.timeout_s == 5.0, "it would not wait"
        self.sent += data

    def recv(self, size: int) -> bytes:
        assert self.timeout_s == 0.0, "it would wait"
        found = next(self._script)
        if found is None:
            raise BlockingIOError
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that moves by a microsecond at each look."""
    now_s = [0.0]

    def look() -> float:
        now_s[0] += 1e-6
        return now_s[0]

    monkeypatch.setattr(round_trip, "perf_counter", look)
    return now_s


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("looks", [0, 1, 50])
def test_an_answer_that_comes_meanwhile_is_taken_without_sleep(looks: int) -> None:
    """The socket's timeout is what it was."""
    sock, wait = Socket([*repeat(None, looks), b":1\r\n"]), BriefWait()
    assert _ask_awake(sock, b"ask", wait) == b":1\r\n"  # type: ignore[arg-type]
    assert (sock.sent, sock.timeout_s, wait._credit) == (b"ask", 5.0, PRICE + 1)


def test_it_is_awake_for_so_long_and_no_longer(clock: list[float]) -> None:
    """Then the caller sleeps, as without it."""
    sock, wait = Socket(repeat(None)), BriefWait()
    assert _ask_awake(sock, b"ask", wait) is None  # type: ignore[arg-type]
    assert (sock.timeout_s, wait.state) == (5.0, Waiting.ASLEEP)
    assert AWAKE_S <= clock[0] <= AWAKE_S + 5e-6


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_command_that_the_socket_does_not_take_at_once_is_sent_as_ever(room: int) -> None:
    """With the timeout; nothing is sent twice."""
    sock = Socket([], room)
    assert _ask_awake(sock, b"ask", BriefWait()) is None  # type: ignore[arg-type]
    assert sock.sent == b"ask"


@pytest.mark.usefixtures("clock")
def test_it_goes_to_sleep_when_another_thread_begins_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """That one could send meanwhile."""
    under_way = UnderWay()
    monkeypatch.setattr(round_trip, "_under_way", under_way)

    def script() -> Iterator[None]:
        yield None
        under_way.__enter__()
        yield None
        pytest.fail("it goes on")

    with under_way:
        assert _ask_awake(Socket(script()), b"ask", BriefWait()) is None  # type: ignore[arg-type]


@pytest.mark.usefixtures("clock")
def test_the_end_of_the_stream_is_an_answer() -> None:
    """Which the caller raises."""
    sock = Socket(chain([None], [b""]))
    answer = _ask_awake(sock, b"ask", BriefWait())  # type: ignore[arg-type]
    assert answer == b""
    with pytest.raises(redis.ConnectionError):
        round_trip._receive(sock, 1, answer)  # type: ignore[arg-type]


def test_a_broken_socket_keeps_its_timeout() -> None:
    """redis-py closes it."""
    sock = Socket([])
    sock.send = lambda data: (_ for _ in ()).throw(BrokenPipeError())  # type: ignore[method-assign]
    with pytest.raises(BrokenPipeError):
        _ask_awake(sock, b"ask", BriefWait())  # type: ignore[arg-type]
    assert sock.timeout_s == 5.0


def test_no_greenlet_waits_awake() -> None:
    """It would hold up all others; where gevent has replaced sockets, they are of its own class."""
    import socket

    theirs, ours = gevent.socket.socket(), socket.socket()
    assert not _is_of_this_thread(theirs)
    assert _is_of_this_thread(ours) == (socket.socket is not gevent.socket.socket)
    theirs.close()
    ours.close()


def test_threads_count_their_round_trips_exactly() -> None:
    """A count that drifted would end, or begin, all waits awake."""
    under_way = UnderWay()

    def go() -> None:
        for _ in range(2000):
            with under_way:
                pass

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert under_way._count == 0
