"""A log with accidents, and a reader's belief about it: the oracle for readers of the log.

The log knows which event was at which offset; beliefs follow the events and gaps that a reader was given, and `check` compares.
"""

from collections.abc import Callable
from random import Random

from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.redis.lineage import Entry
from headgate.redis.log_walk import Item
from tests.support.model_redis import ModelRedis

WANTED, UNWANTED, BAD = "a.b", "other", "bad"
PAGE = 3


class ModelLog(ModelRedis):
    """A log with small pages, of events that are their numbers. `losses`: how often all of it was lost."""

    def __init__(self) -> None:
        super().__init__(page_events=PAGE)
        self.published = self.losses = 0

    def add(self, topic: str) -> None:
        """Publish the next event; a bad one cannot be delivered."""
        self.published += 1
        self.publish(topic, b"%d" % self.published, good=topic != BAD)

    def wanted_page(self, after: int, upto: int, epoch: str, wanted: Callable[[str], bool]) -> list[Entry]:
        """Return a page as `EventLog.page` does with `wanted`."""
        page = self.page(after, upto, epoch)
        return [each if each.event is None or wanted(each.event.topic) else Entry(each.offset, None) for each in page]

    def crash(self, events: int) -> None:
        """Lose the newest events, with the epochs that began there; another process goes on. What was trimmed stays so."""
        first = self.first
        self.lose_tail(events)
        self.trim(sum(offset >= first for offset in self.log))
        self.losses += not self.epoch

    def lose(self) -> None:
        """Lose everything, down to the offsets."""
        self.flush()
        self.losses += 1


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
            logged = log.log.get(offset)
            if logged is None:
                continue
            if logged.topic == WANTED:
                assert self.has[offset] == int(logged.data)
            elif logged.topic == UNWANTED:
                assert offset not in self.has
            else:
                assert self.has[offset] is None
        assert max(self.has, default=0) <= log.offset


# Mostly events and reads, so that there is something to lose.
NAMES = ["publish"] * 10 + ["other"] * 4 + ["bad"] + ["read"] * 6 + ["trim", "crash", "crash", "restart"]


def happen(log: ModelLog, name: str, count: int) -> None:
    if name == "restart":
        log.restart()
    elif name == "lose":
        log.lose()
    elif name == "trim":
        log.trim(max(0, len(log.log) - count))
    elif name == "crash":
        log.crash(count)
    elif name != "read":
        log.add({"publish": WANTED, "other": UNWANTED, "bad": BAD}[name])


def random_step(rng: Random) -> tuple[str, int]:
    """Return the next step, and its size."""
    return ("lose" if rng.random() < 0.005 else rng.choice(NAMES)), rng.randrange(1, 6)
