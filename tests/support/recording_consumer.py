"""A consumer that follows a test's script, and writes down each call."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headgate.consumers import Consumer, Defer, Delivery

Script = Callable[[Delivery], Defer | None]


class Recorder(Consumer):
    """The base of one class for each test (fixture `recorder`); its objects, one for each worker, write into the same lists."""

    lock = threading.Lock()
    seen: list[Delivery]
    together: list[tuple[str, list[Delivery]]]
    pages: list[list[Delivery]]
    calls: list[str]
    script: Script
    parts: Callable[[Delivery], Sequence[str]]
    digest: Callable[[str, Sequence[Delivery]], Defer | None]
    pausing_s = 0.0

    def start(self) -> None:
        self.calls.append("start")

    def keys(self, delivery: Delivery) -> Sequence[str]:
        return type(self).parts(delivery)

    def handle(self, delivery: Delivery) -> Defer | None:
        with self.lock:
            self.seen.append(delivery)
        return type(self).script(delivery)

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        with self.lock:
            self.together.append((key, list(deliveries)))
        return type(self).digest(key, deliveries)

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        with self.lock:
            self.pages.append(list(deliveries))
        for delivery in deliveries:
            type(self).script(delivery)

    def pause_s(self) -> float:
        return self.pausing_s

    def tick(self) -> None:
        self.calls.append("tick")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def recorder() -> type[Recorder]:
    """A recorder that agrees to everything, with empty lists."""
    return type(
        "Recorder",
        (Recorder,),
        {
            "seen": [], "together": [], "pages": [], "calls": [],
            "script": staticmethod(lambda delivery: None),
            "parts": staticmethod(lambda delivery: ("",)),
            "digest": staticmethod(lambda key, deliveries: None),
        },
    )  # fmt: skip


def values(recorder: type[Recorder]) -> list[Any]:
    return [delivery.value() for delivery in recorder.seen]


def fail(error: Exception) -> None:
    raise error
