"""The requests of clients: read into typed values, or refused with the field and the allowed values."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, InvalidEvent, InvalidPattern, InvalidRequest
from headgate.events.wire.packets import Overflow
from headgate.events.wire.requests import (
    MAX_LAST,
    MAX_SEEN_IDS,
    Position,
    Since,
    Subscription,
    check_text,
    read_replay,
    read_resume,
    read_seen,
    read_subscription,
)

EPOCH = "0123456789abcdef"
LARGEST = 2**53 - 1


def since(request: Any) -> Subscription:
    return read_subscription({"pattern": "a", "since": request})


@pytest.mark.parametrize(
    ("read", "request_", "value"),
    [
        (read_subscription, {"pattern": "orders.*"}, Subscription("orders.*", Overflow.CATCH_UP, None)),
        *((read_subscription, {"pattern": "a", "overflow": each}, Subscription("a", Overflow(each), None)) for each in Overflow),
        *((since, {"offset": each}, Subscription("a", Overflow.CATCH_UP, Since(offset=each))) for each in (0, LARGEST)),
        *((since, {"last": each}, Subscription("a", Overflow.CATCH_UP, Since(last=each))) for each in (1, MAX_LAST)),
        (since, {"time": 1_700_000_000_000}, Subscription("a", Overflow.CATCH_UP, Since(time_ms=1_700_000_000_000))),
        (since, {"offset": 5, "epoch": EPOCH}, Subscription("a", Overflow.CATCH_UP, Since(offset=5, epoch=EPOCH))),
        (since, {"offset": 5, "epoch": None}, Subscription("a", Overflow.CATCH_UP, Since(offset=5))),
        (read_resume, None, None),
        (read_resume, {"epoch": EPOCH, "offset": 0}, Position(EPOCH, 0)),
        (read_replay, {"pattern": "a.#", "from": 3, "to": 3}, ("a.#", 3, 3, None)),
        (read_replay, {"pattern": "a", "from": 3, "to": 4, "epoch": EPOCH}, ("a", 3, 4, EPOCH)),
        (read_seen, {"ids": [f"order:{number}" for number in range(MAX_SEEN_IDS)]}, [f"order:{n}" for n in range(MAX_SEEN_IDS)]),
    ],
)
def test_a_request_is_read_into_its_value(read: Callable[[Any], object], request_: Any, value: object) -> None:
    """A range of one offset is one, a client may have nothing to resume, and an epoch may be left out."""
    assert read(request_) == value


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (None, "expected an object such as"),
        ("orders.*", "expected an object such as"),
        (["orders.*"], "expected an object such as"),
        ({"pattern": "a", "overfow": "drop"}, "unknown field 'overfow'; known: overflow, pattern, since"),
        ({"pattern": "a", "overflow": "DROP"}, "overflow: expected one of catch_up, latest, drop"),
        ({"pattern": "a", "overflow": None}, "overflow: expected one of"),
        ({"pattern": "a", "overflow": ["drop"]}, "overflow: expected one of"),
        ({"pattern": "a", "since": 5}, "expected an object such as {offset, epoch}, {time} or {last}"),
        ({"pattern": "a", "since": {}}, "since: expected exactly one of offset, time, last"),
        ({"pattern": "a", "since": {"offset": 1, "last": 2}}, "since: expected exactly one of"),
        ({"pattern": "a", "since": {"ofset": 1}}, "unknown field 'ofset'; known: epoch, last, offset, time"),
        ({"pattern": "a", "since": {"offset": -1}}, "since.offset: expected a whole number from 0"),
        ({"pattern": "a", "since": {"offset": 1.0}}, "since.offset: expected a whole number"),
        ({"pattern": "a", "since": {"offset": True}}, "since.offset: expected a whole number"),
        ({"pattern": "a", "since": {"offset": "1"}}, "since.offset: expected a whole number"),
        ({"pattern": "a", "since": {"offset": None}}, "since.offset: expected a whole number"),
        ({"pattern": "a", "since": {"offset": LARGEST + 1}}, "since.offset: expected a whole number"),
        ({"pattern": "a", "since": {"epoch": EPOCH}}, "since: expected exactly one of"),
        ({"pattern": "a", "since": {"time": 1, "epoch": EPOCH}}, "since: expected an epoch only with an offset"),
        ({"pattern": "a", "since": {"offset": 1, "epoch": "x"}}, "since.epoch: expected the epoch of"),
        ({"pattern": "a", "since": {"time": -1}}, "since.time: expected a whole number"),
        ({"pattern": "a", "since": {"last": 0}}, "since.last: expected a whole number from 1 to 1000"),
        ({"pattern": "a", "since": {"last": MAX_LAST + 1}}, "since.last: expected a whole number from 1 to 1000"),
    ],
)
def test_a_wrong_subscription_is_refused_with_what_is_expected(request_: Any, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_subscription(request_)
    assert told in refused.value.message


@pytest.mark.parametrize("request_", [{}, {"pattern": None}, {"pattern": ""}, {"pattern": "a..b"}, {"pattern": ["a"]}])
def test_a_subscription_without_a_pattern_is_refused_as_that(request_: Any) -> None:
    """The pattern has a separate error."""
    with pytest.raises(InvalidPattern):
        read_subscription(request_)


WRONG: dict[Callable[[Any], object], list[Any]] = {
    read_resume: [
        5, [], "x", {}, {"epoch": EPOCH}, {"offset": 1}, {"epoch": EPOCH, "offset": -1}, {"epoch": EPOCH, "offset": "1"},
        {"epoch": EPOCH.upper(), "offset": 1}, {"epoch": EPOCH + "0", "offset": 1}, {"epoch": EPOCH + "\n", "offset": 1},
        {"epoch": None, "offset": 1}, {"epoch": EPOCH, "offset": 1, "session": "x"}, {"epoch": EPOCH, "offset": True},
        {"epoch": EPOCH, "offset": LARGEST + 1},
    ],
    read_replay: [
        {"pattern": "a"}, {"pattern": "a", "from": 0, "to": 1}, {"pattern": "a", "from": 2, "to": 1}, {"pattern": "a", "from": 1},
        {"pattern": "a", "from": 1, "to": 1.5}, {"pattern": "a", "from": 1, "to": 2, "limit": 5}, {"from": 1, "to": 2},
    ],
    read_seen: [
        {}, {"ids": None}, {"ids": "a"}, {"ids": []}, {"ids": ["a"] * (MAX_SEEN_IDS + 1)}, {"ids": {"a": 1}},
        {"ids": ["a"], "user": "b"}, *({"ids": ["good", each]} for each in ("", "a b", "a\n", "é", "a" * 129, 7, None, ["a"])),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("read", "request_"), [(read, each) for read, wrong in WRONG.items() for each in wrong])
def test_a_wrong_request_is_refused_as_a_whole(read: Callable[[Any], object], request_: Any) -> None:
    """A wrong point of resume that was taken for "nothing to resume" would hide everything since."""
    with pytest.raises((InvalidRequest, InvalidPattern, InvalidEvent)):
        read(request_)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
fields = st.sampled_from(["pattern", "overflow", "since", "epoch", "offset", "from", "to", "last", "time", "ids", "__proto__"])


@pytest.mark.parametrize("read", [read_subscription, read_resume, read_replay, read_seen])
@given(request_=json_values | st.dictionaries(fields, json_values))
def test_whatever_a_browser_sends_is_read_or_refused(read: Any, request_: Any) -> None:
    """With an error of our tree, which becomes an acknowledgement, and nothing else."""
    message = ""
    try:
        read(request_)
    except HeadgateError as refused:
        message = refused.message
    assert len(message) < 500


@pytest.mark.parametrize(
    "request_",
    [
        "\ud800",
        ["ü", "\ud800", "ü"],
        {"a": "\udfff"},
        {"\udc00": 1},
        [[[["x\ud800y"]]]],
        {"a": 10**30, "b": "\ud800"},
        {"a": [10**30], "b": [{"c": "\ud800\ud800"}]},
    ],
    ids=ascii,
)
def test_text_that_is_not_unicode_is_refused_wherever_it_is(request_: Any) -> None:
    """Also after the first stumbling block of the fast check."""
    with pytest.raises(InvalidRequest, match="surrogate"):
        check_text(request_)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_text_that_is_unicode_passes(request_: Any) -> None:
    """Any text without surrogates passes, as Hypothesis' own has none."""
    check_text(request_)
