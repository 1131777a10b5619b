"""The messages of a subscriber connection: the event in each, and the copies that overlapping sources bring. No I/O.

In: replies of Redis that carry a message: `message` or `smessage`, channel, message, or `pmessage`, glob, channel, message. Out:
events, or the fault of a message that holds none. Each message is judged alone, apart from copies; the feed decides what follows
from it.

The channel of a topic holds the encoded event. On the channel of a user, and on the feed channel of a Cluster, the topic stands
before it, in a line of its own.
`decode` is on the hot path: it is called once for each event.
"""

from __future__ import annotations

from collections import deque

from headgate.errors import HeadgateError
from headgate.events.event import Event, decode_message, read_offset
from headgate.events.topic import MAX_TOPIC_BYTES, check_topic
from headgate.redis.keys import channel_prefix, mixed_prefix

# The first word of a reply that carries a message.
MESSAGES = (b"pmessage", b"message", b"smessage")
# Topics that are known to be valid, some 200 bytes each. For one more, the one that has been known for longest is forgotten.
MAX_KNOWN_TOPICS = 16_384
# The last byte of what the channels of users, and the feed channel, begin with. That of a topic's channel is another.
_SLASH = ord("/")


class Messages:
    """The messages of one namespace, on one connection at a time.

    Args:
        max_payload_bytes: a larger event is a fault.
        database: the number of the database that the log is in.
    """

    __slots__ = ("_last_channel", "_mark_at", "_max_payload_bytes", "_oldest_first", "_prefix_bytes", "_sources", "_topics")

    def __init__(self, namespace: str, max_payload_bytes: int, database: int = 0) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._prefix_bytes = len(channel_prefix(namespace, database))
        # On channels with a slash there, those of users and the feed channel, messages begin with the topic.
        self._mark_at = len(mixed_prefix(namespace, database)) - 1
        self._topics: dict[bytes, str] = {}
        self._oldest_first: deque[bytes] = deque()  # the same
        self._last_channel, self._sources = b"", set[bytes]()  # of the last message, and the sources that have brought it

    def decode(self, channel: bytes, message: bytes, now_ms: int) -> Event | HeadgateError:
        """Return the event in a message, or its fault. `now_ms` is the time of an event that carries none."""
        if channel[self._mark_at] == _SLASH:
            name, _, message = message.partition(b"\n")
        else:
            name = channel[self._prefix_bytes :]
        try:
            topic = self._topics.get(name) or self._learn(name)
            return decode_message(topic, message, self._max_payload_bytes, now_ms)
        except HeadgateError as error:
            return error

    def _learn(self, name: bytes) -> str:
        """Check a topic that is not known, and remember it. One text for all its events also spares the matcher a comparison."""
        topic = check_topic(name[: MAX_TOPIC_BYTES + 1].decode("ascii", "replace"))
        if len(self._topics) >= MAX_KNOWN_TOPICS:
            del self._topics[self._oldest_first.popleft()]
        self._topics[name] = topic
        self._oldest_first.append(name)
        return topic

    def claimed_place(self, channel: bytes, message: bytes) -> tuple[str, int] | None:
        """Return the epoch and offset that a message claims, though it may hold no event; None: it claims none."""
        if channel[self._mark_at] == _SLASH:
            message = message.partition(b"\n")[2]
        return read_offset(message)

    def is_copy(self, reply: list[bytes]) -> bool:
        """Return whether a message came before, through another source.

        Redis sends the copies of one publish back to back, one through each source: a source that comes again brings the next
        publish.
        """
        source = reply[1] if reply[0] == b"pmessage" else b""
        if reply[-2] == self._last_channel and source not in self._sources:
            self._sources.add(source)
            return True
        self._last_channel, self._sources = reply[-2], {source}
        return False

    def forget_copies(self) -> None:
        """From here on, messages may come through other sources: the next one is no copy."""
        self._last_channel, self._sources = b"", set()
