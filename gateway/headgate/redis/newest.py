"""The newest receipts of a publisher, which each of its new connections reports to Redis. No I/O, no clock.

A snapshot of a machine reverts a Redis together with its memory, and Redis itself cannot detect that. A publisher can, because
it has receipts that Redis no longer remembers. The revert breaks its connections, so each new connection reports the newest
receipts before its first command. Redis begins another epoch if it does not remember one of them (log.lua).

In: receipts. Out: the arguments of the report. Threads may share an object, because each step is one assignment.
"""

from __future__ import annotations

# Most epochs. Beyond that the earliest one is dropped, since gateways and other publishers report too.
MAX_EPOCHS = 64


class NewestReceipts:
    """The newest receipt of each epoch, of any log.

    Attributes:
        forbidden_until_s: the time until which it reports nothing, because this Redis user may not.
    """

    __slots__ = ("_by_epoch", "forbidden_until_s")

    def __init__(self) -> None:
        self._by_epoch: dict[str, int] = {}
        self.forbidden_until_s = 0.0

    def note(self, epoch: str, offset: int) -> None:
        """Note the receipt of a new event."""
        if offset > self._by_epoch.get(epoch, 0):
            self._by_epoch[epoch] = offset
            if len(self._by_epoch) > MAX_EPOCHS:
                self._by_epoch.pop(list(self._by_epoch)[0], None)  # noqa: RUF015 - an iterator would meet another thread

    def words(self) -> list[str | int]:
        """Return each epoch and its offset."""
        return [word for receipt in list(self._by_epoch.items()) for word in receipt]
