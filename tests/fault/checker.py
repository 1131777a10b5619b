"""The checker: receipts of publishers against the events of clients, in the manner of Jepsen. No I/O.

In: receipts (`History.published`), publishes with an unknown outcome (`History.doubtful`), the log afterwards
(`History.found`), and for each client its history, in order (`Record`). Out: `check`, the list of every violation.

Rules, per client and epoch. *Owed* is every logged event that a pattern matches between the acknowledged subscription and
its end.
- doubled: an offset seen twice. reordered: an offset seen after a higher one.
- unreported: an event was seen while a lower one that was owed had been neither seen nor reported by a gap before.
- lost: at the end, the same for everything up to where the log stands.
- phantom: an event that was not published, that no pattern matches, or with other content than published.
- miscounted: an overflow gap whose count is not the number of owed events in its range that were not seen. (For a range that
  Redis lost later, the number is unknown.)
- stale: a client that wants the newest value of each topic has neither seen the newest of a topic nor been notified of it.
- retold: the same loss of a log was reported twice, or an event was reported as rolled back that is in the log.
- ghost: an event was seen that is not in the log where it was seen, and no gap (`rolled_back`) took it back.

The final log is one line of epochs (`History.follow`). Events of other epochs were published, and are lost with the end of
their log. A client that has seen one must have been notified, and no client is owed one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby

from headgate.events.topic import matches


@dataclass(frozen=True, slots=True)
class Logged:
    """One event at its place in a log."""

    epoch: str
    offset: int
    topic: str
    id: str


@dataclass(slots=True)
class History:
    """The truth, as far as it is known."""

    events: dict[tuple[str, int], Logged] = field(default_factory=dict)
    doubts: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)  # of everything that was acknowledged, at whatever place
    lineage: list[tuple[str, int]] = field(default_factory=list)
    held_from: int | None = None  # from here on `found` has everything that the log holds

    def published(self, epoch: str, offset: int, topic: str, event_id: str) -> None:
        """A publisher got this receipt.

        Raises:
            AssertionError: another event got a receipt for the same place.
        """
        known = self.events.setdefault((epoch, offset), Logged(epoch, offset, topic, event_id))
        assert known.id == event_id, f"two receipts for {epoch}:{offset}: {known.id} and {event_id}"
        self.ids.add(event_id)

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
        self.ids.add(event_id)

    def follow(self, lineage: Iterable[tuple[str, int]]) -> None:
        """The log consists of these epochs, the oldest first, each with its first offset."""
        self.lineage = list(lineage)

    def epoch_at(self, offset: int) -> str:
        """Return the epoch in which the log's event at an offset was written."""
        return next((epoch for epoch, first in reversed(self.lineage) if first <= offset), "")

    def log(self, epoch: str) -> list[Logged]:
        """Return everything known of the log that has an epoch, in order."""
        known = list(self.events.values())  # in one step, because publishers may be at it
        if any(name == epoch for name, _ in self.lineage):
            on_line = (event for event in known if event.epoch == self.epoch_at(event.offset))
        else:
            on_line = (event for event in known if event.epoch == epoch)
        return sorted(on_line, key=lambda event: event.offset)

    def at(self) -> dict[int, dict[str, Logged]]:
        """Return all events that were ever published, by offset and id."""
        found: dict[int, dict[str, Logged]] = {}
        for event in list(self.events.values()):
            found.setdefault(event.offset, {})[event.id] = event
        return found


# The steps of a client's life, in their order. Times are on the monotonic clock of the client's process.


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
    """The client was notified of missing events."""

    at_s: float
    first: int | None
    last: int | None
    count: int | None
    reason: str
    recoverable: bool = False
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A cursor, which says that everything up to here has been delivered."""

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
    """The client asked to end a subscription, and from here on nothing of it is owed."""

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
    # Conflated by its own wish, so that events replaced by a newer one of their topic are not missed.
    latest: bool = False
    # How many deliveries the checker held against it, which are events of the log that were owed to it.
    owed: int = 0

    def seen(self) -> list[Seen]:
        """Return its events."""
        return [entry for entry in self.entries if isinstance(entry, Seen)]

    def gaps(self, *reasons: str) -> list[Gap]:
        """Return its gaps, or those of some reasons."""
        return [entry for entry in self.entries if isinstance(entry, Gap) and (not reasons or entry.reason in reasons)]

    def told(self) -> list[str]:
        """Return its life in lines, for people, with one for all the events that it saw between two others."""
        lines: list[str] = []
        for is_event, some in groupby(self.entries, lambda entry: isinstance(entry, Seen)):
            entries = list(some)
            if is_event:
                offsets = [entry.offset for entry in entries if isinstance(entry, Seen)]
                lines.append(f"{entries[0].at_s:.3f} saw {len(offsets)} events, {offsets[:3]} … {offsets[-3:]}")
            else:
                lines += [f"{entry.at_s:.3f} {entry}" for entry in entries]
        return lines


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

    Every client must be connected at the end, and have had time to get everything. The work is proportional to the events that
    clients have seen or are owed, not to the product of log and clients.
    """
    truth = _Truth(history)
    # All lives end here and now: those who are connected may be told of another epoch while the first are checked.
    lives = [(record, tuple(record.entries)) for record in records]
    return [violation for record, entries in lives for violation in _Walk(truth, record, entries).walk(end)]


def assert_kept(history: History, records: Sequence[Record], end: tuple[str, int]) -> None:
    """Fail with the first violations, and how many there are of each kind."""
    violations = check(history, records, end)
    if violations:
        kinds: dict[str, int] = {}
        for violation in violations:
            kinds[violation.kind] = kinds.get(violation.kind, 0) + 1
        first = "\n  ".join(str(violation) for violation in violations[:12])
        hit = next(record for record in records if record.name == violations[0].client)
        print(f"{hit.name}, of the line {history.lineage[-30:]}:\n" + "\n".join(hit.told()[-200:]))
        raise AssertionError(f"{len(violations)} violations {kinds} for {len(records)} clients:\n  {first}")


_NO_LIMIT = 2**62


def _limits(entries: Sequence[Entry]) -> list[int]:
    """Return for each entry the first offset that will be reported as rolled back after it, in the same log."""
    limits, limit = [], _NO_LIMIT
    for entry in reversed(entries):
        limits.append(limit)
        if isinstance(entry, Gap) and entry.reason == "rolled_back" and entry.first is not None:
            limit = min(limit, entry.first)
        elif isinstance(entry, Gap) and entry.reason == "log_lost":
            limit = _NO_LIMIT
    return limits[::-1]


class _Log:
    """One log as all walks need it. `offsets` are those of each topic, in order."""

    def __init__(self, events: Iterable[Logged]) -> None:
        self.ids: dict[int, str] = {}
        self.offsets: dict[str, list[int]] = {}
        for event in events:
            self.ids[event.offset] = event.id
            self.offsets.setdefault(event.topic, []).append(event.offset)
        self._matching: dict[str, list[str]] = {}

    def topics(self, pattern: str) -> Iterable[str]:
        """Return the topics of the log that a pattern matches."""
        if "*" not in pattern and "#" not in pattern:
            return (pattern,) if pattern in self.offsets else ()
        if pattern not in self._matching:
            self._matching[pattern] = [topic for topic in self.offsets if matches(pattern, topic)]
        return self._matching[pattern]


class _Truth:
    """A history as all walks need it: sorted once, not once for each client."""

    def __init__(self, history: History) -> None:
        self.published = history.at()
        self.ids, self.doubts = history.ids, history.doubts
        self.held_from = history.held_from
        self._history = history
        self._line = [epoch for epoch, _ in history.lineage]
        self._logs: dict[str, _Log] = {}

    @property
    def has_line(self) -> bool:
        """Whether the epochs of the log are known, so that another one of them is no other log."""
        return bool(self._line)

    def is_new(self, offset: int, epoch: str) -> bool:
        """Whether the log's event at an offset was written in this epoch or later, as another copy of one before."""
        return offset >= dict(self._history.lineage).get(epoch, _NO_LIMIT)

    def log(self, epoch: str) -> _Log:
        """Return the log that has an epoch."""
        log = self._logs.get(epoch)
        if log is None:
            log = _Log(self._history.log(epoch))
            self._logs.update(dict.fromkeys(self._line if epoch in self._line else [epoch], log))
        return log


class _Walk:
    """One client's record, read from its beginning to its end."""

    def __init__(self, truth: _Truth, record: Record, entries: Sequence[Entry]) -> None:
        self._truth, self._record, self._entries = truth, record, entries
        self._epoch = ""
        self._owed_from: dict[str, int] = {}  # pattern → the offset above which its events are owed
        self._frontier = 0  # everything owed up to here is accounted for
        # What a log owes above the frontier, in order, and the first of it. None: the frontier or the subscriptions have changed.
        self._ahead: tuple[_Log, Iterator[int]] | None = None
        self._next = _NO_LIMIT
        self._highest = 0
        self._seen: dict[int, str] = {}
        self._limit = _NO_LIMIT  # events from here on are judged later, as they will be reported as rolled back
        self._told: list[Gap] = []
        self._refused: Welcomed | None = None  # a welcome that did not resume, until a gap has said why
        self._lost = False  # the log was reported lost, and the cursor with the new one has not come yet
        self._begun: set[tuple[str, int]] = set()  # where new logs begin, as it was notified
        self.violations: list[Violation] = []

    def walk(self, end: tuple[str, int]) -> list[Violation]:
        for entry, limit in zip(self._entries, _limits(self._entries), strict=True):
            self._limit = limit
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
                    self._subscribed(entry)
                case Unsubscribed():
                    self._owed_from.pop(entry.pattern, None)
                    self._ahead = None
        self._limit = _NO_LIMIT
        epoch, offset = end
        if self._epoch != epoch:
            self._violate("lost", offset, f"it is still in the log {self._epoch[:6]}, which is gone")
        else:
            if self._record.latest:
                self._find_stale(offset)
            self._account(offset + 1, "lost", "never seen, never told")
            self._find_ghosts()
        return self.violations

    def _find_stale(self, end: int) -> None:
        log = self._truth.log(self._epoch)
        for topic, since in self._owed_topics(log).items():
            offsets = log.offsets[topic]
            at = bisect_right(offsets, end)
            if at and (newest := offsets[at - 1]) > since and newest not in self._seen and not self._was_told(newest):
                self._violate("stale", newest, f"never saw the newest value of {topic}")

    def _find_ghosts(self) -> None:
        there, held_from = self._truth.log(self._epoch).ids, self._truth.held_from
        for offset, event_id in self._seen.items():
            # Else it is a phantom, or a doubt that the log has trimmed.
            known = event_id in self._truth.published.get(offset, {}) or (held_from is not None and offset >= held_from)
            if known and there.get(offset) != event_id:
                self._violate("ghost", offset, f"saw {event_id}, the log has {there.get(offset)}")

    def _welcomed(self, entry: Welcomed) -> None:
        if not self._epoch:
            self._enter(entry.epoch, entry.offset)
        elif entry.resumed is False:
            self._refused, self._lost = entry, False
        elif entry.resumed is None:
            self._violate("lost", entry.offset, "it wanted to resume, and was told that there was nothing to resume")
        elif entry.epoch != self._epoch:
            if not self._truth.has_line:
                self._violate("lost", entry.offset, f"resumed in the log {entry.epoch[:6]}")
            self._epoch = entry.epoch

    def _enter(self, epoch: str, offset: int) -> None:
        self._epoch, self._frontier, self._highest = epoch, offset, 0
        self._seen, self._told = {}, []
        self._refused, self._lost = None, False
        self._owed_from = dict.fromkeys(self._owed_from, offset)
        self._ahead = None

    def _saw(self, entry: Seen) -> None:
        offset = entry.offset
        if self._lost or (self._refused is not None and self._refused.epoch != self._epoch and not self._truth.has_line):
            self._violate("unreported", offset, "seen before it was told which log it is in")
        if offset in self._seen:
            self._violate("doubled", offset, entry.id)
        elif offset <= self._highest:
            self._violate("reordered", offset, f"after {self._highest}")
        truth = self._truth.published.get(offset, {}).get(entry.id)
        if truth is None:
            # A publisher that tries again gets one receipt; both attempts may have been seen, if the first was told as lost.
            attempted = offset >= self._limit and entry.id in self._truth.ids
            if not attempted and entry.id not in self._truth.doubts:
                self._violate("phantom", offset, f"nobody published {entry.id} on {entry.topic}")
        elif truth.topic != entry.topic or not entry.intact:
            self._violate("phantom", offset, f"saw {entry.topic} {entry.id}, published was {truth.topic} {truth.id}")
        self._account(offset, "unreported", f"before {offset} was seen")
        self._seen[offset] = entry.id
        self._highest = max(self._highest, offset)

    def _gap(self, entry: Gap) -> None:
        if entry.reason == "log_lost":
            refused, self._refused = self._refused, None
            # A refusal in the log that the client knows has another reason. Then this log was lost before that could be reported.
            if refused is not None and refused.epoch != self._epoch:
                self._enter(refused.epoch, refused.offset)
                self._begun.add((self._epoch, self._frontier))
            elif self._lost:
                self._violate("retold", self._frontier, "the log was reported lost twice")
            else:
                self._lost = True
            return
        if self._refused is not None and self._truth.has_line:
            self._epoch = self._refused.epoch
        self._refused = None
        if entry.first is None or entry.last is None:
            return
        if entry.reason == "rolled_back":
            self._rolled_back(entry.first, entry.last, entry.epoch)
            return
        if entry.reason == "overflow" and not self._record.latest and entry.last < self._limit:
            missed = sum(offset not in self._seen for offset in self._owed(entry.first, entry.last))
            if missed != entry.count:
                self._violate("miscounted", entry.first, f"told {entry.count}, {missed} are missing up to {entry.last}")
        self._told.append(entry)

    def _rolled_back(self, first: int, last: int, epoch: str) -> None:
        """Events that it has seen from there on are no longer in the log; everything of the new line from there on is owed."""
        self._epoch = epoch  # the log of the one before may be lost as a whole
        there = self._truth.log(self._epoch).ids
        for offset in [offset for offset in self._seen if offset >= first]:
            event_id = self._seen.pop(offset)
            if offset > last:
                self._violate("ghost", offset, f"beyond what was told as rolled back: {first} to {last}")
            if there.get(offset) == event_id and not self._truth.is_new(offset, epoch):
                self._violate("retold", offset, f"{event_id} was told as rolled back, and is in the log")
        # It was notified of lower ones, and that is still so.
        self._told = [replace(gap, last=min(gap.last or 0, first - 1)) for gap in self._told if (gap.first or 0) < first]
        self._frontier = min(self._frontier, first - 1)
        self._highest = min(self._highest, first - 1)
        self._owed_from = {pattern: min(since, first - 1) for pattern, since in self._owed_from.items()}
        self._ahead = None

    def _moved(self, entry: Moved) -> None:
        if entry.epoch != self._epoch and not self._lost and self._truth.has_line:
            self._epoch = entry.epoch  # another epoch of the same log
        if entry.epoch != self._epoch and not self._lost:
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

    def _subscribed(self, entry: Subscribed) -> None:
        if entry.pattern not in self._owed_from:
            self._owed_from[entry.pattern] = entry.offset
            self._ahead = None

    def _owed_topics(self, log: _Log) -> dict[str, int]:
        """Return for each topic of the log that is owed the offset above which it is."""
        owed: dict[str, int] = {}
        for pattern, since in self._owed_from.items():
            for topic in log.topics(pattern):
                owed[topic] = min(since, owed.get(topic, since))
        return owed

    def _owed(self, first: int, last: int) -> Iterator[int]:
        """Yield the offsets of the owed events in a range, topic by topic."""
        log = self._truth.log(self._epoch)
        for topic, since in self._owed_topics(log).items():
            offsets = log.offsets[topic]
            yield from offsets[bisect_right(offsets, max(first - 1, since)) : bisect_right(offsets, last)]

    def _look_ahead(self, log: _Log) -> Iterator[int]:
        """Yield the offsets of all owed events above the frontier, in order."""
        above = []
        for topic, since in self._owed_topics(log).items():
            offsets = log.offsets[topic]
            above.append(map(offsets.__getitem__, range(bisect_right(offsets, max(self._frontier, since)), len(offsets))))
        return merge(*above)

    def _account(self, before: int, kind: str, told: str) -> None:
        """Everything owed below `before` must have been seen, or reported."""
        if before - 1 <= self._frontier:
            return
        log, end = self._truth.log(self._epoch), min(before, self._limit)
        if self._ahead is None or self._ahead[0] is not log:
            self._ahead = log, self._look_ahead(log)
            self._next = next(self._ahead[1], _NO_LIMIT)
        while self._next < end:
            offset, self._next = self._next, next(self._ahead[1], _NO_LIMIT)
            self._record.owed += 1
            if not (offset in self._seen or self._record.latest or self._was_told(offset)):
                self._violate(kind, offset, told)
        self._frontier = before - 1
        if end < before:
            self._ahead = None

    def _was_told(self, offset: int) -> bool:
        return any((gap.first or 0) <= offset <= (gap.last or 0) for gap in reversed(self._told))  # mostly the newest

    def _violate(self, kind: str, offset: int, told: str) -> None:
        self.violations.append(Violation(kind, self._record.name, self._epoch, offset, told))
