"""The fetching of an issuer's keys, with fetches that the test scripts, on a test clock."""

from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.auth import jwks as module
from headgate.auth.jwks import AGAIN_S, FIRST_RETRY_S, KEPT_S, LAST_RETRY_S, MAX_ASKED, MAX_BYTES, REFRESH_S, Jwks, fetch
from headgate.auth.keys import MAX_KEY_ID_CHARACTERS
from tests.support.http_receiver import Receiver, say, status
from tests.support.token_keys import ED_KEY, RSA_KEY, jwks

URL = "https://login.example.com/jwks.json"
DEADLINE_S = 30.0
Step = Callable[[], bytes]


def fail(error: Exception) -> Step:
    def step() -> bytes:
        raise error

    return step


class Issuer:
    """Answers each fetch with the next step of a script, and ends the fetching when there is none. Records every wait."""

    def __init__(self, *script: Step | bytes) -> None:
        self._script = list(script)
        self.now_s = 1000.0
        self.asked: list[str] = []
        self.waits: list[float] = []
        self.active: list[list[str]] = []
        self.jwks = Jwks(URL, self._take, get=self._answer, now_s=lambda: self.now_s, wait=self._wait)

    def run(self) -> list[Any]:
        """Run the script to its end; return the lines of the log."""
        with capture_logs() as lines:
            self.jwks.start()
            greenlet = self.jwks._greenlet
            self.jwks.start()
            assert self.jwks._greenlet is greenlet
            assert greenlet is not None
            greenlet.join(DEADLINE_S)
        assert not self._script
        return lines

    def _take(self, taken: list[Any]) -> None:
        self.active.append([key.key_id for key in taken])

    def _answer(self, url: str) -> bytes:
        self.asked.append(url)
        step = self._script.pop(0)
        if not self._script:
            self.jwks.close()
        else:
            self.jwks.refresh()  # so that no wait for a refresh is a real one
        return step if isinstance(step, bytes) else step()

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


def test_each_set_replaces_the_one_before_and_comes_from_the_configured_address() -> None:
    """The first is in the log; between two requested fetches lies AGAIN_S."""
    issuer = Issuer(jwks(a=RSA_KEY), jwks(b=ED_KEY), jwks(b=ED_KEY))
    lines = issuer.run()
    assert issuer.active == [["a"], ["b"], ["b"]]
    assert set(issuer.asked) == {URL}
    assert issuer.waits == [AGAIN_S, AGAIN_S]
    assert [(line["event"], line["keys"]) for line in lines] == [("token keys fetched", 1)]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (b"<html>", "not JSON"),
        (b'{"keys": [{"kty": "oct", "kid": "s", "k": "AAAA"}]}', "no public key"),
        (fail(ValueError("the answer is 500, expected 200")), "the answer is 500"),
        (fail(OSError("Connection refused")), "Connection refused"),
        (fail(TimeoutError()), "TimeoutError"),
        (fail(OSError("x" * 1000)), "x" * 200),
    ],
)
def test_an_issuer_that_answers_wrongly_is_asked_again(broken: Step | bytes, told: str) -> None:
    """The log says why, in a bounded line; the key is taken when it comes, and asking brings no fetch sooner."""
    issuer = Issuer(broken, jwks(a=RSA_KEY))
    (failed, fetched) = issuer.run()
    assert failed["event"] == "token keys could not be fetched"
    assert told in failed["error"]
    assert len(failed["error"]) <= 200
    assert failed["state"] == "no set of keys yet"
    assert fetched["event"] == "token keys fetched"
    assert issuer.active == [["a"]]
    assert FIRST_RETRY_S / 2 <= issuer.waits[0] <= FIRST_RETRY_S


def test_while_the_issuer_is_away_the_known_keys_stay_active_and_after_a_day_they_are_dropped() -> None:
    """The issuer's trouble is not ours, until it is unknown whether a key was withdrawn."""
    issuer = Issuer(jwks(a=RSA_KEY), fail(OSError("away")), fail(OSError("away")), jwks(a=RSA_KEY))

    def pass_a_day() -> bytes:
        assert issuer.active == [["a"]]
        issuer.now_s += KEPT_S
        raise OSError("away")

    issuer._script[2] = pass_a_day
    lines = issuer.run()
    assert issuer.active == [["a"], [], ["a"]]
    assert [line.get("state") for line in lines] == [
        None,
        "the last fetch failed; an older set is active",
        "no set of keys yet",
        None,
    ]


def test_an_unknown_key_asks_for_a_fetch_and_is_absent_when_that_has_come_back_without_it() -> None:
    """For a while, as the issuer may publish it later. A key id that no set can hold asks for no fetch."""
    issuer = Issuer(jwks(a=RSA_KEY))
    assert not issuer.jwks.may_bring("k" * (MAX_KEY_ID_CHARACTERS + 1))
    assert not issuer.jwks._wanted.is_set()
    assert issuer.jwks.may_bring("other")
    assert issuer.jwks._wanted.is_set()
    issuer.run()
    issuer.now_s += AGAIN_S - 0.1
    assert not issuer.jwks.may_bring("other")
    issuer.now_s += 0.1
    assert issuer.jwks.may_bring("other")


def test_a_key_that_was_asked_for_is_absent_only_after_a_later_fetch_that_brought_a_set() -> None:
    """One that failed decides nothing, nor does one that had begun before the question."""
    issuer = Issuer()

    def ask_late() -> bytes:
        assert issuer.jwks.may_bring("late")
        return jwks(a=RSA_KEY)

    issuer._script = [fail(OSError("away")), ask_late]
    assert issuer.jwks.may_bring("early")
    issuer.run()
    assert (issuer.jwks.may_bring("early"), issuer.jwks.may_bring("late")) == (False, True)


def test_a_flood_of_made_up_key_ids_is_not_remembered_without_end() -> None:
    """Also while fetches fail. Those beyond the bound are asked to try again, and are forgotten."""
    issuer = Issuer()

    def flood(number: int) -> Step:
        def step() -> bytes:
            assert all(issuer.jwks.may_bring(f"{number}-{each}") for each in range(2 * MAX_ASKED))
            raise OSError("away")

        return step

    issuer._script = [*map(flood, range(5)), jwks(a=RSA_KEY)]
    issuer.run()
    assert len(issuer.jwks._absent) == MAX_ASKED
    assert not issuer.jwks.may_bring("0-0")
    assert issuer.jwks.may_bring(f"0-{MAX_ASKED}")


def test_retries_become_rarer_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    """An issuer in trouble is not flooded, and gateways that start together do not fetch together."""
    away: list[Step | bytes] = [fail(OSError("away"))] * 8
    issuer = Issuer(*away, jwks(a=RSA_KEY), away[0], jwks(a=RSA_KEY))
    issuer.run()
    bounds = [FIRST_RETRY_S, 2.0, 4.0, 8.0, 16.0, 32.0, LAST_RETRY_S, LAST_RETRY_S, AGAIN_S, FIRST_RETRY_S]
    assert issuer.waits[8] == AGAIN_S
    assert all(bound / 2 <= wait_s <= bound for wait_s, bound in zip(issuer.waits, bounds, strict=True))
    assert len({wait_s / bound for wait_s, bound in zip(issuer.waits[:8], bounds, strict=False)}) == 8


def test_without_a_question_the_set_is_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a question ends by itself."""
    waited: list[float | None] = []
    issuer = Issuer(jwks(a=RSA_KEY), jwks(b=RSA_KEY))

    def wait(timeout: float | None = None) -> bool:
        waited.append(timeout)
        return False

    monkeypatch.setattr(issuer.jwks, "_wanted", _Silent(wait))
    issuer.run()
    assert issuer.active == [["a"], ["b"]]
    assert all(timeout is not None and 0.8 * REFRESH_S <= timeout <= REFRESH_S for timeout in waited)


class _Silent:
    """A signal that is never set."""

    def __init__(self, wait: Callable[[float | None], bool]) -> None:
        self.wait = wait

    def set(self) -> None: ...
    def clear(self) -> None: ...


def test_a_fetch_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deadline counts from the beginning to the last byte, however many bytes come."""
    monkeypatch.setattr(module, "TIMEOUT_S", 0.01)
    never = gevent.event.Event()

    def drip() -> bytes:
        while not never.wait(0.001):
            pass
        return b""

    issuer = Issuer(drip, jwks(a=RSA_KEY))
    (failed, _) = issuer.run()
    assert failed["error"] == "not within 0.01 s"


# One GET -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Receiver]:
    """A real server of keys on this machine."""
    with Receiver() as receiver:
        yield receiver


def test_a_fetch_is_one_get_of_the_address(server: Receiver) -> None:
    """With the query; the connection is closed after it."""
    server.answer = status(200, body=b"{}")
    assert fetch(server.url("/keys?tenant=a")) == b"{}"
    (request,) = server.requests
    assert (request.path, request.body) == ("/keys?tenant=a", b"")
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["connection"] == "close"


@pytest.mark.parametrize("code", [500, 302, 404, 204])
def test_any_other_answer_than_200_is_none(server: Receiver, code: int) -> None:
    """A redirect is not followed, because it would lead where the operator did not say."""
    server.answer = status(code, {"Location": server.url("/elsewhere")})
    with pytest.raises(ValueError, match=f"the answer is {code}, expected 200"):
        fetch(server.url())
    assert [request.path for request in server.requests] == ["/hook"]


def test_an_answer_has_a_bound(server: Receiver) -> None:
    """One byte more is refused, and not read to its end."""
    server.answer = status(200, body=b" " * MAX_BYTES)
    assert len(fetch(server.url())) == MAX_BYTES
    server.answer = status(200, body=b" " * (MAX_BYTES + 1))
    with pytest.raises(OSError, match=f"larger than {MAX_BYTES} bytes"):
        fetch(server.url())


def test_informational_answers_before_the_keys_are_skipped(server: Receiver) -> None:
    """A proxy or a CDN in front of the issuer may send them to any client."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    server.answer = say(hints + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
    assert fetch(server.url()) == b"{}"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",), id="cut short"),
        pytest.param((b"HTTP/1.1 200 OK\r\n",), id="a head that breaks off"),
        pytest.param((b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000,), id="hints without an end"),
        pytest.param((b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000,), id="a huge head"),
        pytest.param((b"220 smtp.example.com\r\n",), id="not HTTP"),
    ],
)
def test_keys_are_taken_from_a_whole_answer_only(server: Receiver, parts: tuple[bytes, ...]) -> None:
    """Half a set would lock out the users of the other half."""
    server.answer = say(*parts)
    with pytest.raises(OSError):  # noqa: PT011 - each has its own text
        fetch(server.url())
