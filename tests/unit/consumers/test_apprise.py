"""Apprise without a service: its messages, the names of its services, and the faults of its options."""

import json
from typing import Any, cast

import apprise
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.consumers.apprise import EXPECTED_URLS, MAX_URLS, Apprise, AppriseOptions, _filled
from headgate.consumers.base import Context, Delivery, Reject
from headgate.events.topic import user_topic
from headgate.settings.options import read_options

UNKNOWN = "urls: one that starts with {} is not what Apprise expects of such a URL, or it knows none"
EXPECTED = f"expected {EXPECTED_URLS}"
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
        (b'{"title":" ","n":1}', "orders.42.failed", "n: 1"),
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
    data = {"title": "t" * 60_000, **{f"key {n} {'k' * 500}": "v" * 5000 for n in range(100)}}
    title, body = message(make(), json.dumps(data).encode())

    assert len(title) == 900
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
        ({"urls": "canary://x"}, UNKNOWN.format("canary://")),
        ({"urls": "tgram://canary"}, UNKNOWN.format("tgram://")),
        ({"urls": "canary-token"}, UNKNOWN.format("(no scheme)")),
        ({"urls": "canary://x/{user}"}, UNKNOWN.format("canary://")),
        (
            {"urls": "json://a", "address_function": "os:listdir"},
            "address_function: no URL has a place for an address; expected urls with {user}",
        ),
        ({"urls": "json://a/{user}", "address_function": "os:sep"}, "address_function='os:sep': expected a function"),
        ({"urls": "json://a", "title": "{{ event.tpic }}"}, "title, line 1 ({{ event.tpic }}): a name that is not there"),
        ({"urls": "json://a", "body": "{% if %}"}, "body, line 1: Expected an expression, got 'end of statement block'"),
    ],
)
def test_a_fault_of_the_options_is_found_first(table: dict[str, Any], said: str) -> None:
    """A line each, without any more of a URL than its scheme."""
    options, faults = read_options(AppriseOptions, table)
    assert ([fault.line() for fault in faults] if options is None else Apprise.check(options, ["#"])) == [said]


@pytest.mark.parametrize(("url", "channel"), [("json://a/{user}", "push"), ("json://a", None)])
def test_users_may_mute_messages_to_themselves_only(url: str, channel: str | None) -> None:
    assert Apprise.channel(read({"urls": url})) == channel


@pytest.mark.parametrize(
    ("urls", "wrong"),
    [
        (None, f"is missing; {EXPECTED}"),
        ([], f"{EXPECTED}; there are 0"),
        ([f"json://a/{number}" for number in range(MAX_URLS + 1)], f"{EXPECTED}; there are 33"),
        (["json://a", "json://a/{user}"], "{user} is in some of them; expected it in all or none"),
    ],
)
def test_urls_that_do_not_go_together_are_refused(urls: list[str] | None, wrong: str) -> None:
    """Without any of them in the fault. Text with spaces or lines between them is as good as a list."""
    assert [fault.wrong for fault in read_options(AppriseOptions, {"urls": urls})[1]] == [wrong]
    assert read({"urls": "json://a\n json://b json://a"}).urls == ("json://a", "json://b")


# One user ------------------------------------------------------------------------------------------------------------------


def sent_to(table: dict[str, Any], topic: str) -> list[str]:
    """Return the URLs that an event of this topic goes to."""
    sink = Apprise(read(table), CONTEXT)
    event = Delivery(topic, b"1", "1", 0, "0123456789abcdef", 17, namespace="shop", consumer="chat")
    found: list[str] = []

    class Service:
        def __init__(self, url: str) -> None:
            self.url = url

        def notify(self, *_: object, **__: object) -> bool:
            found.append(self.url)
            return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.consumers.apprise._service", lambda url, _: Service(url))
        for key in sink.keys(event):
            sink.handle(structs.replace(event, key=key))
    return found


def addresses(delivery: Delivery) -> list[str]:
    """Stand for an application's own function."""
    return ["1001", "@ana"] if delivery.topic.startswith("users.ana.") else []


def one_address(delivery: Delivery) -> str:
    """Stand for one that returns text."""
    return "1001"


def test_a_template_sends_to_the_user_whose_topic_it_is() -> None:
    """The name is percent-encoded, and an event outside a user's topics goes to no recipient."""
    table = {"urls": ["json://a/{user}", "json://b/?to={user}"]}

    assert sent_to(table, user_topic("ana@example.org", "inbox.due")) == [
        "json://a/ana%40example.org",
        "json://b/?to=ana%40example.org",
    ]
    assert sent_to(table, user_topic("Ána?&#", "inbox.due"))[0] == "json://a/%C3%81na%3F%26%23"
    assert sent_to(table, "orders.42.failed") == []


def test_a_function_returns_the_addresses_that_the_template_takes() -> None:
    """Each address is a part of the work by itself; an empty list sends nothing."""
    table = {
        "urls": "tgram://123456789:abcdefghijklmnopqrstuvwxyz_12345678/{user}",
        "address_function": f"{__name__}:addresses",
    }

    assert [url.rpartition("/")[2] for url in sent_to(table, "users.ana.inbox.due")] == ["1001", "%40ana"]
    assert sent_to(table, "users.ben.inbox.due") == []


def test_text_from_a_function_is_one_address() -> None:
    """Not one for each of its letters, which may be the names of others."""
    assert sent_to({"urls": "json://a/{user}", "address_function": f"{__name__}:one_address"}, "a") == ["json://a/1001"]


@pytest.mark.parametrize("name", ["ana,ben", "ana ben", "ana;ben", "ana/ben", "ana\\ben", "[ana]", "ana%2Cben"])
def test_a_name_that_apprise_would_read_as_several_targets_is_refused(name: str) -> None:
    """No user's name sends a message to another user; the reason has none of it."""
    with pytest.raises(Reject, match=r"^json:// cannot have this address; expected text without blanks") as refused:
        sent_to({"urls": "json://a/{user}"}, user_topic(name, "inbox.due"))
    assert name not in refused.value.reason


@given(name=st.text(min_size=1, max_size=20))
def test_apprise_reads_one_target_from_any_name_that_is_accepted(name: str) -> None:
    """Apprise itself takes the URL apart again, and the target is the name, whatever its characters."""
    try:
        (url,) = (_filled("vapid://ops@example.com/{user}", name),)
    except Reject:
        return
    asset = apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY, pem_autogen=False)
    assert [each.lower() for each in cast(Any, apprise.Apprise.instantiate(url, asset=asset)).targets] == [name.lower()]
