"""webhook/post.py on connections in memory: one deadline, invalid answers, bodies, the tried addresses, and statuses."""

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import cast

import pytest

from headgate.consumers.base import OutcomeUnknown, Retry
from headgate.consumers.webhook.addresses import read_allowed
from headgate.consumers.webhook.post import (
    BODY_TIMEOUT_S,
    MAX_ADDRESSES,
    MAX_BODY_BYTES,
    HttpPost,
    Resolved,
    judge,
    read_retry_after,
)
from headgate.runtime.http_exchange import MAX_HEAD_BYTES
from headgate.settings.addresses.http_target import read_target
from tests.support.held_clock import HeldClock
from tests.support.scripted_socket import ScriptedSocket

URL = "http://hooks.example/secret?token=canary"
ORIGIN = "http://hooks.example"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HANG: list[bytes | float | OSError] = [1e9]
NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT

Script = Iterable[bytes | float | OSError]


def trickle(first: bytes) -> Iterator[bytes | float]:
    """Say this, and then a letter every 0.3 s for ever."""
    return chain([first] * bool(first), chain.from_iterable(repeat((0.3, b"x"))))


def resolved(*addresses: str) -> list[Resolved]:
    """Return these as a resolver does."""
    families = {4: socket.AF_INET, 6: socket.AF_INET6}
    return [(families[ipaddress.ip_address(each).version], socket.SOCK_STREAM, 0, "", (each, 80)) for each in addresses]


class Network:
    """The other end: one script for each connection, in order. `connected` holds the addresses that were connected to."""

    def __init__(
        self, *scripts: Script, addresses: Iterable[str] = ("8.8.8.8",), reads: float = float("inf"), broken: bool = False
    ) -> None:
        self.clock = HeldClock(1000.0)
        self.connected: list[object] = []
        self.waits_s: list[float] = []
        self.sockets: list[ScriptedSocket] = []
        self.refusals: dict[str, OSError] = {}
        self._scripts, self._addresses, self._reads, self._broken = iter(scripts), list(addresses), reads, broken

    def resolve(self, host: str, port: int) -> list[Resolved]:
        assert (host, port) == ("hooks.example", 80)
        return resolved(*self._addresses)

    def connect(self, found: Resolved, timeout_s: float) -> socket.socket:
        self.connected.append(found[4][0])
        self.waits_s.append(timeout_s)
        if error := self.refusals.get(str(found[4][0])):
            if isinstance(error, TimeoutError):
                self.clock.now_s += timeout_s
            raise error
        self.sockets.append(ScriptedSocket(self.clock, next(self._scripts), self._reads, self._broken))
        return cast(socket.socket, self.sockets[-1])

    def post(self, timeout_s: float = 10.0, allow: str = "", url: str = URL) -> HttpPost:
        return HttpPost(
            read_target(url), timeout_s=timeout_s, allowed=read_allowed(allow.split()), resolve=self.resolve,
            connect=self.connect, now=self.clock,
        )  # fmt: skip


def failed(post: HttpPost, body: bytes = b"{}") -> str:
    """Post, and return the reason of the Retry."""
    with pytest.raises(Retry) as retry:
        post.post({}, body)
    return retry.value.reason


def test_a_request_is_written_whole_and_its_status_returned() -> None:
    """Without the user's part of a URL, to the host of the target."""
    network = Network([OK.replace(b"200 OK", b"503 No\r\nRetry-After: 30")])

    assert network.post().post({"X-A": "b"}, b"body") == (503, 30.0)
    head, _, body = bytes(network.sockets[0].sent).partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"POST /secret?token=canary HTTP/1.1", b"body")
    assert {b"Host: hooks.example", b"X-A: b", b"Content-Length: 4"} <= set(head.split(b"\r\n"))


# One deadline --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda: HANG, id="nothing"),
        pytest.param(lambda: trickle(b""), id="a status line that does not end"),
        pytest.param(lambda: trickle(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3), id="1xx, and then nothing that ends"),
        pytest.param(lambda: trickle(b"HTTP/1.1 102 Processing\r\nX-Slow: "), id="a 1xx whose head does not end"),
    ],
)
def test_one_deadline_covers_an_answer_however_slowly_it_comes(script: Callable[[], Script]) -> None:
    """A receiver that sends a byte now and then holds a worker no longer than one that says nothing."""
    network = Network(script())

    assert failed(network.post(timeout_s=10)) == f"{ORIGIN}: no answer within 10 s"
    assert network.clock.now_s == pytest.approx(1010)
    assert network.sockets[0].closed


def test_one_deadline_covers_connecting_and_a_receiver_that_does_not_read() -> None:
    """Some of a body is taken, and then no more."""
    network = Network(HANG, addresses=["8.8.8.8", "9.9.9.9"], reads=10_000)
    network.refusals["8.8.8.8"] = TimeoutError()

    assert failed(network.post(timeout_s=10), b"x" * 100_000) == f"{ORIGIN}: no answer within 10 s"
    assert network.waits_s == [5, 5]
    assert network.clock.now_s == pytest.approx(1010)


@pytest.mark.parametrize("informational", [b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </a>", b"199 Odd"])
def test_an_informational_answer_is_skipped(informational: bytes) -> None:
    """RFC 9110, section 15.2: any number of them may stand before the answer. The connection stays in use."""
    before = b"HTTP/1.1 %b\r\n\r\n" % informational
    network = Network([before, before * 100 + OK.replace(b"200 OK", b"503 No")])

    assert network.post().post({}, b"{}") == (503, None)
    assert not network.sockets[0].closed


def test_an_answer_to_another_protocol_is_final() -> None:
    """101 decides nothing for us, and nothing of HTTP follows it."""
    network = Network([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", OK])

    assert network.post().post({}, b"{}") == (101, None)
    assert network.sockets[0].closed


def test_the_outcome_is_unknown_once_the_request_was_sent_whole() -> None:
    """Before that the receiver cannot have acted on it."""
    lost: list[Script] = [[ConnectionResetError()], [], HANG, [b"HTTP/1.1 103 Early Hints\r\n\r\n"], [b"nonsense\r\n"]]
    for script in lost:
        with pytest.raises(OutcomeUnknown):
            Network(script).post().post({}, b"{}")
    with pytest.raises(Retry) as failed:
        Network(HANG, reads=10_000).post().post({}, b"x" * 100_000)
    assert not isinstance(failed.value, OutcomeUnknown)


def test_an_answer_that_comes_before_the_request_was_read_counts() -> None:
    """A receiver may refuse by the head alone, and close."""
    network = Network([b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"], reads=10_000, broken=True)

    assert network.post().post({}, b"x" * 100_000) == (413, None)


# Pauses ----------------------------------------------------------------------------------------------------------------------


def paused_s(post: HttpPost, reason: str) -> float | None:
    """Post, and return the least wait of the Retry."""
    with pytest.raises(Retry, match=f"^{ORIGIN}:? {reason}$") as retry:
        post.post({}, b"{}")
    return retry.value.after_s


def test_a_retry_after_holds_back_everything_that_goes_there() -> None:
    """Not only the event that was refused; and no longer than asked. A final answer holds back nothing."""
    later = OK.replace(b"200 OK", b"429 Later\r\nConnection: close\r\nRetry-After: 30")
    network = Network([later.replace(b"429", b"410")], [later], [OK])
    post = network.post()
    assert [post.post({}, b"{}")[0] for _ in range(2)] == [410, 429]

    network.clock.now_s += 10
    assert paused_s(post, "asked for a pause") == post.pause_s() == 20
    assert len(network.connected) == 2

    network.clock.now_s += 20
    assert post.post({}, b"{}")[0] == 200


def test_from_the_second_attempt_without_an_answer_on_the_next_events_wait() -> None:
    """After the first one the next event may find the receiver well. An outage uses up no attempts. An answer ends the row."""
    network = Network([], [], [OK.replace(b"200 OK", b"200 OK\r\nConnection: close")], [])
    post = network.post()
    for attempts, after_s in ((1, 0), (2, 1), (2, 1)):
        assert paused_s(post, "it closed the connection") == after_s
        assert len(network.connected) == attempts

    network.clock.now_s += 1
    assert post.post({}, b"{}")[0] == 200
    assert paused_s(post, "it closed the connection") == 0


# Invalid answers -----------------------------------------------------------------------------------------------------------

NOT_HTTP = "an answer that is not HTTP, or too long"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param([ConnectionResetError()], "it closed the connection", id="reset"),
        pytest.param([], "it closed the connection", id="closed"),
        pytest.param([b"220 smtp.example.com\r\n"], NOT_HTTP, id="not HTTP"),
        pytest.param([b"HTTP/1.1 103 Hints\r\n", b"Link: abcdefghijklmnopqrstuvwxyz\r\n" * 5000], NOT_HTTP, id="a huge 1xx"),
        pytest.param([b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_HEAD_BYTES // 20), OK], NOT_HTTP, id="1xx without an end"),
        pytest.param([b"x" * 100_000], NOT_HTTP, id="a line without an end"),
        pytest.param([b"HTTP/1.1 20\r\n\r\n"], NOT_HTTP, id="a status of two digits"),
        pytest.param([b"HTTP/2 200\r\n\r\n"], NOT_HTTP, id="another version of HTTP"),
        pytest.param([OSError(113, "No route to host")], "no route to host", id="another error"),
        pytest.param([OSError("canary")], "it cannot be reached", id="an error without a number"),
    ],
)
def test_an_answer_that_is_none_is_tried_again(script: Script, said: str) -> None:
    """The reason names the receiver, and quotes nothing that it sent."""
    network = Network(script)

    assert failed(network.post()) == f"{ORIGIN}: {said}"
    assert network.sockets[0].closed


@pytest.mark.parametrize(
    ("script", "took_s"),
    [
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", b"x" * 1_000_000], 0, id="a huge body"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1_000_000], 0, id="a huge body without a length"),
        pytest.param([CHUNKED, b"8000\r\n" + b"x" * 0x8000 + b"\r\n"], 0, id="a huge chunk"),
        pytest.param([CHUNKED + b"nonsense\r\n"], 0, id="chunks that are none"),
        pytest.param([CHUNKED, b"4000\r\n" + b"x" * MAX_BODY_BYTES, *HANG], BODY_TIMEOUT_S, id="chunks without a last one"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"], 0, id="a body that is cut short"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", ConnectionResetError()], 0, id="a reset after the status line"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", *HANG], 60, id="nothing after the status line"),
        pytest.param(trickle(b"HTTP/1.1 200 OK\r\nX-Slow: "), 60, id="a head that does not end"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", b"X-Filler: abcdefghijklmnopqrstuvwxyz\r\n" * 5000], 0, id="a huge head"),
        pytest.param([b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2 * MAX_HEAD_BYTES], 0, id="a huge header"),
        pytest.param([b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], 0, id="a header that is none"),
        pytest.param([b"HTTP/1.1 200\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n"], 0, id="two lengths"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", ConnectionResetError()], 0, id="a reset in the body"),
        pytest.param(trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"), BODY_TIMEOUT_S, id="a body that does not end"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", *HANG], BODY_TIMEOUT_S, id="a body that does not come"),
    ],
)
def test_a_status_counts_whatever_the_body_is(script: Script, took_s: float) -> None:
    """Little of it is read, for a short time; the next event has a new connection."""
    network = Network(script, [OK])
    post = network.post(timeout_s=60)

    assert post.post({}, b"{}") == (200, None)
    assert network.clock.now_s == pytest.approx(1000 + took_s)
    assert network.sockets[0].closed
    assert post.post({}, b"{}") == (200, None)
    assert len(network.connected) == 2


# Addresses -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "kind"),
    [
        (["10.0.0.1"], "private"),
        (["::ffff:127.0.0.2"], "loopback"),
        # one of several: the whole answer is refused, even if a public or allowed one comes first
        (["8.8.8.8", "10.0.0.1"], "private"),
        (["127.0.0.1", "127.0.0.2"], "loopback"),
        (["8.8.8.8"] * 20 + ["::1"], "loopback"),
    ],
)
def test_a_name_at_an_address_that_is_not_allowed_gets_nothing(addresses: list[str], kind: str) -> None:
    """Nothing is connected to; it is tried again, for names can be corrected."""
    network = Network(addresses=addresses)

    assert failed(network.post(allow="127.0.0.1/32")) == f"{ORIGIN} is at a {kind} address, which allow_private does not allow"
    assert network.connected == []


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    """Each with its share of the remaining time, so that an address that swallows everything leaves time for the next."""
    network = Network([OK], addresses=["8.8.8.8", "2001:4860::1", "9.9.9.9"])
    network.refusals = {"8.8.8.8": TimeoutError(), "2001:4860::1": ConnectionRefusedError()}

    assert network.post(timeout_s=12).post({}, b"") == (200, None)
    assert network.connected == ["8.8.8.8", "2001:4860::1", "9.9.9.9"]
    assert network.waits_s == pytest.approx([4, 4, 8])


def test_few_addresses_are_tried_and_the_last_trouble_is_told() -> None:
    """A name with many addresses does not hold a worker."""
    addresses = [f"8.8.8.{number}" for number in range(20)]
    network = Network(addresses=addresses)
    network.refusals = dict.fromkeys(addresses, ConnectionRefusedError(111, "Connection refused"))

    assert failed(network.post()) == f"{ORIGIN}: connection refused"
    assert network.connected == addresses[:MAX_ADDRESSES]


def test_a_name_without_an_address_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As is one that does not exist."""
    network = Network(addresses=[])
    assert failed(network.post()) == f"{ORIGIN}: it cannot be reached"

    def unknown(host: str, port: int) -> list[Resolved]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(network, "resolve", unknown)
    assert failed(network.post()) == f"{ORIGIN}: no such host"


def test_any_other_fault_of_a_request_is_ours_and_closes_the_connection() -> None:
    """A header that cannot be written is not the receiver's fault."""
    network = Network([OK])
    with pytest.raises(ValueError, match="header value"):
        network.post().post({"X-A": "b\r\nX-B: c"}, b"")

    assert network.sockets[0].closed


# The meaning of an answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_done(status: int) -> None:
    """A `Retry-After` beside it does not matter."""
    judge(status, None, ORIGIN)
    judge(status, 30.0, ORIGIN)


@pytest.mark.parametrize(
    "status", [100, 199, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 413, 422, 429, 500, 502, 503, 504, 999]
)
def test_any_other_answer_is_tried_again(status: int) -> None:
    """As the specification says. A redirect is a failure too, and its reason says so."""
    with pytest.raises(Retry) as retry:
        judge(status, 30.0, ORIGIN)

    end = ", and redirects are not followed" if status // 100 == 3 else ""
    assert (retry.value.reason, retry.value.after_s) == (f"{ORIGIN} answered {status}{end}", 30.0)


@pytest.fixture
def _in_new_york() -> Iterator[None]:
    """The time zone of this machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_in_new_york")
@pytest.mark.parametrize(
    ("said", "after_s"),
    [
        ("0", 0.0),
        ("30", 30.0),
        ("3601", 3600.0),
        ("9999999999", 3600.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Tue Nov 14 22:13:50 2023", 30.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, None),
        ("٣", None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(said: str, after_s: float | None) -> None:
    """An hour at most. A text of neither form asks for nothing. The zone of this machine does not matter."""
    assert read_retry_after(said, NOW_S) == after_s
