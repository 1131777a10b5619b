"""A log with accidents, and a reader's belief about it: the oracle for readers of the log.

The log knows which event was at which offset; beliefs follow the events and gaps that a reader was given, and `check` compares.
"""

from dataclasses import dataclass, field
from random import Random

from headgate.errors import InvalidEvent
from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.redis.lineage import Entry, Head, read_lineage
from headgate.redis.log_walk import Item

WANTED, UNWANTED, BAD = "a.b", "other", ""
PAGE = 3


@dataclass
class ModelLog:
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


class Beliefs:
    """A reader's belief about the log at each offset above `after`, which is an event's number, or None for a gap."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.has: dict[int, int | None] = {}
        self.losses = 0

    def believe(self, item: Item) -> None:
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

    def check(self, log: ModelLog) -> None:
        """The yielded events and the gaps are the log, from where the reader began."""
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


def happen(log: ModelLog, name: str, count: int) -> None:
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


def random_step(rng: Random) -> tuple[str, int]:
    """Return the next step, and its size."""
    return ("lose" if rng.random() < 0.005 else rng.choice(NAMES)), rng.randrange(1, 6)
