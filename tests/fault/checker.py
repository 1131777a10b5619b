"""The checker: what publishers were told against what clients saw, in the manner of Jepsen. No I/O.

In: receipts (`History.published`), publishes whose outcome nobody knows (`History.doubtful`), what the log held afterwards
(`History.found`), and for each client what happened to it, in order (`Record`). Out: `check`, the list of every violation.

Rules, per client and epoch. *Owed* is every logged event that a pattern matches between the acknowledged subscription and
its end.
- doubled: an offset seen twice. reordered: an offset seen after a higher one.
- unreported: an event was seen while a lower one that was owed had been neither seen nor told of by a gap before.
- lost: at the end, the same for everything up to where the log stands.
- phantom: an event that nobody published, that no pattern matches, or whose content is not what was published.
- miscounted: an overflow gap whose count is not the number of owed events in its range that were not seen.
- retold: the same loss of a log was reported twice.
- misled: a client was told that its log goes on in another epoch, and that is not so, or the lines part elsewhere.

The line that leads to the head at the end is known (`History.lineage`), and those of the epochs on it. Of an epoch that Redis has
lost altogether only its own events are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headgate.redis.lineage import Lineage, alone
from headgate.topic import matches


@dataclass(frozen=True, slots=True)
class Logged:
    """One event at its place in a log."""

    epoch: str
    offset: int
    topic: str
    id: str


@dataclass(slots=True)
class History:
    """The truth, as far as anybody knows it."""

    events: dict[tuple[str, int], Logged] = field(default_factory=dict)
    doubts: set[str] = field(default_factory=set)
    lineage: Lineage = field(default_factory=lambda: alone(""))

    def published(self, epoch: str, offset: int, topic: str, event_id: str) -> None:
        """A publisher got this receipt."""
        self.events[(epoch, offset)] = Logged(epoch, offset, topic, event_id)

    def doubtful(self, event_id: str) -> None:
        """A publisher got an error that leaves open whether the event was published."""
        self.doubts.add(event_id)

    def found(self, epoch: str, offset: int, topic: str, event_id: str) -> None:
        """The log held this event afterwards; a receipt that says something else has been a lie.

        Raises:
            AssertionError: two different events at one place.
        """
        known = self.events.setdefault((epoch, offset), Logged(epoch, offset, topic, event_id))
        assert (known.topic, known.id) == (topic, event_id), f"the log holds {topic} {event_id} where a receipt says {known}"

    def log(self, epoch: str) -> list[Logged]:
        """Return everything that is known of the line that leads to an epoch, in order."""
        known = list(self.events.values())  # in one step: publishers may be at it
        return sorted((event for event in known if self._leads_to(event, epoch)), key=lambda event: event.offset)

    def writer(self, offset: int) -> str:
        """Return the epoch in which the event at an offset of the line at the end was written."""
        oldest_first = sorted(self.lineage.ends.items(), key=lambda each: each[1])
        return next((epoch for epoch, end in oldest_first if offset <= end), self.lineage.epoch)

    def _leads_to(self, event: Logged, epoch: str) -> bool:
        if event.epoch == epoch:
            return True
        line = [*reversed(list(self.lineage.ends)), self.lineage.epoch]
        if epoch not in line or event.epoch not in line[: line.index(epoch)]:
            return False
        return event.offset <= self.lineage.ends[event.epoch]


# What happens to a client, in the order in which it happens. Times are on the monotonic clock of the client's process.


@dataclass(frozen=True, slots=True)
class Welcomed:
    """A session began: where the live feed stood, and whether the client's position was taken up (None: it had none)."""

    at_s: float
    epoch: str
    offset: int
    resumed: bool | None


@dataclass(frozen=True, slots=True)
class Seen:
    """An event arrived."""

    at_s: float
    offset: int
    topic: str
    id: str
    intact: bool = True
    took_s: float = 0.0  # since the publisher began to publish it, where it says when that was


@dataclass(frozen=True, slots=True)
class Gap:
    """The client was told what is missing."""

    at_s: float
    first: int | None
    last: int | None
    count: int | None
    reason: str
    recoverable: bool = False
    epoch: str | None = None  # in which the log goes on, where it was rolled back


@dataclass(frozen=True, slots=True)
class Moved:
    """A cursor: everything up to here has been delivered, in the line that leads to this epoch."""

    at_s: float
    epoch: str
    offset: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription was acknowledged at this offset."""

    at_s: float
    pattern: str
    offset: int


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The client asked to end a subscription: from here on nothing of it is owed."""

    at_s: float
    pattern: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Anything else, for figures: `bus up`, `bus down`, `closed`, backpressure."""

    at_s: float
    what: str


Entry = Welcomed | Seen | Gap | Moved | Subscribed | Unsubscribed | Noted


@dataclass(slots=True)
class Record:
    """One client's life, over all its sessions."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    # Conflated by its own wish: events that a newer one of their topic replaced are not missed.
    latest: bool = False

    def seen(self) -> list[Seen]:
        """Return its events."""
        return [entry for entry in self.entries if isinstance(entry, Seen)]

    def gaps(self, *reasons: str) -> list[Gap]:
        """Return its gaps, or those of some reasons."""
        return [entry for entry in self.entries if isinstance(entry, Gap) and (not reasons or entry.reason in reasons)]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    kind: str
    client: str
    epoch: str
    offset: int
    told: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.client} at {self.epoch[:6]}:{self.offset}: {self.told}"


def check(history: History, records: Iterable[Record], end: tuple[str, int]) -> list[Violation]:
    """Return every violation. `end` is epoch and offset of the log when everything had come to rest.

    Every client must be connected at the end, and have had time to get everything.
    """
    logs: dict[str, list[Logged]] = {}
    violations: list[Violation] = []
    for record in records:
        violations += _Walk(history, logs, record).walk(end)
    return violations


def assert_kept(history: History, records: Sequence[Record], end: tuple[str, int]) -> None:
    """Fail with the first violations, and how many there are of each kind."""
    violations = check(history, records, end)
    if violations:
        kinds: dict[str, int] = {}
        for violation in violations:
            kinds[violation.kind] = kinds.get(violation.kind, 0) + 1
        first = "\n  ".join(str(violation) for violation in violations[:12])
        raise AssertionError(f"{len(violations)} violations {kinds} for {len(records)} clients:\n  {first}")


class _Walk:
    """One client's record, read from its beginning to its end."""

    def __init__(self, history: History, logs: dict[str, list[Logged]], record: Record) -> None:
        self._history = history
        self._logs = logs
        self._record = record
        self._epoch = ""
        self._owed_from: dict[str, int] = {}  # pattern → the offset above which its events are owed
        self._frontier = 0  # everything owed up to here is accounted for
        self._highest = 0
        self._seen: set[int] = set()
        self._told: list[Gap] = []
        self._refused: Welcomed | None = None  # a welcome that did not resume, until a gap has said why
        self._lost = False  # the log was reported lost, and the cursor with the new one has not come yet
        self._begun: set[tuple[str, int]] = set()  # where it was told that new logs begin
        self.violations: list[Violation] = []

    def walk(self, end: tuple[str, int]) -> list[Violation]:
        for entry in self._record.entries:
            match entry:
                case Welcomed():
                    self._welcomed(entry)
                case Seen():
                    self._saw(entry)
                case Gap():
                    self._gap(entry)
                case Moved():
                    self._moved(entry)
                case Subscribed():
                    self._owed_from.setdefault(entry.pattern, entry.offset)
                case Unsubscribed():
                    self._owed_from.pop(entry.pattern, None)
        epoch, offset = end
        if self._epoch != epoch:
            self._violate("lost", offset, f"it is still in the log {self._epoch[:6]}, which is gone")
        else:
            self._account(offset + 1, "lost", "never seen, never told")
        return self.violations

    def _welcomed(self, entry: Welcomed) -> None:
        if not self._epoch:
            self._enter(entry.epoch, entry.offset)
        elif entry.resumed is False:
            self._refused, self._lost = entry, False
        elif entry.resumed is None:
            self._violate("lost", entry.offset, "it wanted to resume, and was told that there was nothing to resume")
        elif entry.epoch != self._epoch:
            self._follow(entry.epoch)

    def _follow(self, epoch: str) -> None:
        """The client was told that the log goes on in another epoch, and that it has lost nothing."""
        end = self._history.lineage.ends.get(self._epoch)
        had = max(self._highest, self._frontier)
        if end is None or had > end:
            self._violate("misled", had, f"it was told to go on in {epoch[:6]}, and its own epoch ends at {end}")
        self._epoch = epoch

    def _roll_back(self, entry: Gap) -> None:
        assert entry.first is not None
        assert entry.epoch is not None
        end = self._history.lineage.ends.get(self._epoch)
        if end is not None and end != entry.first - 1:
            self._violate("misled", entry.first, f"it was told of a loss from here, and its own epoch ends at {end}")
        self._epoch, end = entry.epoch, entry.first - 1
        self._frontier, self._highest = min(self._frontier, end), min(self._highest, end)
        self._seen = {offset for offset in self._seen if offset <= end}
        self._told = [gap for gap in self._told if gap.last is not None and gap.last <= end]
        self._owed_from = {pattern: min(since, end) for pattern, since in self._owed_from.items()}

    def _enter(self, epoch: str, offset: int) -> None:
        self._epoch, self._frontier, self._highest = epoch, offset, 0
        self._seen, self._told = set(), []
        self._refused, self._lost = None, False
        self._owed_from = dict.fromkeys(self._owed_from, offset)

    def _saw(self, entry: Seen) -> None:
        offset = entry.offset
        if self._lost or (self._refused is not None and self._refused.epoch != self._epoch):
            self._violate("unreported", offset, "seen before it was told which log it is in")
        if offset in self._seen:
            self._violate("doubled", offset, entry.id)
        elif offset <= self._highest:
            self._violate("reordered", offset, f"after {self._highest}")
        truth = next(self._log_from(offset - 1), None)
        if truth is not None and truth.offset != offset:
            truth = None
        if truth is None:
            if entry.id not in self._history.doubts:
                self._violate("phantom", offset, f"nobody published {entry.id} on {entry.topic}")
        elif (truth.id, truth.topic) != (entry.id, entry.topic) or not entry.intact:
            self._violate("phantom", offset, f"saw {entry.topic} {entry.id}, published was {truth.topic} {truth.id}")
        self._account(offset, "unreported", f"before {offset} was seen")
        self._seen.add(offset)
        self._highest = max(self._highest, offset)

    def _gap(self, entry: Gap) -> None:
        if entry.reason == "log_lost":
            if self._refused is not None:
                self._enter(self._refused.epoch, self._refused.offset)
                self._begun.add((self._epoch, self._frontier))
            elif self._lost:
                self._violate("retold", self._frontier, "the log was reported lost twice")
            else:
                self._lost = True
            return
        refused, self._refused = self._refused, None
        if entry.reason == "rolled_back":
            self._roll_back(entry)
            return
        if refused is not None and refused.epoch != self._epoch:
            self._follow(refused.epoch)
        if entry.first is None or entry.last is None:
            return
        if entry.reason == "overflow" and not self._record.latest:
            missed = sum(event.offset not in self._seen for event in self._owed(entry.first - 1, entry.last + 1))
            if missed != entry.count:
                self._violate("miscounted", entry.first, f"told {entry.count}, {missed} are missing up to {entry.last}")
        self._told.append(entry)

    def _moved(self, entry: Moved) -> None:
        if entry.epoch != self._epoch and not self._lost:
            if self._epoch in self._history.lineage.ends:
                self._follow(entry.epoch)
            else:
                self._violate("unreported", entry.offset, "the log is another one, and no gap said so")
                self._lost = True
        if not self._lost:
            self._account(entry.offset + 1, "unreported", f"before a cursor at {entry.offset}")
            return
        begins = (entry.epoch, entry.offset)
        if begins in self._begun:
            self._violate("retold", entry.offset, "the log was reported lost where it had been before")
        self._begun.add(begins)
        self._enter(*begins)

    def _owed(self, after: int, before: int) -> list[Logged]:
        owed = []
        for event in self._log_from(after):
            if event.offset >= before:
                break
            if any(event.offset > since and matches(pattern, event.topic) for pattern, since in self._owed_from.items()):
                owed.append(event)
        return owed

    def _log_from(self, after: int) -> Iterator[Logged]:
        log = self._logs.get(self._epoch)
        if log is None:
            log = self._logs[self._epoch] = self._history.log(self._epoch)
        for at in range(bisect_right(log, after, key=lambda event: event.offset), len(log)):
            yield log[at]

    def _account(self, before: int, kind: str, told: str) -> None:
        """Everything owed below `before` must have been seen, or told of."""
        if before - 1 <= self._frontier:
            return
        for event in self._owed(self._frontier, before):
            if event.offset in self._seen or self._record.latest:
                continue
            if not any((gap.first or 0) <= event.offset <= (gap.last or 0) for gap in self._told):
                self._violate(kind, event.offset, told)
        self._frontier = before - 1

    def _violate(self, kind: str, offset: int, told: str) -> None:
        self.violations.append(Violation(kind, self._record.name, self._epoch, offset, told))
