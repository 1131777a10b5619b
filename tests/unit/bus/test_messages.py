"""The messages of a subscriber connection: topic and event of each, faults, and copies."""

from __future__ import annotations

import pytest

from headgate.delivery.bus.messages import Messages
from headgate.errors import HeadgateError, InvalidEvent, InvalidTopic, NotSerializable, PayloadTooLarge
from headgate.events.event import HEADER_TAG, Event
from headgate.redis.keys import channel, channel_prefix, feed_channel, user_channel

NAMESPACE, TIME_MS = "shop", 1_700_000_000_000
ORDERS = channel(NAMESPACE, "orders.1").encode()
USER = user_channel(NAMESPACE, "7").encode()
FEED = feed_channel(NAMESPACE).encode()
ON_CHANNEL, ON_GLOB = [b"message", ORDERS, b"0"], [b"pmessage", b"orders.*", ORDERS, b"0"]


@pytest.fixture
def messages() -> Messages:
    """The messages of a connection that begins."""
    return Messages(NAMESPACE, 64)


def test_the_channel_names_the_topic_and_the_clock_the_time(messages: Messages) -> None:
    """A plain publish carries neither."""
    event = messages.decode(ORDERS, b'{"a":1}', TIME_MS)
    assert isinstance(event, Event)
    assert (event.topic, event.data, event.time_ms, event.offset) == ("orders.1", b'{"a":1}', TIME_MS, None)


@pytest.mark.parametrize("where", [USER, FEED], ids=["user", "feed"])
def test_on_a_channel_of_several_topics_the_topic_stands_before_the_message(messages: Messages, where: bytes) -> None:
    """One channel brings every topic of a user, or all there are."""
    event = messages.decode(where, b"users.7.mail\n1", TIME_MS)
    assert isinstance(event, Event)
    assert (event.topic, event.data) == ("users.7.mail", b"1")


@pytest.mark.parametrize(
    ("where", "message", "fault"),
    [
        (channel_prefix(NAMESPACE).encode() + b"a..b", b"1", InvalidTopic),
        (channel_prefix(NAMESPACE).encode() + "ä".encode(), b"1", InvalidTopic),
        (ORDERS, b"1" * 65, PayloadTooLarge),
        (ORDERS, HEADER_TAG + b"x\n1", InvalidEvent),
        (USER, b"no line", InvalidTopic),
        (USER, b"users.7.*\n1", InvalidTopic),
        (USER, b"users." + b"7" * 250 + b"\n1", InvalidTopic),
        (USER, b"users.7.mail", NotSerializable),
        (USER, b"users.7.mail\n" + b"1" * 65, PayloadTooLarge),
        (USER, b"users.7.mail\n" + HEADER_TAG + b"x\n1", InvalidEvent),
    ],
)
def test_a_message_without_an_event_is_a_fault_and_does_not_raise(
    messages: Messages, where: bytes, message: bytes, fault: type[HeadgateError]
) -> None:
    """Another program may have published it."""
    assert isinstance(messages.decode(where, message, TIME_MS), fault)


def test_known_topics_are_bounded(messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that come once must not stay, and one that was forgotten is learnt again."""
    monkeypatch.setattr("headgate.delivery.bus.messages.MAX_KNOWN_TOPICS", 3)
    for number in (*range(10), 0, 9, 9):
        event = messages.decode(USER, b"users.7.%d\n1" % number, TIME_MS)
        assert isinstance(event, Event)
        assert event.topic == f"users.7.{number}"
        assert len(messages._topics) <= 3


def test_a_new_topic_takes_the_place_of_the_oldest_one_alone(messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others need no second check, however many topics are in use."""
    monkeypatch.setattr("headgate.delivery.bus.messages.MAX_KNOWN_TOPICS", 3)
    for number in range(4):
        messages.decode(USER, b"users.7.%d\n1" % number, TIME_MS)
    assert list(messages._topics) == [b"users.7.1", b"users.7.2", b"users.7.3"]


@pytest.mark.parametrize(("where", "before"), [(ORDERS, b""), (USER, b"users.7.mail\n")], ids=["topic", "user"])
def test_a_bad_event_still_claims_its_place_in_the_log(messages: Messages, where: bytes, before: bytes) -> None:
    """The feed asks the log about it, and tells the clients a gap."""
    header = HEADER_TAG + b"0123456789abcdef 5 1700000000000 id"
    assert messages.claimed_place(where, before + b"NaN") is None
    epoch_and_offset = messages.claimed_place(where, before + header + b"\nNaN")
    assert epoch_and_offset == ("0123456789abcdef", 5)


def test_a_publish_through_several_sources_has_copies(messages: Messages) -> None:
    """Redis sends one message through each source, back to back."""
    assert [messages.is_copy(reply) for reply in (ON_CHANNEL, ON_GLOB, [b"pmessage", b"#", ORDERS, b"0"])] == [False, True, True]


def test_a_source_that_comes_again_brings_the_next_publish(messages: Messages) -> None:
    """Even if the message is the same, byte for byte."""
    assert [messages.is_copy(reply) for reply in (ON_GLOB, ON_CHANNEL, ON_GLOB, ON_CHANNEL)] == [False, True, False, True]


def test_a_message_of_another_channel_is_no_copy(messages: Messages) -> None:
    """The copies of a publish are all of one channel."""
    other = [b"message", channel(NAMESPACE, "orders.2").encode(), b"0"]
    assert [messages.is_copy(reply) for reply in (ON_CHANNEL, other, ON_GLOB)] == [False, False, False]


def test_nothing_is_a_copy_of_a_message_before_the_sources_changed(messages: Messages) -> None:
    """The acknowledgement of the change stands between the two."""
    messages.is_copy(ON_CHANNEL)
    messages.forget_copies()
    assert not messages.is_copy(ON_GLOB)
