"""The walk through the log, held against an oracle that knows every event which was ever at every offset."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from headgate.errors import InvalidEvent
from headgate.event import Event
from headgate.protocol.packets import GapReason
from headgate.redis.entries import Entry, Head
from headgate.redis.lineage import read_lineage
from headgate.redis.log_walk import Gap, LogWalk, Position
from headgate.topic import matches

WANTED, UNWANTED, BAD = "a.b", "other", ""
PAGE = 3


@dataclass
class Log:
    """A log as Redis keeps it: events by offset, and its epochs with their first offsets."""

    entries: dict[int, tuple[str, int]] = field(default_factory=dict)  # topic ("" cannot be delivered) and number
    epochs: list[tuple[str, int]] = field(default_factory=list)
    offset: int = 0
    published: int = 0
    begun: int = 0
    losses: int = 0
    is_new_process: bool = True

    def publish(self, topic: str) -> None:
        if self.is_new_process:
            self.begun += 1
            self.epochs.append((f"{self.begun:016x}", self.offset + 1))
            self.is_new_process = False
        self.offset += 1
        self.published += 1
        self.entries[self.offset] = (topic, self.published)

    def trim(self, count: int) -> None:
        """Trim the oldest entries."""
        for offset in sorted(self.entries)[:count]:
            del self.entries[offset]

    def crash(self, count: int) -> None:
        """Lose the last offsets, with the epochs that began there; another process goes on."""
        self.offset = max(0, self.offset - count)
        self.entries = {offset: entry for offset, entry in self.entries.items() if offset <= self.offset}
        self.epochs = [(epoch, first) for epoch, first in self.epochs if first <= self.offset]
        self.losses += not self.epochs
        self.is_new_process = True

    def lose(self) -> None:
        """Lose everything, down to the offsets."""
        self.entries, self.epochs, self.offset, self.is_new_process = {}, [], 0, True
        self.losses += 1

    def head(self) -> Head:
        epoch = self.epochs[-1][0] if self.epochs else ""
        lineage = read_lineage(epoch, [(name, first, number) for number, (name, first) in enumerate(self.epochs)])
        return Head(epoch, self.offset, min(self.entries, default=self.offset + 1), lineage=lineage)

    def page(self, after: int, upto: int) -> list[Entry]:
        found = [offset for offset in sorted(self.entries) if after < offset <= upto][:PAGE]
        return [self.entry(offset) for offset in found]

    def entry(self, offset: int) -> Entry:
        topic, number = self.entries[offset]
        if topic == BAD:
            return Entry(offset, None, InvalidEvent("time", "expected milliseconds since 1970"))
        return Entry(offset, Event(topic, b"%d" % number, f"e{number}", 0, None, offset))


class Reader:
    """A reader, and what it believes that the log has had at each offset: an event's number, or None for a gap."""

    def __init__(self, log: Log, since: Position | None) -> None:
        head = log.head()
        self.start = Position(head.epoch, head.offset) if since is None else since
        self.walk = LogWalk(self.start, head, lambda topic: matches("a.#", topic))
        self.has: dict[int, int | None] = {}
        self.after = self.start.offset
        self.losses = 0

    def read(self, log: Log) -> bool:
        """Read a page; return whether there was anything to do."""
        head = log.head()
        gap = self.walk.follow(head)
        if gap is not None:
            self.believe(gap)
            return True
        if head.offset <= self.walk.at.offset:
            return False
        entries = log.page(self.walk.at.offset, head.offset)
        for _, item in self.walk.take(entries, head.offset if len(entries) < PAGE else entries[-1].offset):
            self.believe(item)
        return True

    def read_all(self, log: Log) -> None:
        """Read up to the end; each page brings it further."""
        for _ in range(log.offset + 3):
            if not self.read(log):
                return
        pytest.fail("it never reaches the end")

    def believe(self, item: Event | Gap) -> None:
        if isinstance(item, Event):
            assert item.offset is not None
            assert item.offset > max(self.has, default=self.after)
            assert item.topic == WANTED
            self.has[item.offset] = int(item.data)
        elif item.reason is GapReason.LOG_LOST:
            self.has, self.after = {}, 0
            self.losses += 1
        else:
            assert item.first is not None
            assert item.last is not None
            assert item.count == item.last - item.first + 1 > 0
            if item.reason is GapReason.ROLLED_BACK:
                self.has = {offset: number for offset, number in self.has.items() if offset < item.first}
                self.after = min(self.after, item.first - 1)
            else:
                self.has |= dict.fromkeys(range(item.first, item.last + 1))

    def check(self, log: Log) -> None:
        """What was yielded and the gaps are the log, from where the reader began."""
        for offset in range(self.after + 1, log.offset + 1):
            topic, number = log.entries.get(offset, (None, None))
            if topic == WANTED:
                assert self.has[offset] == number
            elif topic == UNWANTED:
                assert offset not in self.has
            elif topic == BAD:
                assert self.has[offset] is None
        assert max(self.has, default=0) <= log.offset


# Mostly events and reads, so that there is something to lose.
NAMES = ["publish"] * 10 + ["other"] * 4 + ["bad"] + ["read"] * 6 + ["trim", "crash", "crash", "restart"]
HISTORIES = 200


def happen(log: Log, name: str, count: int) -> None:
    if name == "restart":
        log.is_new_process = True
    elif name == "lose":
        log.lose()
    elif name == "trim":
        log.trim(count)
    elif name == "crash":
        log.crash(count)
    elif name != "read":
        log.publish({"publish": WANTED, "other": UNWANTED, "bad": BAD}[name])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("begins", ["now", "oldest", "cursor"])
def test_what_is_yielded_and_what_the_gaps_report_is_the_log(begins: str, seed: int) -> None:
    """Whatever befalls the log before a reader, and while it reads; after a quiet moment it has missed nothing unreported."""
    rng = random.Random(f"{begins} {seed}")

    def some_steps() -> Iterator[tuple[str, int]]:
        for _ in range(rng.randrange(60)):
            yield ("lose" if rng.random() < 0.005 else rng.choice(NAMES)), rng.randrange(1, 6)

    for _ in range(HISTORIES):
        log = Log()
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
        log.publish(WANTED)  # a process that has lost its end shows it with its next event
        reader.read_all(log)

        assert begins == "cursor" or reader.losses <= log.losses
        assert reader.walk.at == Position(log.head().epoch, log.offset)
        reader.check(log)


def test_a_cursor_that_this_log_has_not_reached_is_rolled_back() -> None:
    """As a page's position: Redis may have lost its end, and shows another epoch only with its next event."""
    log = Log()
    log.publish(WANTED)
    epoch = log.head().epoch

    reader = Reader(log, Position(epoch, 3))

    assert reader.walk.follow(log.head()) == Gap(GapReason.ROLLED_BACK, 2, 3, epoch)
    assert reader.walk.at == Position(epoch, 1)


def test_a_cursor_of_another_log_begins_again() -> None:
    """A gap says that the log is lost, and all that there is follows."""
    log = Log()
    log.publish(WANTED)

    reader = Reader(log, Position("f" * 16, 700))

    assert reader.walk.follow(log.head()) == Gap(GapReason.LOG_LOST, epoch=log.head().epoch)
    assert reader.walk.at == Position(log.head().epoch, 0)
