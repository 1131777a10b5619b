"""The drain: clients move to another gateway before this one stops, in turn and not all at once.

In: the namespaces with their clients, and the seconds that it may take. Out: a `status` notice to every client, and the end of
each connection that has not left by its turn. From `begin` on, new clients are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import shuffle
from time import monotonic

from headgate.errors import leaving
from headgate.protocol.frames import message_frame
from headgate.protocol.packets import STATUS, notice_packet
from headgate.runtime.loop import sleep

from .namespace import Namespace

# While clients move: how often to look whether the next one has left by itself.
_LOOK_S = 0.05
# Notices to everyone: let the loop run after so many clients.
_NOTICE_STRIDE = 64


class Drain:
    """See the module. `begun`: new clients are refused. `now_s` is monotonic, `wait` lets the loop run."""

    def __init__(
        self,
        namespaces: Mapping[str, Namespace],
        now_s: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._namespaces = namespaces
        self._now_s, self._wait = now_s, wait
        self.begun = False

    def begin(self) -> None:
        """Refuse new clients from now on. Idempotent."""
        self.begun = True

    def check(self) -> None:
        """Refuse a newcomer once the drain has begun.

        Raises:
            BusUnavailable: with the advice to try another gateway.
        """
        if self.begun:
            raise leaving()

    def run(self, within_s: float) -> None:
        """Tell clients to move, and end each that has not left by its turn, in random order. Lets the loop run.

        Returns after about `within_s` seconds at most, and at once without clients.
        """
        self.begin()
        clients = [client for namespace in self._namespaces.values() for client in namespace.clients.values()]
        shuffle(clients)
        moving = {"moving": {"reason": "restart", "within_s": within_s}}
        frames = {name: message_frame(notice_packet(name, STATUS, moving)) for name in self._namespaces}
        began_s = self._now_s()
        for count, client in enumerate(clients, 1):
            client.connection.offer_control(frames[client.namespace])
            if not count % _NOTICE_STRIDE:
                self._wait(0)
        for count, client in enumerate(clients, 1):
            while client.session in self._namespaces[client.namespace].clients:
                left_s = began_s + within_s * count / len(clients) - self._now_s()
                if left_s <= 0:
                    client.connection.end("restart")
                    break
                self._wait(min(left_s, _LOOK_S))
