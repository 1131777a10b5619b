"""A socket taken away from the HTTP server, and one of a watched poll: over socket pairs, in one process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import gevent.event
import gevent.socket
import pytest

from headgate.transport.detach import CannotDetach, PollWatch, detach
from headgate.transport.http_server import HTTPServer
from tests.support.http_peer import serve_on
from tests.support.session_clock import turn, until

REQUEST = b"GET /socket HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class Served:
    """One connection and its peer; `application` is called in the request."""

    def __init__(self, application: Callable[[dict[str, Any], Any], object]) -> None:
        ours, self.peer = gevent.socket.socketpair()

        def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            application(environ, start_response)
            return []

        self.greenlet = serve_on(HTTPServer(("127.0.0.1", 0), answer), ours)

    def send(self, data: bytes) -> None:
        """Let the peer send, and the server do all that it can do now."""
        self.peer.sendall(data)
        turn()

    def close(self) -> None:
        self.peer.close()
        self.greenlet.kill()


Serve = Callable[[Callable[[dict[str, Any], Any], object]], Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as ending:
        yield lambda application: ending.enter_context(closing(Served(application)))


@pytest.mark.parametrize(
    ("environ", "why"),
    [({}, "^$"), ({"wsgi.websocket": object()}, "leave its handler_class out")],
    ids=["any", "gevent-websocket"],
)
def test_a_socket_of_another_server_cannot_be_taken_away(environ: dict[str, Any], why: str) -> None:
    """A gateway needs more of a server, to drain, and to share a port. The caller learns the alternative."""
    with pytest.raises(CannotDetach, match=why):
        detach(environ, b"")


def test_a_client_that_is_gone_is_an_error(serve: Serve) -> None:
    """Its connection stays with the HTTP server, which closes it."""
    failures: list[object] = []

    def application(environ: dict[str, Any], start_response: Any) -> None:
        served.peer.close()
        with pytest.raises(OSError, match=r".") as failure:
            detach(environ, b"x" * 100_000)
        failures.append(failure)

    served = serve(application)
    served.send(REQUEST)

    assert len(failures) == 1
    until(lambda: served.greenlet.dead)


class TestPollWatch:
    """The end of a poll that waits for frames."""

    @pytest.fixture
    def watched(self, serve: Serve) -> Iterator[tuple[Served, PollWatch, list[str]]]:
        """A poll that waits, and is woken at most once."""
        watches: list[PollWatch] = []
        woken: list[str] = []

        def application(environ: dict[str, Any], start_response: Any) -> None:
            watches.append(PollWatch(environ["headgate.handler"]))
            watches[0].start(lambda: woken.append("woken"))
            gevent.event.Event().wait()

        served = serve(application)
        served.send(b"GET /poll HTTP/1.1\r\nHost: test\r\n\r\n")
        yield served, watches[0], woken
        watches[0].stop()

    @pytest.mark.parametrize("stops", [False, True])
    def test_a_poll_that_the_browser_gives_up_is_told(self, watched: tuple[Served, PollWatch, list[str]], stops: bool) -> None:
        """Once; not by a watch that was stopped, where twice is as good as once."""
        served, watch, woken = watched
        assert not watch.aborted
        for _ in range(2 if stops else 0):
            watch.stop()
        served.peer.close()
        turn()

        assert (watch.aborted, woken) == ((False, []) if stops else (True, ["woken"]))

    def test_a_request_behind_a_poll_is_no_end_of_it(self, watched: tuple[Served, PollWatch, list[str]]) -> None:
        """It waits its turn, and its bytes stay where they are."""
        served, watch, woken = watched
        served.send(b"GET /next HTTP/1.1\r\nHost: test\r\n\r\n")

        assert (watch.aborted, woken) == (False, [])

    def test_a_poll_that_was_given_up_before_it_was_watched_is_told_at_once(self, serve: Serve) -> None:
        """Between the request and the first look."""
        told: list[bool] = []

        def application(environ: dict[str, Any], start_response: Any) -> None:
            served.peer.close()
            watch = PollWatch(environ["headgate.handler"])
            watch.start(lambda: told.append(watch.aborted))

        served = serve(application)
        served.send(b"GET /poll HTTP/1.1\r\nHost: test\r\n\r\n")

        assert told == [True]

    def test_under_another_server_nothing_is_watched(self) -> None:
        """Its socket cannot be seen, so the poll waits as long as it may."""
        watch = PollWatch(None)
        watch.start(lambda: pytest.fail("woken"))
        watch.stop()

        assert not watch.aborted
