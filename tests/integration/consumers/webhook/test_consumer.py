"""The webhook against a real receiver: connections, TLS, deadlines, and the places where nothing is ever sent."""

import ipaddress
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from headgate.consumers.base import Delivery, OutcomeUnknown, Retry
from headgate.consumers.webhook.consumer import Webhook
from headgate.consumers.webhook.post import KEEP_IDLE_S, KEEP_S, HttpPost
from headgate.settings.addresses.http_target import read_target
from tests.support.certificates import Authority
from tests.support.http_receiver import Receiver, say, status
from tests.support.redis_server import wait_until
from tests.support.webhooks import CONTEXT, DELIVERY, SECRET, read_webhook

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
    """Make webhooks with the options of a TOML table; they are closed with the test."""
    made: list[Webhook] = []

    def make(url: str, now: Callable[[], float] = time.monotonic, **table: Any) -> Webhook:
        options = read_webhook({"url": url, "allow_private": ["127.0.0.1"], "timeout_s": 30, **table})
        made.append(Webhook(options, CONTEXT, now=now))
        return made[-1]

    yield make
    for each in made:
        each.close()


def failed(hook: Webhook, delivery: Delivery = DELIVERY) -> Retry:
    with pytest.raises(Retry) as retry:
        hook.handle(delivery)
    return retry.value


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


def test_events_share_a_connection_for_a_while(receiver: Receiver, make: Make) -> None:
    """Until it is idle for too long."""
    now_s = [1000.0]
    hook = make(receiver.url(), lambda: now_s[0])
    for _ in range(3):
        hook.handle(DELIVERY)
    assert receiver.connections == 1

    now_s[0] += KEEP_IDLE_S
    hook.handle(DELIVERY)
    assert receiver.connections == 2


def test_a_connection_that_the_receiver_has_closed_is_not_used_again(receiver: Receiver, make: Make) -> None:
    """No attempt is lost to it, and none fails. From then on each event has its own, so none crosses with the end of one."""
    hook = make(receiver.url())
    receiver.answer = say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # says nothing of closing, and closes
    hook.handle(DELIVERY)
    post = cast(Any, hook)._post
    wait_until(
        lambda: post._connection is None or not post._connection.is_quiet(), "the receiver's end of the connection arrives"
    )
    hook.handle(DELIVERY)
    hook.handle(DELIVERY)

    assert receiver.connections == 3


def test_events_that_cross_with_the_end_of_a_connection_are_few(receiver: Receiver) -> None:
    """One, with an unknown outcome; then each event has a separate connection, which is used once."""
    allowed = read_webhook({"url": receiver.url(), "allow_private": ["127.0.0.1"]}).allow_private
    post = HttpPost(read_target(receiver.url()), timeout_s=10, allowed=allowed, now=lambda: 1000.0)
    post.post({}, b"")
    keeping, receiver.answer = receiver.answer, say(b"")
    with pytest.raises(OutcomeUnknown):
        post.post({}, b"")
    receiver.answer = keeping
    for _ in range(3):
        post.post({}, b"")

    assert receiver.connections == 4


# TLS


def test_a_certificate_for_the_host_is_accepted(authority: Authority, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name in the URL, whatever address it was resolved to; the server is asked for that name."""
    names: list[str | None] = []
    context = authority.server_context("hooks.example")
    context.sni_callback = lambda _, name, __: names.append(name)
    with Receiver(context) as receiver:
        resolving(monkeypatch, ["127.0.0.1"])
        make(receiver.url(host="Hooks.Example."), ca_file=authority.ca_file).handle(DELIVERY)

        assert Verifier(SECRET).verify(receiver.requests[0].body, receiver.requests[0].headers)
    assert names == ["hooks.example"]


def test_a_certificate_that_is_not_right_gets_nothing(authority: Authority, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name, out of date, or of an unknown authority. It is tried again, for certificates are renewed."""
    for host, expired, trusted, said in (
        ("other.example", False, True, "mismatch"),
        ("hooks.example", True, True, "certificate has expired"),
        ("hooks.example", False, False, "unable to get local issuer certificate"),
    ):
        with Receiver(authority.server_context(host, expired=expired)) as receiver:
            resolving(monkeypatch, ["127.0.0.1"])
            retry = failed(make(receiver.url(host="hooks.example"), ca_file=authority.ca_file if trusted else None))
            assert receiver.requests == [], said
        assert "its certificate is not accepted" in retry.reason
        assert said in retry.reason


def test_trusted_certificates_that_were_renewed_are_read_again(
    authority: Authority, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a refused certificate; a file that is not there for a moment changes nothing."""
    (tmp_path / "former").mkdir()
    trusted, now_s = Path(Authority(tmp_path / "former").ca_file), [1000.0]
    with Receiver(authority.server_context("hooks.example")) as receiver:
        resolving(monkeypatch, *[["127.0.0.1"]] * 3)
        hook = make(receiver.url(host="hooks.example"), lambda: now_s[0], ca_file=str(trusted))
        for renew in (trusted.unlink, partial(shutil.copy, authority.ca_file, trusted)):
            renew()
            assert "its certificate is not accepted" in failed(hook).reason
            now_s[0] += 3600
        hook.handle(DELIVERY)

        assert len(receiver.requests) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_receiver_that_wants_a_certificate_of_ours_has_not_read_the_request(
    authority: Authority, make: Make, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    """TLS 1.3 reports it after the request was sent, so its outcome is known although there is no answer."""
    context = authority.server_context("hooks.example")
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version
    context.load_verify_locations(authority.ca_file)
    with Receiver(context) as receiver:
        resolving(monkeypatch, ["127.0.0.1"])
        retry = failed(make(receiver.url(host="hooks.example"), ca_file=authority.ca_file))
        assert receiver.requests == []
    assert not isinstance(retry, OutcomeUnknown)
    if version is ssl.TLSVersion.TLSv1_3:
        assert retry.reason.endswith("it accepts only clients with a certificate that it trusts")


def test_a_receiver_without_tls_gets_nothing_under_https(receiver: Receiver, make: Make) -> None:
    """The handshake is not taken for an answer."""
    assert "no TLS (" in failed(make(f"https://127.0.0.1:{receiver.port}/")).reason
    assert receiver.requests == []


# Where nothing is sent


def test_the_address_that_was_checked_is_used(receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that turns private after the check (DNS rebinding) is asked for once per connection, and checked at the next."""
    asked = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    now_s = [1000.0]
    hook = make(receiver.url(host="hooks.example"), lambda: now_s[0], allow_private=["127.0.0.1/32"])
    hook.handle(DELIVERY)
    hook.handle(DELIVERY)
    assert (asked, receiver.connections) == (["hooks.example"], 1)

    now_s[0] += KEEP_S
    assert "at a loopback address" in failed(hook).reason
    assert (len(asked), receiver.connections) == (2, 1)


def test_a_connection_in_constant_use_is_made_anew_after_a_minute(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a moved receiver is followed, and its address checked again."""
    now_s = [1000.0]  # it stands still but for the additions
    asked = resolving(monkeypatch, *[["127.0.0.1"]] * 2)
    allowed = read_webhook({"url": receiver.url(), "allow_private": ["127.0.0.1"]}).allow_private
    post = HttpPost(read_target(receiver.url(host="hooks.example")), timeout_s=10, allowed=allowed, now=lambda: now_s[0])
    for _ in range(80):
        post.post({}, b"")
        now_s[0] += 0.9 * KEEP_IDLE_S
    post.close()

    assert (len(asked), receiver.connections) == (2, 2)


def test_a_proxy_in_the_environment_is_not_asked(receiver: Receiver, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would resolve the name for itself."""
    with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        make(receiver.url()).handle(DELIVERY)

        assert (proxy.connections, len(receiver.requests)) == (0, 1)


def test_no_secret_is_shown(make: Make, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Not the signing secret, the path, or a header, in no `repr`, preview, reason or log."""
    hook = make(receiver.url("/canary-path"), headers={"Authorization": "canary-header"})
    receiver.answer = status(500, body=b"canary-answer")
    told = [repr(hook.options), hook.preview(DELIVERY), failed(hook).reason, caplog.text, repr(hook.__dict__["_target"])]

    assert not [text for text in told if "canary" in text or SECRET[6:] in text]
