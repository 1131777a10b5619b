"""An application's preferences. Its function answers within a deadline whether a user wants a notification.

In: the function `wants(user, event, channel)`. Out: its answer. Without one (it raises, blocks, or returns no boolean) the
notification goes out, and the fault is counted and logged. The function runs in one permanent thread, since applications have
connections per thread. While it blocks it is not called again, so a worker has at most one such thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

from headgate.consumers.base import Delivery

WANTS_WITHIN_S = 2.0
RAISED, LATE, NO_BOOLEAN = "raised", "late", "no_boolean"
WANTS_FAULTS = (RAISED, LATE, NO_BOOLEAN)
Wants = Callable[[str, Delivery, str], bool]
_Call = tuple[Future[object], tuple[str, Delivery, str]]


class Asking:
    """Calls one function, from one thread.

    Args:
        wants: the application's function.
        fault: called with one of WANTS_FAULTS, and the exception that was raised, if any.
        within_s: time limit of the function.
    """

    def __init__(
        self, wants: Wants, fault: Callable[[str, BaseException | None], None], within_s: float = WANTS_WITHIN_S
    ) -> None:
        self._wants, self._fault, self._within_s = wants, fault, within_s
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._blocked: Future[object] | None = None

    def ask(self, user: str, delivery: Delivery, channel: str) -> bool:
        """Return whether the user wants it: the function's answer, or True without one in time. Never raises."""
        if self._blocked is not None and not self._blocked.done():
            self._fault(LATE, None)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="wants", daemon=True)
            self._thread.start()
        answer: Future[object] = Future()
        self._blocked = answer
        self._calls.put((answer, (user, delivery, channel)))
        wait((answer,), self._within_s)
        if not answer.done():
            self._fault(LATE, None)
            return True
        if (error := answer.exception()) is not None:
            self._fault(RAISED, error)
            return True
        found: Any = answer.result()
        if not isinstance(found, bool):
            self._fault(NO_BOOLEAN, None)
            return True
        return found

    def close(self) -> None:
        """End the thread when the function returns."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            answer, arguments = call
            try:
                answer.set_result(self._wants(*arguments))
            except BaseException as error:  # noqa: BLE001 - an operator's code; the caller counts and logs it
                answer.set_exception(error)
