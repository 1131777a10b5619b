"""The messages of a subscriber connection: topic and event of each, faults, and copies."""

import pytest

from headgate.delivery.bus.messages import Messages
from headgate.errors import HeadgateError, InvalidEvent, InvalidTopic, NotSerializable, PayloadTooLarge
from headgate.events.event import HEADER_TAG, Event
from headgate.redis.keys import channel, channel_prefix, user_channel

NAMESPACE, TIME_MS = "shop", 1_700_000_000_000
ORDERS = channel(NAMESPACE, "orders.1").encode()
USER = user_channel(NAMESPACE, "7").encode()
ON_CHANNEL, ON_GLOB = [b"message", ORDERS, b"0"], [b"pmessage", b"orders.*", ORDERS, b"0"]


@pytest.fixture
def messages() -> Messages:
    """The messages of a connection that begins."""
    return Messages(NAMESPACE, 64)


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
