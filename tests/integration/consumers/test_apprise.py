"""Apprise against a real receiver, by its own json:// service: messages, failures, redirects, and secrets."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from msgspec import structs

from headgate.consumers.apprise import Apprise, AppriseOptions
from headgate.consumers.base import Context, Delivery, OutcomeUnknown, Retry
from headgate.settings.options import read_options
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


def test_each_service_is_a_part_of_the_work(receiver: Receiver) -> None:
    """A message that one does not take is tried again there, and the other does not get it twice."""
    with Receiver() as other:
        other.answer = status(500)
        sink = make(json_url(receiver), json_url(other), json_url(receiver))
        first, second = sink.keys(delivery(b"1"))
        sink.handle(delivery(b"1", first))
        with pytest.raises(OutcomeUnknown, match=r"^json:// did not take it, as far as Apprise knows \(failure\)$"):
            sink.handle(delivery(b"1", second))
        other.answer = status(200)
        sink.handle(delivery(b"1", second))

        assert (len(receiver.requests), len(other.requests)) == (1, 2)


def test_a_service_that_hangs_is_given_up_and_tried_again(receiver: Receiver) -> None:
    """By the service's own limits or by ours, whichever is first."""
    receiver.answer = hang()
    sink = make(json_url(receiver).replace("rto=30", "rto=0.2"), timeout_s=5)
    with pytest.raises(OutcomeUnknown, match="json:// did not take it"):
        send(sink, b"1")


def test_a_service_that_is_slow_to_fail_rests(receiver: Receiver) -> None:
    """As long as it took, without holding up another one. Its messages use up no attempt until then."""
    receiver.answer = status(500)
    clock = iter([0.0, 30.0, 59.0, 60.0, 60.5, 60.6, 61.0, 61.1])
    with Receiver() as other:
        sink = Apprise(read({"urls": [json_url(receiver), json_url(other)]}), CONTEXT, lambda: next(clock))
        slow, fast = sink.keys(delivery(b"1"))
        for expected in (OutcomeUnknown, Retry, OutcomeUnknown, OutcomeUnknown):
            with pytest.raises(Retry) as failed:
                sink.handle(delivery(b"1", slow))
            assert type(failed.value) is expected
        sink.handle(delivery(b"1", fast))
        assert (len(receiver.requests), len(other.requests)) == (3, 1)


def test_the_third_attempt_is_an_hour_after_the_second(receiver: Receiver) -> None:
    """However many deliveries there were without an attempt."""
    receiver.answer = status(500)
    sink = make(json_url(receiver))
    (key,) = sink.keys(delivery(b"1"))
    for attempt, unknown, after_s in ((1, 0, None), (5, 0, None), (6, 1, 3600)):
        with pytest.raises(OutcomeUnknown) as failed:
            sink.handle(structs.replace(delivery(b"1", key), attempt=attempt, unknown=unknown))
        assert failed.value.after_s == after_s


def test_a_redirect_is_followed_only_where_a_url_says_so(receiver: Receiver) -> None:
    """A receiver could else send the message, and us, anywhere."""
    with Receiver() as inside:
        for code in (302, 307, 308):
            receiver.answer = status(code, {"Location": inside.url("/latest/meta-data")})
            with pytest.raises(OutcomeUnknown, match="json:// did not take it"):
                send(make(json_url(receiver)), b"1")
            assert inside.connections == 0, code

        send(make(json_url(receiver) + "&redirect=yes"), b"1")
        assert len(inside.requests) == 1


def test_no_url_is_shown(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """They hold tokens and passwords, and are in no `repr`, preview, key, reason or log."""
    caplog.set_level(0)
    receiver.answer = status(500)
    url = json_url(receiver, "/canary-path").replace("json://", "json://canary-user:canary-word@")
    sink = make(url)
    with pytest.raises(OutcomeUnknown) as retry:
        send(sink, b'"canary-data"')
    _, faults = read_options(AppriseOptions, {"urls": [url] * 33})
    told = [repr(sink.options), retry.value.reason, caplog.text, *sink.keys(delivery(b"1")), *(fault.line() for fault in faults)]

    assert caplog.text  # Apprise did write something
    assert not [text for text in told if "canary" in text]
    assert sink.preview(delivery(b'"data"')) == "To json://\norders.42.failed\n\ndata"
