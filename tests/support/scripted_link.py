"""A `SubscriberLink` of a Redis that a test plays."""

from headgate.errors import BusUnavailable
from headgate.redis.connections import Command


class ScriptedLink:
    """Sends these replies, one read after the other, and then ends. Keeps what it is given."""

    def __init__(self, *replies: list[list[bytes]]) -> None:
        self._replies = list(replies)
        self.sent: list[Command] = []
        self.timeouts: list[float | None] = []

    def connect(self) -> None:
        """There is nothing to connect to."""

    def settimeout(self, timeout_s: float | None) -> None:
        self.timeouts.append(timeout_s)

    def send(self, *commands: Command) -> None:
        self.sent += commands

    def read(self) -> list[list[bytes]]:
        if not self._replies:
            raise BusUnavailable("it has ended")
        return self._replies.pop(0)

    def read_ready(self, within_s: float = 0.0) -> list[list[bytes]]:
        """Nothing comes later."""
        return self.read() if self._replies else []

    def close(self) -> None:
        """There is nothing to close."""
