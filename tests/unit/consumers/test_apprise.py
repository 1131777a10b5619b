"""Apprise without a service: its messages, the names of its services, and the faults of its options."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from headgate.consumers.apprise import MAX_URLS, Apprise, AppriseOptions
from headgate.consumers.base import Context, Delivery, Reject
from headgate.options import read_options

CONTEXT = Context("chat", "shop", cast(Any, None), cast(Any, None))


def read(table: dict[str, Any]) -> AppriseOptions:
    options, faults = read_options(AppriseOptions, table)
    assert options is not None, faults
    return options


def make(*urls: str, **table: Any) -> Apprise:
    return Apprise(read({"urls": list(urls or ["json://127.0.0.1"]), **table}), CONTEXT)


def delivery(data: bytes, key: str = "") -> Delivery:
    return Delivery("orders.42.failed", data, "order:42", 0, "0123456789abcdef", 17, namespace="shop", consumer="chat", key=key)


def message(sink: Apprise, data: bytes) -> tuple[str, str]:
    """Return title and body of the message about this data."""
    _, _, shown = sink.preview(delivery(data)).partition("To json://\n")
    title, _, body = shown.partition("\n\n")
    return title, body


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
def test_a_message_tells_the_event(data: bytes, title: str, body: str) -> None:
    """Without a template of the operator's own; a message without a body has its title there."""
    assert message(make(), data) == (title, body)


def test_the_text_of_an_event_is_no_template() -> None:
    """Jinja2 makes no more of it."""
    text = "{{ 7 * 7 }} {% if %}"

    assert message(make(body="{{ event.data.text }}"), json.dumps({"text": text}).encode()) == ("orders.42.failed", text)


def test_the_largest_event_is_a_message_of_bounded_length() -> None:
    """Shortened, not set aside."""
    _, body = message(make(), json.dumps({f"key {n} {'k' * 500}": "v" * 5000 for n in range(100)}).encode())

    assert 5_000 < len(body) < 15_000


def test_a_service_keeps_its_name_whatever_stands_beside_it() -> None:
    """Work that waits is not sent elsewhere when URLs are added, and set aside when its own is gone."""
    here, there = "json://127.0.0.1/a", "json://127.0.0.1/b"
    (key,) = make(there).keys(delivery(b"1"))

    assert key in make(here, there).keys(delivery(b"1"))
    assert len(make(here, there, here).keys(delivery(b"1"))) == 2
    with pytest.raises(Reject, match="no longer among the URLs"):
        make(here).handle(delivery(b"1", key))


def test_a_template_that_does_not_go_with_an_event_sets_it_aside() -> None:
    """With a reason that quotes the template and not the event; so does one that says nothing."""
    sink = make(body="{{ event.data.missing.deeper }}")
    (key,) = sink.keys(delivery(b"1"))
    with pytest.raises(Reject, match=r"body, line 1 .*a name that is not there") as refused:
        sink.handle(delivery(b'{"secret":"canary"}', key))
    assert "canary" not in refused.value.reason
    with pytest.raises(Reject, match="title and body are empty"):
        make(title="{{ '' }}", body="{{ event.data }}").handle(delivery(b'" "', key))


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
def test_a_fault_of_the_options_is_found_before_anything_is_sent(table: dict[str, Any], said: str) -> None:
    """A line each, without any more of a URL than its scheme."""
    assert Apprise.check(read(table), ["#"]) == [said]


def test_urls_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """With spaces or lines between; no more of them than in the file."""
    monkeypatch.setenv("CHAT", "json://127.0.0.1/a\n json://127.0.0.1/b")
    options = read({"urls_env": "CHAT"})
    assert Apprise.check(options, ["#"]) == []
    assert Apprise(options, CONTEXT).keys(delivery(b"1")) == make("json://127.0.0.1/a", "json://127.0.0.1/b").keys(delivery(b"1"))

    monkeypatch.setenv("CHAT", " ".join(f"json://a/{number}" for number in range(MAX_URLS + 1)))
    assert Apprise.check(options, ["#"])[0].startswith("urls_env='CHAT': this variable holds 33 URLs; expected 1 to 32")
