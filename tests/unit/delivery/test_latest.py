"""The newest frame of each topic: older ones go, the limits of the queue hold, and the log's order comes back."""

from typing import Any

import pytest

from headgate.delivery.gap import Latest
from headgate.events.wire.frames import Frame
from headgate.transport.send_queue import ClientQueue

FRAMES, BYTES = 4, 1000


class Owner:
    """The client of the frames."""

    def __init__(self) -> None:
        self.sent = self.conflated = 0


def frame(topic: str, offset: int | None, size: int = 10) -> Frame:
    """Return a frame of so many bytes on the wire."""
    made = Frame(b"x" * size, topic=topic, offset=offset)
    return Frame(b"x" * (2 * size - len(made.wire)), topic=topic, offset=offset)


@pytest.fixture
def owner() -> Any:
    """A silent client."""
    return Owner()


@pytest.fixture
def queue() -> ClientQueue:
    """An empty queue."""
    return ClientQueue(FRAMES, BYTES)


@pytest.mark.parametrize("queued", range(FRAMES + 1))
def test_kept_and_queued_frames_together_stay_within_the_limit(queue: ClientQueue, owner: Any, queued: int) -> None:
    """A topic more than that finds no room; a newer frame of a kept topic takes the place of the older one."""
    for number in range(queued):
        queue.put(frame(f"queued.{number}", number + 1), owner)
    latest = Latest()
    found_room = [latest.keep(frame(f"kept.{number}", 10 + number), queue, owner) for number in range(FRAMES)]
    assert found_room == [True] * (FRAMES - queued) + [False] * queued
    assert all(latest.keep(frame(f"kept.{number}", 20 + number), queue, owner) for number in range(FRAMES - queued))
    assert len(latest) == FRAMES - queued


def test_bytes_count_like_frames(queue: ClientQueue, owner: Any) -> None:
    """A refused frame leaves the older one, and the kept one is freed when it is replaced."""
    queue.put(frame("queued", 1, 300), owner)
    latest = Latest()
    assert latest.keep(frame("a", 2, 700), queue, owner)
    assert not latest.keep(frame("b", 3, 150), queue, owner)
    assert not latest.keep(frame("a", 4, 701), queue, owner)
    assert latest.keep(frame("a", 5, 500), queue, owner)
    assert latest.keep(frame("b", 6, 200), queue, owner)
    assert [kept.offset for kept in latest.in_order()] == [5, 6]
