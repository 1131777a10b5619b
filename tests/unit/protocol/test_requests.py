"""The requests of clients: read into typed values, or refused with the field and the values that are allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, InvalidEvent, InvalidPattern, InvalidRequest
from headgate.protocol.packets import Overflow
from headgate.protocol.requests import (
    MAX_LAST,
    MAX_SEEN_IDS,
    Replay,
    Resume,
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


def test_a_subscription_needs_no_more_than_a_pattern() -> None:
    """Catching up is the default."""
    assert read_subscription({"pattern": "orders.*"}) == Subscription("orders.*", Overflow.CATCH_UP, None)


@pytest.mark.parametrize("overflow", ["catch_up", "latest", "drop"])
def test_a_subscription_names_its_overflow_policy(overflow: str) -> None:
    """By the words of the protocol."""
    assert read_subscription({"pattern": "a", "overflow": overflow}).overflow == overflow


@pytest.mark.parametrize(
    ("since", "read"),
    [
        ({"offset": 0}, Since(offset=0)),
        ({"offset": LARGEST}, Since(offset=LARGEST)),
        ({"time": 1_700_000_000_000}, Since(time_ms=1_700_000_000_000)),
        ({"last": 1}, Since(last=1)),
        ({"last": MAX_LAST}, Since(last=MAX_LAST)),
    ],
)
def test_a_subscription_may_begin_in_the_past(since: Any, read: Since) -> None:
    """After an offset, at a time, or with the last n."""
    assert read_subscription({"pattern": "a", "since": since}).since == read


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
        ({"pattern": "a", "since": {"time": 1, "epoch": EPOCH}}, "since: an epoch goes with an offset only"),
        ({"pattern": "a", "since": {"offset": 1, "epoch": "x"}}, "since.epoch: expected the epoch of"),
        ({"pattern": "a", "since": {"time": -1}}, "since.time: expected a whole number"),
        ({"pattern": "a", "since": {"last": 0}}, "since.last: expected a whole number from 1 to 1000"),
        ({"pattern": "a", "since": {"last": MAX_LAST + 1}}, "since.last: expected a whole number from 1 to 1000"),
    ],
)
def test_a_wrong_subscription_is_refused_with_what_is_expected(request_: Any, told: str) -> None:
    """The field, and what is allowed."""
    with pytest.raises(InvalidRequest) as refused:
        read_subscription(request_)
    assert told in refused.value.message


@pytest.mark.parametrize("request_", [{}, {"pattern": None}, {"pattern": ""}, {"pattern": "a..b"}, {"pattern": ["a"]}])
def test_a_subscription_without_a_pattern_is_refused_as_that(request_: Any) -> None:
    """The pattern has an error of its own."""
    with pytest.raises(InvalidPattern):
        read_subscription(request_)


def test_a_client_may_have_nothing_to_resume() -> None:
    """Its first connection."""
    assert read_resume(None) is None


def test_a_point_of_resume_is_an_epoch_and_an_offset() -> None:
    """As welcome and cursor gave them."""
    assert read_resume({"epoch": EPOCH, "offset": 0}) == Resume(EPOCH, 0)


@pytest.mark.parametrize(
    "request_",
    [
        5, [], "x", {}, {"epoch": EPOCH}, {"offset": 1}, {"epoch": EPOCH, "offset": -1}, {"epoch": EPOCH, "offset": "1"},
        {"epoch": EPOCH.upper(), "offset": 1}, {"epoch": EPOCH + "0", "offset": 1}, {"epoch": EPOCH + "\n", "offset": 1},
        {"epoch": None, "offset": 1}, {"epoch": EPOCH, "offset": 1, "session": "x"}, {"epoch": EPOCH, "offset": True},
        {"epoch": EPOCH, "offset": LARGEST + 1},
    ],
)  # fmt: skip
def test_a_wrong_point_of_resume_is_refused(request_: Any) -> None:
    """To take it for "nothing to resume" would hide everything since."""
    with pytest.raises(InvalidRequest):
        read_resume(request_)


def test_a_replay_is_a_pattern_and_a_range() -> None:
    """Both ends included; one offset is a range."""
    assert read_replay({"pattern": "a.#", "from": 3, "to": 3}) == Replay("a.#", 3, 3)


def test_offsets_may_be_meant_in_an_epoch() -> None:
    """Without one they are meant in the epoch that the log is in."""
    assert read_replay({"pattern": "a", "from": 3, "to": 4, "epoch": EPOCH}) == Replay("a", 3, 4, EPOCH)
    assert read_subscription({"pattern": "a", "since": {"offset": 5, "epoch": EPOCH}}).since == Since(offset=5, epoch=EPOCH)
    assert read_subscription({"pattern": "a", "since": {"offset": 5, "epoch": None}}).since == Since(offset=5)


@pytest.mark.parametrize(
    "request_",
    [
        {"pattern": "a"}, {"pattern": "a", "from": 0, "to": 1}, {"pattern": "a", "from": 2, "to": 1}, {"pattern": "a", "from": 1},
        {"pattern": "a", "from": 1, "to": 1.5}, {"pattern": "a", "from": 1, "to": 2, "limit": 5}, {"from": 1, "to": 2},
    ],
)  # fmt: skip
def test_a_wrong_replay_is_refused(request_: Any) -> None:
    """An end below its beginning included."""
    with pytest.raises((InvalidRequest, InvalidPattern)):
        read_replay(request_)


def test_a_report_of_shown_events_is_a_list_of_event_ids() -> None:
    """As many as may be in one request."""
    ids = [f"order:{number}" for number in range(MAX_SEEN_IDS)]

    assert read_seen({"ids": ids}) == ids


@pytest.mark.parametrize(
    "request_",
    [
        {}, {"ids": None}, {"ids": "a"}, {"ids": []}, {"ids": ["a"] * (MAX_SEEN_IDS + 1)}, {"ids": {"a": 1}},
        {"ids": ["a"], "user": "b"},
    ],
)  # fmt: skip
def test_a_report_of_shown_events_is_refused_when_it_is_no_such_list(request_: Any) -> None:
    """None, too many, or in another user's name."""
    with pytest.raises(InvalidRequest):
        read_seen(request_)


@pytest.mark.parametrize("event_id", ["", "a b", "a\n", "é", "a" * 129, 7, None, ["a"]])
def test_one_id_that_is_none_refuses_them_all(event_id: Any) -> None:
    """Nothing of the request is obeyed."""
    with pytest.raises(InvalidEvent):
        read_seen({"ids": ["good", event_id]})


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
        {"a": "\udfff"},
        {"\udc00": 1},
        [[[["x\ud800y"]]]],
        {"a": 10**30, "b": "\ud800"},
        {"a": [10**30], "b": [{"c": "\ud800\ud800"}]},
    ],
    ids=ascii,
)
def test_text_that_is_not_unicode_is_refused_wherever_it_is(request_: Any) -> None:
    """Also behind what the fast check stumbles over first."""
    with pytest.raises(InvalidRequest, match="surrogate"):
        check_text(request_)


def test_text_beside_one_that_is_not_unicode_is_looked_at_and_passed_over() -> None:
    """The one is found in whichever place it is."""
    with pytest.raises(InvalidRequest, match="surrogate"):
        check_text(["ü", "\ud800", "ü"])


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
