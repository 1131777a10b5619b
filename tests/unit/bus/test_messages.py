"""The messages of a subscriber connection: topic and event of each, faults, and copies."""

import pytest

from headgate.delivery.bus.messages import Messages
from headgate.errors import HeadgateError, InvalidEvent, InvalidTopic, NotSerializable, PayloadTooLarge
from headgate.events.event import HEADER_TAG
from headgate.redis.keys import channel, channel_prefix, user_channel

NAMESPACE, TIME_MS = "shop", 1_700_000_000_000
ORDERS = channel(NAMESPACE, "orders.1").encode()
USER = user_channel(NAMESPACE, "7").encode()
ON_CHANNEL, ON_GLOB = [b"message", ORDERS, b"0"], [b"pmessage", b"orders.*", ORDERS, b"0"]


@pytest.fixture
def messages() -> Messages:
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
