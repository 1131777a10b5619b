"""Apprise against a real receiver, by its own json:// service: what arrives, what failure means, and what is never shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from headgate.consumers.apprise import MAX_URLS, Apprise, AppriseOptions
from headgate.consumers.base import Context, Delivery, Reject, Retry
from headgate.options import read_options
from tests.support.http_receiver import Receiver, hang, status

CONTEXT = Context("chat", "shop", cast(Any, None), cast(Any, None))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def read(table: dict[str, Any]) -> AppriseOptions:
    options, faults = read_options(AppriseOptions, table)
    assert options is not None, faults
    return options


def make(*urls: str, **table: Any) -> Apprise:
    return Apprise(read({"urls": list(urls), **table}), CONTEXT)


def delivery(data: bytes, key: str = "") -> Delivery:
    return Delivery("orders.42.failed", data, "order:42", 0, "0123456789abcdef", 17, namespace="shop", consumer="chat", key=key)


def json_url(receiver: Receiver, path: str = "/") -> str:
    return receiver.url(path).replace("http://", "json://") + "?cto=30&rto=30"


def send(sink: Apprise, data: bytes) -> None:
    for key in sink.keys(delivery(data)):
        sink.handle(delivery(data, key))


@pytest.mark.parametrize(
    ("data", "title", "body"),
    [
        (b'{"title":"Order 42","amount":3,"why":"no stock","tags":["a"]}', "Order 42", 'amount: 3\nwhy: no stock\ntags: ["a"]'),
        (b'"plain"', "orders.42.failed", "plain"),
        (b"[1,2]", "orders.42.failed", "[1, 2]"),
        (b"{}", "", "orders.42.failed"),
        (b'{"title":"Order 42"}', "", "Order 42"),
        (b'{"title":5,"n":null}', "orders.42.failed", "n: null"),
    ],
)
def test_a_message_says_what_the_event_says(receiver: Receiver, data: bytes, title: str, body: str) -> None:
    """Without a template of one's own."""
    send(make(json_url(receiver)), data)

    (request,) = receiver.requests
    sent = json.loads(request.body)
    assert (sent["title"], sent["message"]) == (title, body)


def test_what_an_event_says_stays_text(receiver: Receiver) -> None:
    """Neither Jinja2 nor Apprise makes more of it."""
    text = "{{ 7 * 7 }} <b>bold</b> *x* \\n :smile: {title}"
    send(make(json_url(receiver), body="{{ event.data.text }}"), json.dumps({"text": text}).encode())

    assert json.loads(receiver.requests[0].body)["message"] == text


def test_the_largest_event_is_a_message_of_bounded_length(receiver: Receiver) -> None:
    """Shortened, not set aside."""
    send(make(json_url(receiver)), json.dumps({f"key {n} {'k' * 500}": "v" * 5000 for n in range(100)}).encode())

    assert 5_000 < len(json.loads(receiver.requests[0].body)["message"]) < 15_000


def test_each_service_is_a_part_of_the_work(receiver: Receiver) -> None:
    """What one does not take is tried again there, and the other does not get it twice."""
    with Receiver() as other:
        other.answer = status(500)
        sink = make(json_url(receiver), json_url(other), json_url(receiver))
        first, second = sink.keys(delivery(b"1"))
        sink.handle(delivery(b"1", first))
        with pytest.raises(Retry, match=r"^json:// did not take it \(failure\)$"):
            sink.handle(delivery(b"1", second))
        other.answer = status(200)
        sink.handle(delivery(b"1", second))

        assert (len(receiver.requests), len(other.requests)) == (1, 2)


def test_a_service_keeps_its_name_whatever_stands_beside_it(receiver: Receiver) -> None:
    """Work that waits is not sent elsewhere when URLs are added, and set aside when its own is gone."""
    here, there = json_url(receiver, "/a"), json_url(receiver, "/b")
    (key,) = make(there).keys(delivery(b"1"))

    assert key in make(here, there).keys(delivery(b"1"))
    with pytest.raises(Reject, match="no longer among the URLs"):
        make(here).handle(delivery(b"1", key))
    assert receiver.requests == []


def test_a_service_that_hangs_is_given_up_and_tried_again(receiver: Receiver) -> None:
    """By the service's own limits or by ours, whichever is first."""
    receiver.answer = hang()
    sink = make(json_url(receiver).replace("rto=30", "rto=0.2"), timeout_s=5)
    with pytest.raises(Retry, match="json:// did not take it"):
        send(sink, b"1")


@pytest.mark.parametrize("code", [302, 307, 308])
def test_a_redirect_is_followed_only_where_a_url_says_so(receiver: Receiver, code: int) -> None:
    """Whoever answers could else send the message, and us, anywhere."""
    with Receiver() as inside:
        receiver.answer = status(code, {"Location": inside.url("/latest/meta-data")})
        with pytest.raises(Retry, match="json:// did not take it"):
            send(make(json_url(receiver)), b"1")
        assert inside.connections == 0

        if code != 302:  # which would be followed with a GET
            send(make(json_url(receiver) + "&redirect=yes"), b"1")
            assert len(inside.requests) == 1


def test_a_template_that_does_not_go_with_an_event_sets_it_aside(receiver: Receiver) -> None:
    """With a reason that quotes the template and not the event; so does one that says nothing."""
    with pytest.raises(Reject, match=r"body, line 1 .*a name that is not there") as refused:
        send(make(json_url(receiver), body="{{ event.data.missing.deeper }}"), b'{"secret":"canary"}')
    assert "canary" not in refused.value.reason
    with pytest.raises(Reject, match="title and body are empty"):
        send(make(json_url(receiver), title="{{ '' }}", body="{{ event.data }}"), b'" "')
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "urls is missing; expected urls or urls_env"),
        ({"urls": "json://a", "urls_env": "CHAT"}, "urls and urls_env are both given; expected one of them"),
        ({"urls_env": "CHAT"}, "urls_env='CHAT': there is no such environment variable, or it is blank"),
        (
            {"urls": "canary://x"},
            "urls: one that starts with canary:// is not what Apprise expects of such a URL, or it knows none",
        ),
        (
            {"urls": "tgram://canary"},
            "urls: one that starts with tgram:// is not what Apprise expects of such a URL, or it knows none",
        ),
        (
            {"urls": "canary-token"},
            "urls: one that starts with (no scheme) is not what Apprise expects of such a URL, or it knows none",
        ),
        ({"urls": "json://a", "title": "{{ event.tpic }}"}, "title, line 1 ({{ event.tpic }}): a name that is not there"),
        ({"urls": "json://a", "body": "{% if %}"}, "body, line 1: Expected an expression, got 'end of statement block'"),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_sent(table: dict[str, Any], said: str) -> None:
    """A line each, without any more of a URL than its scheme."""
    assert Apprise.check(read(table), ["#"]) == [said]


def test_urls_may_be_in_the_environment(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With spaces or lines between; no more of them than in the file."""
    monkeypatch.setenv("CHAT", f"{json_url(receiver, '/a')}\n{json_url(receiver, '/b')}")
    options = read({"urls_env": "CHAT"})
    assert Apprise.check(options, ["#"]) == []
    send(Apprise(options, CONTEXT), b"1")
    assert [request.path for request in receiver.requests] == ["/a", "/b"]

    monkeypatch.setenv("CHAT", " ".join(f"json://a/{number}" for number in range(MAX_URLS + 1)))
    assert Apprise.check(options, ["#"])[0].startswith("urls_env='CHAT': this variable holds 33 URLs; expected 1 to 32")


def test_no_url_is_shown(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """They hold tokens and passwords: in no `repr`, preview, key, reason or log."""
    caplog.set_level(0)
    receiver.answer = status(500)
    url = json_url(receiver, "/canary-path").replace("json://", "json://canary-user:canary-word@")
    sink = make(url)
    with pytest.raises(Retry) as retry:
        send(sink, b'"canary-data"')
    _, faults = read_options(AppriseOptions, {"urls": [url] * 33})
    told = [repr(sink.options), retry.value.reason, caplog.text, *sink.keys(delivery(b"1")), *(fault.line() for fault in faults)]

    assert caplog.text  # Apprise did write something
    assert not [text for text in told if "canary" in text]
    assert sink.preview(delivery(b'"data"')) == "To json://\norders.42.failed\n\ndata"
