"""Work in a thread from the beginning of a block to its end, as the publishers of the fault tests do it."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self


class UntilStopped(ABC):
    """Use as a context manager.

    Attributes:
        failure: the error that has ended the work; `end` raises it.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def _work(self) -> None:
        """Work until `_stopped` is set."""

    def end(self) -> None:
        """Stop, and wait until the work has ended. Idempotent."""
        self._stopped.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _turns(self, every_s: float) -> Iterator[int]:
        """Yield a number for each turn, on schedule, until it is stopped. After a halt at most a second is caught up."""
        number, next_s = 0, time.monotonic()
        while not self._stopped.wait(max(0.0, next_s - time.monotonic())):
            next_s = max(next_s + every_s, time.monotonic() - 1)
            yield number
            number += 1

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001 - it is raised again in `end`
            self.failure = failure
