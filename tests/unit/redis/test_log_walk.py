"""The walk through the log, held against an oracle that knows every event which was ever at every offset."""

import random
from collections.abc import Iterator
from functools import partial

import pytest

from headgate.events.topic import matches
from headgate.events.wire.requests import Position
from headgate.redis.log_walk import LogWalk
from tests.support.model_log import PAGE, WANTED, Beliefs, ModelLog, happen, random_step

HISTORIES = 200


class Reader:
    """A walk through the log, a page at a time."""

    def __init__(self, log: ModelLog, since: Position | None) -> None:
        head = log.head()
        self.start = Position(head.epoch, head.offset) if since is None else since
        self.walk = LogWalk(self.start, head)
        self.beliefs = Beliefs(self.start.offset)

    def read(self, log: ModelLog) -> bool:
        head = log.head()
        gap = self.walk.follow(head)
        if gap is not None:
            self.beliefs.believe(gap)
            return True
        if head.offset <= self.walk.at.offset:
            return False
        entries = log.wanted_page(self.walk.at.offset, head.offset, head.epoch, partial(matches, "a.#"))
        for _, item in self.walk.take(entries, head.offset if len(entries) < PAGE else entries[-1].offset):
            self.beliefs.believe(item)
        return True

    def read_all(self, log: ModelLog) -> None:
        for _ in range(log.offset + 3):
            if not self.read(log):
                return
        pytest.fail("it never reaches the end")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("begins", ["now", "oldest", "cursor"])
def test_what_is_yielded_and_what_the_gaps_report_is_the_log(begins: str, seed: int) -> None:
    """Whatever befalls the log before a reader, and while it reads; after a quiet moment it has missed nothing unreported."""
    rng = random.Random(f"{begins} {seed}")

    def some_steps() -> Iterator[tuple[str, int]]:
        yield from (random_step(rng) for _ in range(rng.randrange(60)))

    for _ in range(HISTORIES):
        log = ModelLog()
        for step in some_steps():
            happen(log, *step)
        head = log.head()
        at = {"now": None, "oldest": Position(head.epoch, head.first - 1), "cursor": Position(head.epoch, head.offset)}[begins]
        if begins == "cursor":
            for step in some_steps():
                happen(log, *step)
        reader = Reader(log, at)
        for step in some_steps():
            happen(log, *step)
            if step[0] == "read":
                reader.read(log)
        reader.read_all(log)
        log.add(WANTED)  # a process without its end shows it with its next event
        reader.read_all(log)

        assert begins == "cursor" or reader.beliefs.losses <= log.losses
        assert reader.walk.at == Position(log.head().epoch, log.offset)
        reader.beliefs.check(log)
