"""The health page against clients that dawdle, over real sockets."""

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.consumers.process import health_page
from headgate.consumers.process.health_page import MAX_CONNECTIONS, REQUEST_DEADLINE_S, HealthPage
from tests.support.redis_server import wait_until

WELL = {"ready": True, "consumers": {}}
StartPage = Callable[[Mapping[str, Any]], HealthPage]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages look for connections with an elapsed time as soon as the test has moved the clock."""
    monkeypatch.setattr(health_page, "POLL_S", 0.01)


@pytest.fixture
def start_page() -> Iterator[StartPage]:
    """Start pages that end with the test."""
    with ExitStack() as started:
        yield lambda state: started.enter_context(closing(HealthPage(("127.0.0.1", 0), lambda: state)))


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The page's clock, which stands still, however slow the machine is, but for the test's additions."""
    now_s = [1000.0]
    monkeypatch.setattr(health_page, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s


def connect(page: HealthPage, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", page.port), timeout=30)
    client.sendall(sent)
    return client


def status(page: HealthPage) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/healthz", timeout=30) as response:
        return int(response.status)


def serving() -> set[threading.Thread]:
    """The threads of this process that serve a request."""
    return {thread for thread in threading.enumerate() if "process_request_thread" in thread.name}


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_no_cache_keeps_its_answers(start_page: StartPage, path: str) -> None:
    """They are about now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{start_page(WELL).port}{path}", timeout=30) as response:
        assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.usefixtures("now_s")
@pytest.mark.parametrize("clients", [1, MAX_CONNECTIONS - 1, MAX_CONNECTIONS, 3 * MAX_CONNECTIONS])
def test_a_probe_is_answered_though_others_dawdle(start_page: StartPage, clients: int) -> None:
    """Also when there are more of them than may be connected."""
    others = serving()
    page = start_page(WELL)
    with ExitStack() as dawdling:
        for _ in range(clients):
            dawdling.enter_context(connect(page, b"GET /healthz HTT"))

        assert [status(page) for _ in range(3)] == [200, 200, 200]
        wait_until(lambda: len(serving() - others) <= MAX_CONNECTIONS, "those that were cut are gone")


def test_a_request_that_comes_a_byte_at_a_time_is_cut(start_page: StartPage, now_s: list[float]) -> None:
    """A deadline for the whole of it, not for each byte."""
    with connect(start_page(WELL), b"GET /healthz HTTP/1.0\r\nx: ") as client:
        client.settimeout(0.05)

        def is_cut() -> bool:
            now_s[0] += REQUEST_DEADLINE_S / 10
            try:
                client.sendall(b"x")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_cut, "the connection is cut")


def test_a_client_that_does_not_read_its_answer_is_cut(now_s: list[float]) -> None:
    """And its thread ends."""
    threads: list[threading.Thread] = []

    def states() -> Mapping[str, Any]:
        threads.append(threading.current_thread())
        return {**WELL, "much": "x" * 50_000_000}

    with closing(HealthPage(("127.0.0.1", 0), states)) as page, connect(page, b"GET /healthz HTTP/1.0\r\n\r\n") as client:
        client.recv(1)
        [thread] = threads
        assert thread.is_alive()

        now_s[0] += REQUEST_DEADLINE_S

        wait_until(lambda: not thread.is_alive(), "its thread has ended")


def test_a_page_that_is_closed_disconnects_its_clients(start_page: StartPage) -> None:
    """Its end waits for none of them."""
    page = start_page(WELL)
    with connect(page, b"GET ") as client:
        assert status(page) == 200  # so it has been accepted
        page.close()

        assert client.recv(1) == b""
