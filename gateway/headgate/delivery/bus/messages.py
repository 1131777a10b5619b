"""The messages of a subscriber connection: the event in each, and the copies that overlapping sources bring. No I/O.

In: replies of Redis, [`message` or `smessage`, channel, message] or [`pmessage`, glob, channel, message]. Out: events, or the
fault of a message without a valid event. Except for copies, each message is judged alone.

The channel of a topic carries the encoded event. On the channel of a user, and on the feed channel of a Cluster, a line with the
topic precedes it. `decode` is on the hot path, and runs once for each event.
"""

from __future__ import annotations

from functools import lru_cache

from headgate.errors import HeadgateError
from headgate.events.event import Event, decode_message, read_offset
from headgate.events.topic import MAX_TOPIC_BYTES, check_topic
from headgate.redis.keys import channel_prefix, mixed_prefix

# The first word of a reply with a message.
MESSAGES = (b"pmessage", b"message", b"smessage")
# Topics known to be valid, some 200 bytes each.
MAX_KNOWN_TOPICS = 16_384
# The last byte of the prefix of users' channels and of the feed channel, and of no other.
_SLASH = ord("/")


class Messages:
    """The messages of one namespace, on one connection at a time. An event above `max_payload_bytes` is a fault."""

    __slots__ = ("_last_channel", "_mark_at", "_max_payload_bytes", "_prefix_bytes", "_sources")

    def __init__(self, namespace: str, max_payload_bytes: int, database: int = 0) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._prefix_bytes = len(channel_prefix(namespace, database))
        # The index of that slash, in channels with messages that begin with the topic.
        self._mark_at = len(mixed_prefix(namespace, database)) - 1
        self._last_channel, self._sources = b"", set[bytes]()  # of the last message, with the sources that brought it

    def decode(self, channel: bytes, message: bytes, now_ms: int) -> Event | HeadgateError:
        """Return the event in a message, or its fault. An event without a time gets `now_ms`."""
        if channel[self._mark_at] == _SLASH:
            name, _, message = message.partition(b"\n")
        else:
            name = channel[self._prefix_bytes :]
        try:
            return decode_message(_topic(name), message, self._max_payload_bytes, now_ms)
        except HeadgateError as error:
            return error

    def claimed_place(self, channel: bytes, message: bytes) -> tuple[str, int] | None:
        """Return the epoch and offset that a message claims, even without a valid event; None if it claims none."""
        if channel[self._mark_at] == _SLASH:
            message = message.partition(b"\n")[2]
        return read_offset(message)

    def is_copy(self, reply: list[bytes]) -> bool:
        """Return whether a message came before through another source."""
        # Redis sends the copies of one publish back to back, one through each source. A source repeats with the next publish.
        source = reply[1] if reply[0] == b"pmessage" else b""
        if reply[-2] == self._last_channel and source not in self._sources:
            self._sources.add(source)
            return True
        self._last_channel, self._sources = reply[-2], {source}
        return False

    def forget_copies(self) -> None:
        """Treat the next message as no copy, as sources may change from here on."""
        self._last_channel, self._sources = b"", set()


@lru_cache(maxsize=MAX_KNOWN_TOPICS)
def _topic(name: bytes) -> str:
    """Check a topic. Its events share one string, which also spares the matcher a comparison."""
    return check_topic(name[: MAX_TOPIC_BYTES + 1].decode("ascii", "replace"))
