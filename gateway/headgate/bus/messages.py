"""The messages of a subscriber connection: the event in each, and the copies that overlapping sources bring. No I/O.

In: replies of Redis that carry a message: `message` or `smessage`, channel, message, or `pmessage`, glob, channel, message. Out:
events, or the fault of a message that holds none. Each message is judged alone, apart from copies; the feed decides what follows
from it.

The channel of a topic holds the encoded event. On the channel of a user, and on the feed channel of a Cluster, the topic stands
before it, in a line of its own.
`decode` is on the hot path: it is called once for each event.
"""

from __future__ import annotations

from headgate.errors import HeadgateError
from headgate.event import Event, decode_message, read_offset
from headgate.redis.keys import channel_prefix, mixed_prefix
from headgate.topic import check_topic

# The first word of a reply that carries a message.
MESSAGES = (b"pmessage", b"message", b"smessage")


class Messages:
    """The messages of one namespace, on one connection at a time.

    Args:
        max_payload_bytes: a larger event is a fault.
    """

    __slots__ = ("_last_channel", "_max_payload_bytes", "_prefix", "_sources", "_topic_within")

    def __init__(self, namespace: str, max_payload_bytes: int) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._prefix = channel_prefix(namespace).encode()
        # The channels of users, and the feed channel: what is on them begins with the topic.
        self._topic_within = mixed_prefix(namespace).encode()
        self._last_channel, self._sources = b"", set[bytes]()  # of the last message, and the sources that have brought it

    def decode(self, channel: bytes, message: bytes, now_ms: int) -> Event | HeadgateError:
        """Return the event in a message, or its fault. `now_ms` is the time of an event that carries none."""
        topic = channel[len(self._prefix) :]
        if channel.startswith(self._topic_within):
            topic, _, message = message.partition(b"\n")
        try:
            return decode_message(check_topic(topic.decode("ascii", "replace")), message, self._max_payload_bytes, now_ms)
        except HeadgateError as error:
            return error

    def claimed_place(self, channel: bytes, message: bytes) -> tuple[str, int] | None:
        """Return the epoch and offset that a message claims, though it may hold no event; None: it claims none."""
        if channel.startswith(self._topic_within):
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
