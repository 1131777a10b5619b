"""The live events of a namespace as they pass through Redis, for `headgate tail` and for the doctor's probe.

In: a Redis URL, a namespace, a pattern. Out: the messages with their topics, as sent, for the caller to decode. Invalid topics
are included. While an older gateway listens, an event of a user comes twice. It never reconnects, because the log has the missed
events. It does not listen on in vain either: it ends if Redis does not answer, or if the address leads to another server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from headgate.delivery.bus.interest import by_command, sources
from headgate.errors import BusUnavailable
from headgate.events.topic import check_namespace, check_pattern
from headgate.redis import subscriber_link
from headgate.redis.client import check_primary, database_number, open_client
from headgate.redis.cluster import is_cluster
from headgate.redis.connections import Command
from headgate.redis.keys import channel_prefix, feed_channel, log_key, mixed_prefix

# After this long without a message `read` asks Redis for an answer, and waits so long for it.
QUIET_S, ANSWER_S = 1.0, 5.0


class LiveEvents:
    """See the module. One thread reads; another may `close`.

    Raises:
        UnknownNamespace, InvalidPattern: before connecting.
        BusUnavailable, BusRefused: from `listen` and `read`, also when the namespace's slot moves in a Cluster.
    """

    def __init__(self, url: str, namespace: str, pattern: str) -> None:
        with closing(open_client(url, max_connections=1)) as client:
            database = database_number(client)
        self._commands: list[Command] = list(by_command(sources(check_namespace(namespace), check_pattern(pattern), database)))
        self._prefix, self._mixed_prefix = (of(namespace, database).encode() for of in (channel_prefix, mixed_prefix))
        if is_cluster(url):
            # In a Cluster, logged events come on one sharded channel with the topic in front. Events without an offset come as
            # usual.
            self._commands.append(("SSUBSCRIBE", feed_channel(namespace, database)))
        self._url = url
        self._link = subscriber_link.SubscriberLink(url, key=log_key(namespace))
        self._early: list[list[bytes]] = []

    def listen(self, within_s: float = ANSWER_S) -> None:
        """Connect and wait until the subscription is active. Each answer may take `within_s`."""
        self._link.connect()
        self._link.settimeout(within_s)
        self._link.send(*self._commands)
        left = sum(len(command) - 1 for command in self._commands)
        while left:
            for reply in self._link.read():
                if reply[0] in (b"subscribe", b"psubscribe", b"ssubscribe"):
                    left -= 1
                else:
                    self._early.append(reply)

    def read(self) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the (topic, message) that came together, or none after QUIET_S without any, without end."""
        replies, self._early = self._early, []
        self._link.settimeout(ANSWER_S)
        with closing(open_client(self._url, max_connections=1)) as client:
            while True:
                yield [message for reply in replies for message in self._message(reply)]
                check_primary(client)
                replies = self._link.read_ready(QUIET_S)
                if not replies:
                    self._link.send(("PING",))
                    replies = self._link.read()

    def close(self) -> None:
        """End `read`. Idempotent."""
        self._link.close()

    def _message(self, reply: list[bytes]) -> list[tuple[str, bytes]]:
        if reply[0] == b"sunsubscribe":
            raise BusUnavailable("the slot of the namespace has moved to another node of the Cluster")
        if reply[0] not in (b"message", b"pmessage", b"smessage"):
            return []
        channel, message = reply[-2], reply[-1]
        if not channel.startswith(self._mixed_prefix):
            topic = channel.removeprefix(self._prefix)
        else:
            topic, _, message = message.partition(b"\n")
        return [(topic.decode("ascii", "replace"), message)]
