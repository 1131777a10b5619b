"""The Web Push consumer with a push service in memory: its requests, its answers, and the faults of its options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.consumers.base import Context, Delivery, Reject, Retry
from headgate.consumers.webpush.consumer import (
    MAX_SERVICES,
    MAX_SUBSCRIPTIONS,
    REST_TIMES,
    SLOW_S,
    WebPush,
    WebPushOptions,
)
from headgate.consumers.webpush.encryption import EXPECTED_KEY, MAX_PAYLOAD_BYTES, new_keys
from headgate.settings.addresses.http_target import Target
from headgate.settings.options import read_options
from tests.support.push_service import PushBrowser

PRIVATE, PUBLIC = new_keys()
ORIGIN = "https://push.example"
CONTEXT = Context("push", "shop", cast(Any, None), cast(Any, None))
ITEM = Delivery(
    "users.ana.inbox.orders.failed", b'{"title":"Order 42","why":"no stock"}', "42", 0, "0123456789abcdef", 17,
    namespace="shop", consumer="push",
)  # fmt: skip
# The data of the application, by user, and the endpoints that were reported as gone.
kept: dict[str, Any] = {}
gone: list[str] = []


def subscriptions(delivery: Delivery) -> Any:
    """Stand for an application's own function."""
    return kept.get(delivery.topic.split(".")[1], [])


class Services:
    """Push services in memory: the posts, and the next answers."""

    def __init__(self, *answers: tuple[int, float | None]) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers = list(answers)
        self.now_s = self.takes_s = 0.0
        self.open: list[str] = []

    def connect(self, target: Target) -> MemoryPost:
        self.open.append(target.origin)
        return MemoryPost(self, target.origin)


class MemoryPost:
    """Stands for HttpPost."""

    def __init__(self, services: Services, origin: str) -> None:
        self._services, self._origin = services, origin

    def post(self, headers: Mapping[str, str], body: bytes, path: str | None = None) -> tuple[int, float | None]:
        lower = {name.lower(): value for name, value in headers.items()}
        self._services.requests.append((f"{self._origin}{path}", lower, body))
        self._services.now_s += self._services.takes_s
        return self._services.answers.pop(0) if self._services.answers else (201, None)

    def close(self) -> None:
        self._services.open.remove(self._origin)


@pytest.fixture(autouse=True)
def _application() -> None:
    kept.clear()
    gone.clear()


COMMON: dict[str, Any] = {
    "private_key": PRIVATE, "contact": "mailto:ops@example.com",
    "subscriptions_function": f"{__name__}:subscriptions", "gone_function": f"{__name__}:forget",
}  # fmt: skip


def read(table: dict[str, Any]) -> WebPushOptions:
    options, faults = read_options(WebPushOptions, COMMON | table)
    assert options is not None, faults
    return options


def forget(endpoint: str) -> None:
    """Stand for an application's own function."""
    gone.append(endpoint)


def make(services: Services, **table: Any) -> WebPush:
    return WebPush(read(table), CONTEXT, cast(Any, services.connect), lambda: services.now_s)


def handle_each(push: WebPush, delivery: Delivery = ITEM) -> None:
    for key in push.keys(delivery):
        push.handle(structs.replace(delivery, key=key))


def test_each_browser_of_the_user_gets_a_message_that_only_it_can_read() -> None:
    """It is signed for the service of its endpoint, and names the item of the inbox."""
    phone, laptop = PushBrowser(f"{ORIGIN}/a?b=c"), PushBrowser("https://other.example/d")
    kept["ana"], kept["ben"] = [phone.subscription, json.dumps(laptop.subscription)], [PushBrowser(f"{ORIGIN}/ben").subscription]
    services = Services()

    handle_each(make(services))

    (first, first_headers, first_body), (second, second_headers, second_body) = services.requests
    expected = {"title": "Order 42", "body": "why: no stock", "topic": ITEM.topic, "item": "orders.failed/42"}
    assert (first, second) == (f"{ORIGIN}/a?b=c", "https://other.example/d")
    assert phone.receive(first_headers, first_body, PUBLIC, ORIGIN) == expected
    assert laptop.receive(second_headers, second_body, PUBLIC, "https://other.example") == expected
    assert (first_headers["ttl"], first_headers["urgency"]) == ("86400", "normal")


def test_an_attempt_replaces_the_one_before_at_the_service() -> None:
    """Both have one Topic of the 32 characters that RFC 8030 allows, and another browser's message has another one."""
    kept["ana"] = [PushBrowser(f"{ORIGIN}/{number}").subscription for number in range(2)]
    services, event = Services(), structs.replace(ITEM, attempt=2)
    push = make(services)

    handle_each(push)
    handle_each(push, event)

    one, two, again, two_again = [headers["topic"] for _, headers, _ in services.requests]
    assert (one, two) == (again, two_again)
    assert one != two
    assert len(one) == 32


@pytest.mark.parametrize("status", [404, 410])
def test_an_endpoint_that_is_gone_is_removed(status: int) -> None:
    """The application's function gets it once, and the work is done."""
    kept["ana"] = [PushBrowser(f"{ORIGIN}/old").subscription, PushBrowser(f"{ORIGIN}/new").subscription]

    handle_each(make(Services((status, None))))

    assert gone == [f"{ORIGIN}/old"]


@pytest.mark.parametrize(
    ("status", "error"), [(413, Reject), (400, Retry), (401, Retry), (429, Retry), (500, Retry), (302, Retry)]
)
def test_any_other_answer_is_a_failure(status: int, error: type[Exception]) -> None:
    """The reason names the service and the status, and has nothing of the endpoint's path."""
    kept["ana"] = [PushBrowser(f"{ORIGIN}/secret").subscription]

    with pytest.raises(error, match=rf"^{ORIGIN} answered {status}") as failed:
        handle_each(make(Services((status, None))))

    assert "secret" not in str(failed.value)
    assert gone == []


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.05, 0.9, 1.2, 15.0])), max_size=60))
def test_however_many_accounts_have_slow_endpoints_they_take_a_quarter_of_a_workers_time(pushes: list[tuple[int, float]]) -> None:
    """Whatever they did before; time in which nothing may be sent passes for others."""
    services, slow_s, began_s = Services(), 0.0, 1000.0
    services.now_s = began_s
    push = make(services)
    for number, takes_s in pushes:
        kept["ana"] = [PushBrowser(f"https://{number}.example/").subscription]
        services.takes_s = takes_s
        try:
            handle_each(push)
        except Retry as rests:
            services.now_s += rests.after_s or 0.0
        else:
            slow_s += max(0.0, takes_s - SLOW_S)
    services.now_s = max(services.now_s, push._rest_until_s)
    assert slow_s <= (services.now_s - began_s) / (1 + REST_TIMES) + 1e-6


def test_a_known_service_is_not_held_up_by_an_unknown_one() -> None:
    """A browser's, or one that the operator allows. The users of other services wait together, however many there are."""
    for user in ("ana", "ben", "cy"):
        kept[user] = [PushBrowser(f"https://{user}.example/").subscription]
    kept["dee"] = [PushBrowser("https://fcm.googleapis.com/fcm/send/x").subscription]
    of = {user: structs.replace(ITEM, topic=f"users.{user}.inbox.orders.failed") for user in kept}
    services = Services()
    push = make(services, allow_private=["cy.example:443"])

    services.takes_s = 15.0
    handle_each(push, of["ana"])
    services.takes_s = 0.1
    with pytest.raises(Retry, match="took long") as rests:
        handle_each(push, of["ben"])
    for user in ("cy", "dee"):
        handle_each(push, of[user])

    assert rests.value.after_s == REST_TIMES * (15.0 - SLOW_S)


def test_a_browser_that_has_unsubscribed_meanwhile_gets_nothing() -> None:
    """Work that waited for another attempt is done."""
    kept["ana"] = [PushBrowser(f"{ORIGIN}/a").subscription]
    services = Services()
    push = make(services)
    (key,) = push.keys(ITEM)
    kept["ana"] = []

    push.handle(structs.replace(ITEM, key=key))

    assert services.requests == []


def test_a_user_without_a_subscription_is_no_work() -> None:
    """So is an event of no user, for which the function returns none."""
    assert make(Services()).keys(ITEM) == ()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"endpoint": "http://push.example/1"}, "expected an https endpoint"),
        ({"endpoint": "https://user:canary@push.example/1"}, "a subscription is invalid: "),
        ({"endpoint": "canary"}, "a subscription is invalid: "),
        ({"keys": {}}, 'expected {"endpoint", "keys"'),
    ],
)
def test_what_is_no_subscription_is_set_aside_by_itself(raw: dict[str, Any], said: str) -> None:
    """The other browsers of the user get their messages."""
    kept["ana"] = [PushBrowser(f"{ORIGIN}/a").subscription | raw, PushBrowser(f"{ORIGIN}/b").subscription]
    services = Services()
    push = make(services)
    bad, good = (structs.replace(ITEM, key=key) for key in push.keys(ITEM))

    with pytest.raises(Reject) as refused:
        push.handle(bad)
    push.handle(good)

    assert said in refused.value.reason
    assert "canary" not in refused.value.reason
    assert len(services.requests) == 1


def test_what_is_no_subscription_is_reported_although_it_is_another_object_each_time() -> None:
    """Rows of a database have no text that stays the same, so they are not taken for a browser that has unsubscribed."""
    kept["ana"] = (object() for _ in range(2))
    push = make(Services())
    (key, _) = push.keys(ITEM)
    kept["ana"] = [object()]

    with pytest.raises(Reject, match="a subscription is invalid"):
        push.handle(structs.replace(ITEM, key=key))


@pytest.mark.parametrize("as_text", [False, True])
def test_one_subscription_need_not_be_in_a_list(as_text: bool) -> None:
    """It is not taken apart."""
    subscription = PushBrowser(f"{ORIGIN}/a").subscription
    kept["ana"] = json.dumps(subscription) if as_text else subscription
    handle_each(make(services := Services()))

    assert [url for url, _, _ in services.requests] == [f"{ORIGIN}/a"]


def test_a_user_with_too_many_subscriptions_is_refused() -> None:
    """One sentence with the bound. An application that does not remove old ones notices."""
    kept["ana"] = [PushBrowser(f"{ORIGIN}/a").subscription | {"endpoint": f"{ORIGIN}/{n}"} for n in range(MAX_SUBSCRIPTIONS + 1)]
    with pytest.raises(Reject, match=f"^subscriptions_function: expected at most {MAX_SUBSCRIPTIONS} subscriptions, got more$"):
        make(Services()).keys(ITEM)


def test_connections_are_bounded_whatever_endpoints_browsers_name() -> None:
    """The service that was not used for longest is closed for a new one, and `close` closes all."""
    kept["ana"] = [PushBrowser(f"https://{number}.example/").subscription for number in range(MAX_SERVICES + 3)]
    services = Services()
    push = make(services)

    handle_each(push)

    assert services.open == [f"https://{number}.example" for number in range(3, MAX_SERVICES + 3)]
    push.close()
    assert services.open == []


@given(title=st.text(max_size=5000), body=st.text(max_size=40_000), kind=st.integers(1, 200))
def test_any_event_fits_into_a_push_message(title: str, body: str, kind: int) -> None:
    """Title and body are cut, and the beginning of each remains, and JSON."""
    data = json.dumps({"title": title, "text": body}).encode()
    event = structs.replace(ITEM, topic=f"users.ana.inbox.{'k' * kind}", data=data)

    payload = make(Services()).preview(event).partition("\n")[2]

    shown = json.loads(payload)
    assert len(payload.encode()) <= MAX_PAYLOAD_BYTES
    assert len(shown["title"]) <= 120
    assert len(shown["body"]) <= 1000


def test_a_body_of_wide_letters_is_cut_until_the_message_fits() -> None:
    event = structs.replace(ITEM, data=json.dumps({"title": "😀" * 200, "a": "😀" * 2000, "b": "😀" * 2000}).encode())
    shown = json.loads(make(Services()).preview(event).partition("\n")[2])
    assert (len(shown["title"]), len(shown["body"]), shown["body"][-2:]) == (120, 501, "😀…")


def test_an_event_that_is_no_item_names_none() -> None:
    """The service worker has nothing to mark as read."""
    event = structs.replace(ITEM, topic="users.ana.alerts.disk")
    assert json.loads(make(Services()).preview(event).partition("\n")[2])["item"] is None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"subscriptions_function": "os:sep"}, "subscriptions_function='os:sep': expected a function"),
        ({"gone_function": "os:no"}, "gone_function='os:no': module 'os' has no 'no'; expected package.module:function"),
        ({"title": "{{ evnt }}"}, "title: unknown name 'evnt'; there are event"),
        ({"ca_file": "/nowhere.pem"}, "ca_file='/nowhere.pem': no such file or directory"),
    ],
)
def test_a_fault_of_the_options_is_found_first(table: dict[str, Any], said: str) -> None:
    """A line each."""
    options, faults = read_options(WebPushOptions, COMMON | table)
    assert ([fault.line() for fault in faults] if options is None else WebPush.check(options, ["#"])) == [said]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"private_key": "canary"}, EXPECTED_KEY),
        ({"contact": "ops@example.com"}, "mailto:ops@example.com or an https URL"),
        ({"urgency": "urgent"}, "very-low, low, normal or high"),
        ({"ttl_s": -1}, "a number from 0 to 2419200 seconds"),
    ],
)
def test_an_option_of_a_wrong_form_is_refused(table: dict[str, Any], expected: str) -> None:
    """The fault names the expected form, and nothing of a key."""
    _, faults = read_options(WebPushOptions, COMMON | table)
    (line,) = [fault.line() for fault in faults]
    assert line.endswith(f"expected {expected}")
    assert "canary" not in line
