"""An AsyncPublisher with the face of a Publisher, for tests that hold both to the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, TypeVar

from headgate import AsyncPublisher
from tests.support.redis_server import DEADLINE_S

T = TypeVar("T")


class PublisherOnLoop:
    """Runs an event loop in a thread; each call waits for the coroutine of the same name there. Threads may share it."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop], *args: Any, **options: Any) -> None:
        self._loop = new_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self._publisher = AsyncPublisher(*args, **options)
        try:
            self._run(self._publisher.__aenter__())
        except BaseException:
            self._stop()
            raise

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method that waits for the coroutine of this name."""
        method = getattr(self._publisher, name)
        return lambda *args, **options: self._run(method(*args, **options))

    def close(self) -> None:
        if self._thread.is_alive():
            self._run(self._publisher.close())
            self._stop()

    def __enter__(self) -> PublisherOnLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(3 * DEADLINE_S)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
