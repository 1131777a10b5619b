"""Messages of one session on their way to the application."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent

from headgate.transport.inbox import FULL_MESSAGES, SLICE_S, Inbox


class Owner:
    """Takes a while for every message, without letting the loop run."""

    def __init__(self) -> None:
        self.delivered: list[str | bytes] = []
        self.done = False

    def start(self, work: Callable[[], None]) -> None:
        gevent.spawn(work)

    def deliver(self, message: str | bytes) -> None:
        ends_s = time.monotonic() + SLICE_S
        while time.monotonic() < ends_s:
            pass
        self.delivered.append(message)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def emptied(self) -> None:
        self.done = True


def test_costly_messages_let_everybody_else_have_turns() -> None:
    """In order all the same."""
    owner = Owner()
    inbox = Inbox(owner)
    sent = [str(number) for number in range(FULL_MESSAGES // 4)]
    for message in sent:
        inbox.put(message)
    turns = 0
    while not owner.done:
        gevent.sleep(0)
        turns += 1

    assert owner.delivered == sent
    assert turns >= len(sent)
