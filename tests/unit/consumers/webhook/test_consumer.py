"""The webhook with a post in memory: its requests, their signatures, its answers, and faults of options."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from headgate.consumers.base import Reject, Retry
from headgate.consumers.webhook import consumer as webhook
from headgate.consumers.webhook.consumer import EXPECTED_SECRET, Webhook, WebhookOptions, read_secrets, sign
from headgate.consumers.webhook.post import HttpPost
from headgate.settings.options import read_options
from tests.support.certificates import Authority
from tests.support.webhooks import CONTEXT, DATA, DELIVERY, OLDER, SECRET, read_webhook

URL = "https://hooks.example/hook"


class MemoryPost:
    """Stands for HttpPost: keeps each request, and gives the answers in order, 200 after the last one."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, float | None]] = []

    def post(self, headers: Mapping[str, str], body: bytes, path: str | None = None) -> tuple[int, float | None]:
        self.requests.append(({name.lower(): value for name, value in headers.items()}, body))
        return self.answers.pop(0) if self.answers else (200, None)

    def pause_s(self) -> float:
        return 7.0 if self.answers else 0.0

    def close(self) -> None:
        pass


@pytest.fixture
def post() -> MemoryPost:
    return MemoryPost()


def make(post: MemoryPost, **table: Any) -> Webhook:
    return Webhook(read_webhook({"url": URL, **table}), CONTEXT, cast(HttpPost, post))


# Requests ------------------------------------------------------------------------------------------------------------------


def test_the_envelope_is_as_the_specification_recommends(post: MemoryPost) -> None:
    """The specification's own library verifies it; the publisher's bytes are in it unchanged."""
    make(post).handle(DELIVERY)

    ((headers, body),) = post.requests
    assert Verifier(SECRET).verify(body, headers) == {
        "type": "orders.42.failed",
        "timestamp": "2023-11-14T22:13:20.123Z",
        "data": {"n": 1.5, "text": "é é"},
        "id": "order:42",
        "namespace": "shop",
        "offset": 17,
        "epoch": "0123456789abcdef",
    }
    assert b'"data":' + DATA + b"," in body
    assert headers["content-type"] == "application/json"


def test_a_second_attempt_has_the_same_id_and_a_time_of_its_own(post: MemoryPost, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a receiver can distinguish a double from news, and an old request from a fresh one."""
    hook = make(post)
    for now_s in (1_700_000_000.9, 1_700_000_100.9):
        monkeypatch.setattr(webhook, "time", SimpleNamespace(time=lambda now_s=now_s: now_s))
        hook.handle(DELIVERY)

    (first, _), (second, _) = post.requests
    assert first["webhook-id"] == second["webhook-id"] == "hook:shop:0123456789abcdef-17"
    assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("1700000000", "1700000100")
    assert first["webhook-signature"] != second["webhook-signature"]


def test_every_secret_of_a_rotation_signs(post: MemoryPost) -> None:
    """The receiver needs only one of them."""
    make(post, secret=f"{SECRET} {OLDER}").handle(DELIVERY)

    ((headers, body),) = post.requests
    for known in (SECRET, OLDER):
        assert Verifier(known).verify(body, headers)


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer abc", "X-Team": "us"}, {"User-Agent": "A"}, {"user-agent": "A"}])
def test_headers_of_the_operator_go_along(post: MemoryPost, headers: dict[str, str]) -> None:
    """A token for the receiver's own front door, or another user agent than ours, however it is spelt."""
    make(post, headers=headers).handle(DELIVERY)

    ((sent, _),) = post.requests
    assert {name: sent[name.lower()] for name in headers} == headers


# Signatures ----------------------------------------------------------------------------------------------------------------


def test_it_signs_as_the_specification_shows() -> None:
    """The worked example of the reference libraries, to the letter."""
    keys = read_secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    signature = sign(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "text",
    [
        "whsec_" + base64.b64encode(b"only for the example, not yours").decode(),
        "",
        "plain",
        "whsec_",
        "whsec_not base64!",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        SECRET.removeprefix("whsec_"),
        f"{SECRET} plain",
        " ".join([SECRET] * 4),
        "whsec_" + "é" * 40,
    ],
)
def test_a_text_that_is_no_secret_is_refused_and_not_quoted(text: str) -> None:
    """Too short, too long, no base64, no prefix, too many."""
    _, faults = read_options(WebhookOptions, {"url": URL, "secret": text})

    assert [fault.line() for fault in faults] == [f"secret=(hidden): expected {EXPECTED_SECRET}"]


# Answers -------------------------------------------------------------------------------------------------------------------


def test_it_pauses_with_its_receiver(post: MemoryPost) -> None:
    """So the worker leaves events to others."""
    assert make(post).pause_s() == 0
    post.answers = [(429, 7.0)]
    assert make(post).pause_s() == 7


def test_an_answer_is_judged_with_the_receivers_origin(post: MemoryPost) -> None:
    """The reason names no path, which may be a secret."""
    hook = make(post)
    post.answers = [(500, None), (410, None), (204, None)]
    with pytest.raises(Retry, match=r"^https://hooks\.example answered 500$"):
        hook.handle(DELIVERY)
    with pytest.raises(Reject, match=r"^https://hooks\.example answered 410: it wants no more events$"):
        hook.handle(DELIVERY)
    hook.handle(DELIVERY)

    assert len(post.requests) == 3


# Options -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"url": "http://10.0.0.1/x"},
            "url=http://10.0.0.1/…: a private address; expected a public one, or one that allow_private allows",
        ),
        (
            {"url": "http://localhost:3000/x"},
            "url=http://localhost:3000/…: a loopback address; expected a public one, or one that allow_private allows",
        ),
        (
            {"url": "http://[64:ff9b::169.254.169.254]/"},
            "url=http://[64:ff9b::a9fe:a9fe]/…: a cloud metadata address; "
            "expected a public one, or one that allow_private allows",
        ),
        ({"ca_file": "/not/there.pem"}, "ca_file='/not/there.pem': no such file or directory"),
        ({"ca_file": "x" * 300}, f"ca_file='{'x' * 79}: file name too long"),
        ({"ca_file": __file__}, f"ca_file={__file__!r}: no certificates in it"),
    ],
)
def test_a_fault_of_the_options_is_found_first(table: dict[str, Any], said: str) -> None:
    """A line each."""
    options, faults = read_options(WebhookOptions, {"secret": SECRET, "url": URL, **table})
    assert ([fault.line() for fault in faults] if options is None else Webhook.check(options, ["#"])) == [said]


def test_good_options_have_no_faults(tmp_path: Path) -> None:
    """With an address allowed by its place."""
    authority = Authority(tmp_path)
    table = {"url": "http://127.0.0.1:80/", "secret": SECRET, "allow_private": "127.0.0.1:80", "ca_file": authority.ca_file}
    by_name = {"url": "http://localhost:80/", "secret": SECRET, "allow_private": "localhost:80"}
    assert Webhook.check(read_webhook(by_name), ["#"]) == []

    assert Webhook.check(read_webhook(table), ["#"]) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "internal"}, {"content-length": "0"}, {"Content-Type": "text/plain"}, {"Transfer-Encoding": "chunked"},
        {"Connection": "close"}, {"webhook-id": "x"}, {"Webhook-Signature": "x"}, {"Proxy-Authorization": "x"},
        {"X-A": "b\r\nX-B: c"}, {"X-A\r\nX-B": "c"}, {"X-A:": "b"}, {"": "b"}, {"X-A": ""}, {"X-A": "é"}, {"X-A": "b" * 1025},
        {"X-A": "b", "x-a": "c"}, {f"X-{number}": "b" for number in range(21)}, {"X-A": 5}, ["X-A: b"],
    ],
)  # fmt: skip
def test_headers_that_are_ours_or_none_are_refused(headers: Any) -> None:
    """And not shown, as they hold tokens."""
    _, faults = read_options(WebhookOptions, {"url": URL, "secret": SECRET, "headers": headers})

    assert [(fault.key, fault.shown) for fault in faults] == [("headers", "(hidden)")]


def test_the_preview_is_the_request(post: MemoryPost) -> None:
    """The URL as far as it may be shown, the id, and the body; nothing is sent."""
    where, message_id, blank, body = make(post).preview(DELIVERY).splitlines()

    assert (where, message_id, blank) == ("POST https://hooks.example/…", "webhook-id: hook:shop:0123456789abcdef-17", "")
    assert json.loads(body)["type"] == "orders.42.failed"
    assert post.requests == []
