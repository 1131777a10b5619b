"""The webhook against a real receiver: what arrives, what each answer means, and where nothing is ever sent."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from headgate.consumers.base import Context, Delivery, Reject, Retry
from headgate.consumers.webhook import post as http_post
from headgate.consumers.webhook.consumer import Webhook, WebhookOptions
from headgate.consumers.webhook.post import KEEP_IDLE_S, KEEP_S, MAX_ANSWER_BYTES, HttpPost
from headgate.consumers.webhook.signing import EXPECTED_SECRET
from headgate.consumers.webhook.target import read_target
from headgate.options import read_options
from tests.support.certificates import Authority
from tests.support.http_receiver import Answer, Receiver, hang, reset, say, status, trickle
from tests.support.redis_server import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLDER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
CONTEXT = Context("hook", "shop", cast(Any, None), cast(Any, None))
DATA = b'{"n": 1.50, "text":"\\u00e9 \xc3\xa9"}'
DELIVERY = Delivery(
    "orders.42.failed", DATA, "order:42", 1_700_000_000_123, "0123456789abcdef", 17, namespace="shop", consumer="hook"
)

Make = Callable[..., Webhook]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def make() -> Iterator[Make]:
    """Make webhooks from what would stand in TOML; they are closed with the test."""
    made: list[Webhook] = []

    def make(url: str, **table: Any) -> Webhook:
        options = read({"url": url, "secret": SECRET, "allow_private": ["127.0.0.1"], "timeout_s": 30, **table})
        made.append(Webhook(options, CONTEXT))
        return made[-1]

    yield make
    for each in made:
        each.close()


def read(table: dict[str, Any]) -> WebhookOptions:
    options, faults = read_options(WebhookOptions, table)
    assert options is not None, faults
    return options


def failed(hook: Webhook, delivery: Delivery = DELIVERY) -> Retry:
    with pytest.raises(Retry) as retry:
        hook.handle(delivery)
    return retry.value


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the monotonic clock on."""
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + seconds)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Have names resolved to these addresses, one list per call; return the names as they were asked for."""
    asked: list[str] = []
    left = list(answers)

    def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        families = {4: socket.AF_INET, 6: socket.AF_INET6}
        addresses = [ipaddress.ip_address(address) for address in left.pop(0)]
        return [
            (families[a.version], socket.SOCK_STREAM, 0, "", (str(a), port) if a.version == 4 else (str(a), port, 0, 0))
            for a in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


# What arrives


def test_the_specifications_own_library_verifies_what_arrives(receiver: Receiver, make: Make) -> None:
    """The envelope is what the specification recommends; the publisher's bytes are in it unchanged."""
    make(receiver.url("/hook?a=b")).handle(DELIVERY)

    (request,) = receiver.requests
    body = Verifier(SECRET).verify(request.body, request.headers)
    assert body == {
        "type": "orders.42.failed",
        "timestamp": "2023-11-14T22:13:20.123Z",
        "data": {"n": 1.5, "text": "é é"},
        "id": "order:42",
        "namespace": "shop",
        "offset": 17,
        "epoch": "0123456789abcdef",
    }
    assert b'"data":' + DATA + b"," in request.body
    assert request.path == "/hook?a=b"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["content-type"] == "application/json"


def test_a_second_attempt_has_the_same_id_and_a_time_of_its_own(
    receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a receiver can tell a double from news, and an old request from a fresh one."""
    hook = make(receiver.url())
    now_s = time.time()
    for seconds in (0, 100):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: now_s + seconds)
        hook.handle(DELIVERY)

    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == "hook:shop:0123456789abcdef-17"
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 100
    assert Verifier(SECRET).verify(second.body, second.headers)


def test_every_secret_of_a_rotation_signs(receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment as from the file."""
    monkeypatch.setenv("HOOK_SECRETS", f"{SECRET} {OLDER}")
    make(receiver.url(), secret=None, secret_env="HOOK_SECRETS").handle(DELIVERY)

    (request,) = receiver.requests
    for known in (SECRET, OLDER):
        assert Verifier(known).verify(request.body, request.headers)


def test_headers_of_the_operator_go_along(receiver: Receiver, make: Make) -> None:
    """A token for the receiver's own front door."""
    make(receiver.url(), headers={"Authorization": "Bearer abc", "X-Team": "on call"}).handle(DELIVERY)

    (request,) = receiver.requests
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer abc", "on call")


def test_events_share_a_connection_for_a_while(receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is idle for too long."""
    hook = make(receiver.url())
    for _ in range(3):
        hook.handle(DELIVERY)
    assert receiver.connections == 1

    later(monkeypatch, KEEP_IDLE_S)
    hook.handle(DELIVERY)
    assert receiver.connections == 2


def test_a_connection_that_the_receiver_has_closed_is_not_used_again(receiver: Receiver, make: Make) -> None:
    """No attempt is lost to it, and none fails."""
    hook = make(receiver.url())
    receiver.answer = say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # says nothing of closing, and closes
    hook.handle(DELIVERY)
    post = cast(Any, hook)._post
    wait_until(lambda: post._wire is None or not post._wire.is_quiet(), "the receiver's end of the connection arrives")
    hook.handle(DELIVERY)

    assert receiver.connections == 2


# What each answer means


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_any_2xx_is_done(receiver: Receiver, make: Make, code: int) -> None:
    """The body does not matter."""
    receiver.answer = status(code)
    make(receiver.url()).handle(DELIVERY)

    assert len(receiver.requests) == 1


@pytest.mark.parametrize("code", [300, 304, 400, 401, 403, 404, 405, 413, 422, 429, 500, 502, 503, 504])
def test_any_other_answer_is_tried_again(receiver: Receiver, make: Make, code: int) -> None:
    """As the specification says: a receiver that is being deployed answers 404 as well."""
    receiver.answer = status(code)
    retry = failed(make(receiver.url("/secret-path")))

    assert (retry.reason, retry.after_s) == (f"http://127.0.0.1:{receiver.port} answered {code}", None)


def test_gone_sets_the_event_aside_at_once(receiver: Receiver, make: Make) -> None:
    """The receiver wants no more."""
    receiver.answer = status(410)
    with pytest.raises(Reject, match="answered 410: it wants no more events"):
        make(receiver.url()).handle(DELIVERY)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_not_followed(receiver: Receiver, make: Make, code: int) -> None:
    """Wherever it points."""
    with Receiver() as inside:
        receiver.answer = status(code, {"Location": inside.url("/latest/meta-data")})
        retry = failed(make(receiver.url()))
        assert inside.connections == 0

    assert retry.reason.endswith(f"answered {code}")


def test_a_retry_after_holds_back_everything_that_goes_there(
    receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the event that was refused; and no longer than asked."""
    hook = make(receiver.url())
    receiver.answer = status(429, {"Retry-After": "30"})
    assert failed(hook).after_s == 30

    receiver.answer = status(200)
    paused = failed(hook)
    assert paused.reason.endswith("asked for a pause")
    assert paused.after_s is not None
    assert 0 < paused.after_s <= 30
    assert len(receiver.requests) == 1

    later(monkeypatch, 30)
    hook.handle(DELIVERY)
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("said", "after_s"),
    [
        ("0", 0.0),
        ("999999", 3600.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_and_bounded(receiver: Receiver, make: Make, said: str, after_s: float | None) -> None:
    """An hour at most; what cannot be read says nothing."""
    receiver.answer = status(503, {"Retry-After": said})

    assert failed(make(receiver.url())).after_s == after_s


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(hang(), id="nothing"),
        pytest.param(trickle(b"HTTP/1.1 200 OK\r\nX-Slow: "), id="a head that does not end"),
        pytest.param(trickle(b""), id="a status line that does not end"),
        pytest.param(trickle(b"HTTP/1.1 100 Continue\r\n\r\n" * 3), id="continue, and then nothing that ends"),
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_one_deadline_covers_an_answer_however_slowly_it_comes(
    make: Make, authority: Authority, answer: Answer, tls: bool
) -> None:
    """A receiver that sends a byte now and then holds a worker no longer than one that says nothing."""
    with Receiver(authority.server_context("127.0.0.1") if tls else None) as receiver:
        receiver.answer = answer
        hook = make(receiver.url(), timeout_s=0.3, ca_file=authority.ca_file)
        retries: list[Retry] = []

        def asked() -> bool:
            retries.append(failed(hook))
            return bool(receiver.requests)

        wait_until(asked, "an attempt that gets as far as the answer before its deadline")

    assert {retry.reason for retry in retries} == {f"{hook.options.url.origin} did not answer within 0.3 s"}


def test_a_deadline_covers_the_handshake(make: Make) -> None:
    """Something that accepts connections and speaks no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        retry = failed(make(f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3))

    assert retry.reason.endswith("did not answer within 0.3 s")


def test_a_deadline_covers_a_receiver_that_does_not_read(make: Make) -> None:
    """A body larger than the buffers between."""
    large = Delivery("a", b'"' + b"x" * 16_000_000 + b'"', "1", 0, "0123456789abcdef", 1, namespace="shop", consumer="hook")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        retry = failed(make(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3), large)

    assert retry.reason.endswith("did not answer within 0.3 s")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(reset, "closed the connection without an answer", id="reset"),
        pytest.param(say(), "closed the connection without an answer", id="closed"),
        pytest.param(say(b"220 smtp.example.com\r\n"), "answered something that is not HTTP, or too long", id="not HTTP"),
        pytest.param(
            say(b"HTTP/1.1 200 OK\r\n", b"X-Filler: abcdefghijklmnopqrstuvwxyz\r\n" * 1000),
            "answered something that is not HTTP, or too long",
            id="a huge head",
        ),
        pytest.param(
            say(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 4 * MAX_ANSWER_BYTES),
            "answered something that is not HTTP, or too long",
            id="a huge header",
        ),
        pytest.param(
            say(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000), "answered something that is not HTTP, or too long", id="continue"
        ),
    ],
)
def test_what_is_no_answer_is_tried_again(receiver: Receiver, make: Make, answer: Answer, said: str) -> None:
    """The reason names the receiver, and quotes nothing that it sent."""
    receiver.answer = answer

    assert failed(make(receiver.url())).reason == f"http://127.0.0.1:{receiver.port} {said}"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(say(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", b"x" * 1_000_000), id="a huge body"),
        pytest.param(say(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1_000_000), id="a huge body without a length"),
        pytest.param(
            say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"8000\r\n" + b"x" * 0x8000 + b"\r\n"),
            id="a huge chunk",
        ),
        pytest.param(say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"), id="chunks that are none"),
        pytest.param(
            hang(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % MAX_ANSWER_BYTES + b"x" * MAX_ANSWER_BYTES),
            id="chunks without a last one",
        ),
        pytest.param(say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), id="a body that is cut short"),
        pytest.param(trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"), id="a body that does not end"),
    ],
)
def test_a_status_counts_whatever_the_body_is(
    receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    """Little of it is read, for a short time; the next event has a new connection."""
    monkeypatch.setattr(http_post, "BODY_TIMEOUT_S", 0.2)
    hook = make(receiver.url(), timeout_s=60)
    receiver.answer = answer
    hook.handle(DELIVERY)
    receiver.answer = status(200)
    hook.handle(DELIVERY)

    assert (len(receiver.requests), receiver.connections) == (2, 2)


def test_nobody_there_is_tried_again(make: Make) -> None:
    """And sent when it is back."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # so that nobody else listens there, nor does this socket
        port = closed.getsockname()[1]

        assert failed(make(f"http://127.0.0.1:{port}/")).reason == f"http://127.0.0.1:{port} refused the connection"


# TLS


def test_a_certificate_for_the_host_is_accepted(authority: Authority, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name in the URL, whatever address it was resolved to; the name is what the server is asked for."""
    names: list[str | None] = []
    context = authority.server_context("hooks.example")
    context.sni_callback = lambda _, name, __: names.append(name)
    with Receiver(context) as receiver:
        resolving(monkeypatch, ["127.0.0.1"])
        make(receiver.url(host="Hooks.Example."), ca_file=authority.ca_file).handle(DELIVERY)

        assert Verifier(SECRET).verify(receiver.requests[0].body, receiver.requests[0].headers)
    assert names == ["hooks.example"]


@pytest.mark.parametrize(
    ("host", "expired", "trusted", "said"),
    [
        ("other.example", False, True, "mismatch"),
        ("hooks.example", True, True, "certificate has expired"),
        ("hooks.example", False, False, "unable to get local issuer certificate"),
    ],
)
def test_a_certificate_that_is_not_right_gets_nothing(
    authority: Authority, make: Make, monkeypatch: pytest.MonkeyPatch, host: str, expired: bool, trusted: bool, said: str
) -> None:
    """Another name, out of date, or by nobody known: tried again, for certificates are renewed."""
    with Receiver(authority.server_context(host, expired=expired)) as receiver:
        resolving(monkeypatch, ["127.0.0.1"])
        retry = failed(make(receiver.url(host="hooks.example"), ca_file=authority.ca_file if trusted else None))

        assert receiver.requests == []
    assert "has a certificate that is not accepted" in retry.reason
    assert said in retry.reason


def test_a_receiver_without_tls_gets_nothing_under_https(receiver: Receiver, make: Make) -> None:
    """The handshake is not taken for an answer."""
    assert "does not speak TLS as we do" in failed(make(f"https://127.0.0.1:{receiver.port}/")).reason
    assert receiver.requests == []


# Where nothing is sent


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST"])
def test_names_of_this_machine_are_refused_by_their_address(receiver: Receiver, make: Make, host: str) -> None:
    """The system's own resolver, in every spelling."""
    retry = failed(make(receiver.url(host=host), allow_private=[]))

    assert retry.reason == f"http://localhost:{receiver.port} is at a loopback address, which allow_private does not allow"
    assert receiver.connections == 0


@pytest.mark.parametrize(
    ("addresses", "kind"),
    [
        (["10.0.0.1"], "private"),
        (["169.254.169.254"], "cloud metadata"),
        (["fd00:ec2::254"], "cloud metadata"),
        (["::ffff:127.0.0.2"], "loopback"),
        (["64:ff9b::7f00:2"], "loopback"),
        (["0.0.0.0"], "unspecified"),
        (["::"], "unspecified"),
        (["2002:7f00:1::"], "6to4"),
        # one of several: the whole answer is refused, also when a public or allowed one stands first
        (["8.8.8.8", "10.0.0.1"], "private"),
        (["127.0.0.1", "127.0.0.2"], "loopback"),
        (["8.8.8.8"] * 20 + ["::1"], "loopback"),
    ],
)
def test_a_name_at_an_address_that_is_not_allowed_gets_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, addresses: list[str], kind: str
) -> None:
    """Nobody is connected to; it is tried again, for names can be mended."""
    connected: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, place: connected.append(place))
    resolving(monkeypatch, addresses)
    retry = failed(make("https://hooks.example/"))

    assert retry.reason == f"https://hooks.example is at a {kind} address, which allow_private does not allow"
    assert connected == []


def test_the_address_that_was_checked_is_the_one_that_is_used(
    receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that turns private after the check (DNS rebinding) is asked for once per connection, and checked at the next."""
    asked = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    hook = make(receiver.url(host="hooks.example"), allow_private=["127.0.0.1/32"])
    hook.handle(DELIVERY)
    hook.handle(DELIVERY)
    assert (asked, receiver.connections) == (["hooks.example"], 1)

    later(monkeypatch, KEEP_S)
    assert "at a loopback address" in failed(hook).reason
    assert (len(asked), receiver.connections) == (2, 1)


def test_a_connection_in_constant_use_is_made_anew_after_a_minute(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a receiver that moved is followed, and its address looked at again."""
    now_s = [1000.0]  # it stands still but for what is added: at 15 s without a post the connection would be given up, too
    monkeypatch.setattr(http_post, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    asked = resolving(monkeypatch, *[["127.0.0.1"]] * 2)
    allowed = read({"url": receiver.url(), "allow_private": ["127.0.0.1"]}).allow_private
    post = HttpPost(read_target(receiver.url(host="hooks.example")), timeout_s=10, allowed=allowed)
    for _ in range(8):
        post.post({}, b"")
        now_s[0] += 10
    post.close()

    assert (len(asked), receiver.connections) == (2, 2)


def test_the_next_address_is_tried_when_one_does_not_answer(
    receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with a broken address among good ones."""
    resolving(monkeypatch, ["::1", "127.0.0.2", "127.0.0.1"])
    make(receiver.url(host="hooks.example"), allow_private=["127.0.0.0/8", "::1"]).handle(DELIVERY)

    assert len(receiver.requests) == 1


def test_an_address_that_swallows_everything_leaves_time_for_the_next(
    receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An IPv6 route to nowhere takes its share of the deadline, not all of it."""
    waited_s: list[float | None] = []
    connect = socket.socket.connect

    def swallow(sock: socket.socket, place: Any) -> None:
        if place[0] == "127.0.0.1":
            return connect(sock, place)
        waited_s.append(sock.gettimeout())
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", swallow)
    monkeypatch.setattr(http_post, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    resolving(monkeypatch, ["8.8.8.8", "127.0.0.1"])
    make(receiver.url(host="hooks.example"), timeout_s=10).handle(DELIVERY)

    assert waited_s == [5]


def test_a_name_that_does_not_exist_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As is one without an address."""

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert failed(make("https://hooks.example/")).reason == "https://hooks.example cannot be resolved"

    resolving(monkeypatch, [])
    assert failed(make("https://hooks.example/")).reason == "https://hooks.example cannot be reached"


def test_a_proxy_in_the_environment_is_not_asked(receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would resolve the name for itself."""
    with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        make(receiver.url()).handle(DELIVERY)

        assert (proxy.connections, len(receiver.requests)) == (0, 1)


# What is checked beforehand


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"secret": None}, "secret is missing; expected secret or secret_env"),
        ({"secret_env": "HOOK"}, "secret and secret_env are both given; expected one of them"),
        ({"secret": None, "secret_env": "HOOK"}, "secret_env='HOOK': there is no such environment variable, or it is blank"),
        (
            {"secret": None, "secret_env": "BAD"},
            f"secret_env='BAD': what this variable holds is wrong: expected {EXPECTED_SECRET}",
        ),
        (
            {"url": "http://10.0.0.1/x"},
            "url=http://10.0.0.1/…: a private address; expected a public one, or one that allow_private allows",
        ),
        (
            {"url": "http://[::ffff:169.254.169.254]/"},
            "url=http://[::ffff:a9fe:a9fe]/…: a cloud metadata address; expected a public one, or one that allow_private allows",
        ),
        ({"ca_file": "/not/there.pem"}, "ca_file='/not/there.pem': there is no such file"),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], said: str
) -> None:
    """A line each, without the secret."""
    monkeypatch.setenv("BAD", "whsec_short")

    assert Webhook.check(read({"url": "https://example.com/", "secret": SECRET, **table}), ["#"]) == [said]


def test_what_is_right_has_no_faults(authority: Authority) -> None:
    """With an address that is allowed by its place."""
    table = {"url": "http://127.0.0.1:80/", "secret": SECRET, "allow_private": "127.0.0.1:80", "ca_file": authority.ca_file}

    assert Webhook.check(read(table), ["#"]) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "internal"},
        {"content-length": "0"},
        {"Content-Type": "text/plain"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
        {"webhook-id": "x"},
        {"Webhook-Signature": "x"},
        {"Proxy-Authorization": "x"},
        {"X-A": "b\r\nX-B: c"},
        {"X-A\r\nX-B": "c"},
        {"X-A:": "b"},
        {"": "b"},
        {"X-A": ""},
        {"X-A": "é"},
        {"X-A": "b" * 1025},
        {"X-A": "b", "x-a": "c"},
        {f"X-{number}": "b" for number in range(21)},
        {"X-A": 5},
        ["X-A: b"],
    ],
)
def test_headers_that_are_ours_or_none_are_refused(headers: Any) -> None:
    """And not shown: they hold tokens."""
    _, faults = read_options(WebhookOptions, {"url": "https://example.com/", "secret": SECRET, "headers": headers})

    assert [(fault.key, fault.shown) for fault in faults] == [("headers", "(hidden)")]


def test_no_secret_is_shown(make: Make, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Not the signing secret, the path, or a header: in no `repr`, preview, reason or log."""
    hook = make(receiver.url("/canary-path"), headers={"Authorization": "canary-header"})
    receiver.answer = status(500, body=b"canary-answer")
    told = [repr(hook.options), hook.preview(DELIVERY), failed(hook).reason, caplog.text, repr(hook.__dict__["_target"])]

    assert not [text for text in told if "canary" in text or SECRET[6:] in text]


def test_the_preview_is_the_request(make: Make) -> None:
    """Where to, under which id, and the body; nothing is sent."""
    where, message_id, blank, body = make("https://example.com/secret").preview(DELIVERY).splitlines()

    assert (where, message_id, blank) == ("POST https://example.com/…", "webhook-id: hook:shop:0123456789abcdef-17", "")
    assert json.loads(body)["type"] == "orders.42.failed"


def test_threads_may_have_a_webhook_each(receiver: Receiver, make: Make) -> None:
    """As workers do."""
    hooks = [make(receiver.url()) for _ in range(4)]
    threads = [threading.Thread(target=lambda hook=hook: [hook.handle(DELIVERY) for _ in range(20)]) for hook in hooks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(receiver.requests), receiver.connections) == (80, 4)


def test_a_certificate_file_that_is_none_is_refused_when_it_is_read(tmp_path: Path, make: Make) -> None:
    """The check does not read it."""
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(OSError, match=r"NO_CERTIFICATE|no certificate"):
        make("https://example.com/", ca_file=str(tmp_path / "ca.pem"))
