"""A client on a real connection with the browser end in the test's hands, which decides when and how much it reads.

Router, fan-out, client, queue and wire are the real ones over a socket pair with a small buffer; no Redis, no HTTP. The
browser's end parses RFC 6455 by itself, so an invalid stream fails the test.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from headgate.auth.identity import Identity
from headgate.delivery.client import Client
from headgate.delivery.fanout import Router
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.state import Phase
from headgate.delivery.tally import Tallies
from headgate.events.event import Event
from headgate.events.wire.packets import Overflow
from headgate.transport.limits import TransportLimits
from headgate.transport.session import Session
from tests.support.session_clock import Clock, SessionServer, native_pair, turn
from tests.support.websocket_codec import TEXT, frames_in

EPOCH = "0123456789abcdef"
NAMESPACE = "n"


class RecordingReader:
    """Stands for the log reader, and remembers the waiting clients."""

    def __init__(self) -> None:
        self.added: list[Client] = []
        self.late = 0
        self.tallies = Tallies(0)

    def add(self, client: Client) -> None:
        self.added.append(client)

    def moved(self, client: Client, before: Phase, after: Phase) -> None:
        pass


class WiredClient:
    """One client with its subscriptions.

    Attributes:
        received: every message that the browser has read, in order: [name, …arguments].
        stream: the bytes that it has read, raw.
    """

    def __init__(
        self,
        subscriptions: dict[str, Overflow],
        matcher: SubscriptionMatcher[Client] | None = None,
        *,
        queue_frames: int = 256,
        queue_bytes: int = 1024 * 1024,
    ) -> None:
        limits = TransportLimits(queue_frames=queue_frames, queue_bytes=queue_bytes, send_buffer_bytes=4096)
        self.server = SessionServer(Clock(), limits)  # no deadline ever comes
        self.connection = Session(self.server, "sid")
        ours, self._browser = native_pair()
        self._browser.setblocking(False)
        self.connection.start_websocket(ours)
        self.reader = cast(Any, RecordingReader())
        self.client = Client(NAMESPACE, "session", Identity("user"), self.connection, self.reader)
        self.client.welcome()
        self.connection.owners = (self.client,)
        self.matcher: SubscriptionMatcher[Client] = matcher if matcher is not None else SubscriptionMatcher()
        self.received: list[list[Any]] = []
        self.stream = b""
        self._unparsed = b""
        for pattern, policy in subscriptions.items():
            self.client.subscribe(pattern, policy)
            self.matcher.add(pattern, self.client)

    def divert(self, take: Callable[[bytes], None]) -> None:
        """Give the writes to `take` instead of to the socket, which always has room."""

        def send(data: bytes | memoryview) -> int:
            take(bytes(data) if isinstance(data, memoryview) else data)
            return len(data)

        assert self.connection.wire is not None
        self.connection.wire.send = send

    def read(self, size: int = 1 << 20) -> int:
        """Let the browser read up to `size` bytes, once, and the gateway's watchers run; return how many it read."""
        try:
            data = self._browser.recv(size)
        except BlockingIOError:
            data = b""
        self.stream += data
        frames, self._unparsed = frames_in(self._unparsed + data)
        for opcode, packet in frames:
            assert opcode == TEXT
            assert packet.startswith(f"42/{NAMESPACE},".encode()), packet[:40]
            self.received.append(json.loads(packet.partition(b",")[2]))
        turn()
        return len(data)

    def drain(self) -> None:
        quiet = 0
        while quiet < 3:
            quiet = 0 if self.read() else quiet + 1

    @property
    def events(self) -> list[list[Any]]:
        """Every event that arrived: [topic, data, meta]."""
        return [rest for name, *rest in self.received if name == "event"]

    @property
    def offsets(self) -> list[int | None]:
        return [meta.get("offset") for _, _, meta in self.events]

    def notices(self, name: str) -> list[dict[str, Any]]:
        return [rest[0] for kind, *rest in self.received if kind == name]

    def close(self) -> None:
        self.connection.end("test", abort=True, hard=True)
        self._browser.close()
        turn()


def event(offset: int | None, topic: str = "a", size: int = 0) -> Event:
    """Return an event with its offset and some padding as data; without an offset a plain PUBLISH, which has no id."""
    data = json.dumps([offset, "x" * size]).encode()
    return Event(
        topic, data, None if offset is None else f"id-{offset}", 1_700_000_000_000, None if offset is None else EPOCH, offset
    )


def publish(matcher: SubscriptionMatcher[Client], events: Iterable[Event]) -> None:
    """Act like the namespace with a batch from the bus."""
    router = Router(NAMESPACE, matcher)
    for pass_ in router.passes(router.match(events)):
        while not pass_.advance():
            pass
