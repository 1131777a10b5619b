"""The checker finds its faults: each kind of violation, in a history made by hand."""

from dataclasses import replace

import pytest

from headgate.redis.lineage import Fate
from tests.fault.accounts import (
    FOLLOW_S,
    Acknowledged,
    Done,
    Fault,
    Faults,
    check_consumer,
    check_receipts,
    flows,
    latest_s,
)
from tests.fault.checker import (
    Entry,
    Gap,
    History,
    Moved,
    Noted,
    Record,
    Seen,
    Subscribed,
    Unsubscribed,
    Welcomed,
    assert_kept,
    check,
)

OLD, NEW = "a" * 16, "b" * 16


def history(*offsets: int, epoch: str = OLD, topic: str = "orders.1", into: History | None = None) -> History:
    """Return a history with an event at each offset."""
    made = into or History()
    for offset in offsets:
        made.published(epoch, offset, topic, f"{epoch[0]}{offset}")
    return made


def seen(*offsets: int, epoch: str = OLD, topic: str = "orders.1") -> list[Entry]:
    """Return these events as a client sees them."""
    return [Seen(0.0, offset, topic, f"{epoch[0]}{offset}") for offset in offsets]


def life(*entries: Entry | list[Entry], offset: int = 0) -> Record:
    """Return the record of a client that subscribed to orders.* at `offset`."""
    record = Record("c", [Welcomed(0.0, OLD, offset, None), Subscribed(0.0, "orders.*", offset)])
    for entry in entries:
        record.entries.extend(entry if isinstance(entry, list) else [entry])
    return record


def kinds(truth: History, record: Record, end: tuple[str, int]) -> list[tuple[str, int]]:
    """Return the findings of the checker: kind and offset."""
    return [(violation.kind, violation.offset) for violation in check(truth, [record], end)]


def lost_log(offset: int = 0) -> list[Entry]:
    """Return the notice that the log is another one."""
    return [Gap(0.0, None, None, None, "log_lost"), Moved(0.0, NEW, offset)]


def one_line(*offsets: int) -> History:
    """Return a log with a first epoch that ends at 2: everything else of it was lost, and its offsets are used again."""
    truth = history(3, 4, 5, epoch=NEW, into=history(1, 2, *offsets))
    truth.follow([(OLD, 1), (NEW, 3)])
    return truth


def doubtful(truth: History, event_id: str, held_from: int | None = None) -> History:
    """Return a history with a publish of unknown outcome, of a log that was read from an offset on."""
    truth.doubtful(event_id)
    truth.held_from = held_from
    return truth


def newest(*entries: Entry | list[Entry]) -> Record:
    """Return the record of a client that wants the newest value of each topic."""
    record = life(*entries)
    record.latest = True
    return record


TOLD = Gap(0.0, 2, 2, 1, "trimmed")
AGAIN: list[Entry] = [Noted(0.0, "closed"), Welcomed(0.0, OLD, 2, True)]
REFUSED: list[Entry] = [Noted(0.0, "closed"), Welcomed(0.0, OLD, 4, False)]
GOES_ON: list[Entry] = [Noted(0.0, "closed"), Welcomed(0.0, NEW, 2, True)]
TO_NEW = Moved(0.0, NEW, 2)
LOST, NEW_ONE = lost_log(), seen(1, epoch=NEW)
ONE_TWO_THREE, FOUR = history(1, 2, 3), history(1, 2, 3, 4)
ANOTHER_LOG = history(1, epoch=NEW, into=history(1, 2, 3, 4))
TWO_TOPICS = history(2, topic="orders.2", into=history(1, 3))
TOLD_OF_BOTH = [*seen(1), Gap(0.0, 2, 4, 3, "overflow"), Gap(0.0, 3, 4, 2, "rolled_back", epoch=NEW)]
# Name of the client's observation, the history, the client, the end of the log, and the findings of the checker.
LIVES: list[tuple[str, History, Record, tuple[str, int], list[tuple[str, int]]]] = [
    ("all once in order", ONE_TWO_THREE, life(seen(1, 2, 3)), (OLD, 3), []),
    ("owed from the subscription on", ONE_TWO_THREE, life(seen(3), offset=2), (OLD, 3), []),
    ("another topic is not owed", history(2, topic="bills.1", into=history(1, 3)), life(seen(1, 3)), (OLD, 3), []),
    ("told in time", ONE_TWO_THREE, life(seen(1), TOLD, seen(3)), (OLD, 3), []),
    ("told too late", ONE_TWO_THREE, life(seen(1, 3), TOLD), (OLD, 3), [("unreported", 2)]),
    ("a cursor skips one", history(1, 2), life(seen(1), Moved(0.0, OLD, 2), seen(2)), (OLD, 2), [("unreported", 2)]),
    ("one twice, after a reconnection", history(1, 2), life(seen(1, 2), AGAIN, seen(2)), (OLD, 2), [("doubled", 2)]),
    ("a failed resume, and the gap", FOUR, life(seen(1), REFUSED, Gap(0.0, 2, 3, 2, "trimmed"), seen(4)), (OLD, 4), []),
    ("a failed resume alone", FOUR, life(seen(1), REFUSED, seen(4)), (OLD, 4), [("unreported", 2), ("unreported", 3)]),
    ("a pattern given up", ONE_TWO_THREE, life(seen(1), Unsubscribed(0.0, "orders.*"), seen(2)), (OLD, 3), []),
    ("one that nobody published", history(1), life(seen(1, 2)), (OLD, 1), [("phantom", 2)]),
    ("one that may have been published", doubtful(history(1), "a2"), life(seen(1, 2)), (OLD, 1), []),
    ("one that the log does not hold", doubtful(history(1), "a2", 1), life(seen(1, 2)), (OLD, 2), [("ghost", 2)]),
    ("the newest values", TWO_TOPICS, newest(seen(2, topic="orders.2"), seen(3)), (OLD, 3), []),
    ("not the newest value", TWO_TOPICS, newest(seen(1), seen(2, topic="orders.2")), (OLD, 3), [("stale", 3)]),
    # A log that is lost: from its gap on the new one counts, which covers the reason of a failed resume.
    ("a log reported lost", ANOTHER_LOG, life(seen(1), LOST, NEW_ONE), (NEW, 1), []),
    ("a lost log after a failed resume", ANOTHER_LOG, life(seen(1), REFUSED, seen(2), LOST, NEW_ONE), (NEW, 1), []),
    ("a cursor of a new log, and no gap", ANOTHER_LOG, life(seen(1), LOST[1:], NEW_ONE), (NEW, 1), [("unreported", 0)]),
    ("a log reported lost twice", history(1), life(seen(1), LOST, LOST), (NEW, 0), [("retold", 0)]),
    ("and after a resume", ANOTHER_LOG, life(seen(1), REFUSED, seen(2), LOST[:1], LOST, NEW_ONE), (NEW, 1), [("retold", 1)]),
    ("left behind in the old log", history(1), life(seen(1)), (NEW, 0), [("lost", 0)]),
    # One line of epochs: a cursor or a welcome names the next one; what lies above a rollback is owed again.
    ("a cursor of the next epoch", one_line(), life(seen(1, 2), TO_NEW, seen(3, 4, 5, epoch=NEW)), (NEW, 5), []),
    ("a welcome into the next epoch", one_line(), life(seen(1, 2), GOES_ON, seen(3, 4, 5, epoch=NEW)), (NEW, 5), []),
    ("one less of it", one_line(), life(seen(1, 2), TO_NEW, seen(3, 5, epoch=NEW)), (NEW, 5), [("unreported", 4)]),
    ("a gap below a rollback", one_line(3, 4), life(TOLD_OF_BOTH, seen(3, 4, 5, epoch=NEW)), (NEW, 5), []),
    ("and one missing", one_line(3, 4), life(TOLD_OF_BOTH, seen(4, 5, epoch=NEW)), (NEW, 5), [("unreported", 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "record", "end", "found"), [row[1:] for row in LIVES], ids=[row[0] for row in LIVES])
def test_each_kind_of_violation_is_found_and_nothing_else(
    truth: History, record: Record, end: tuple[str, int], found: list[tuple[str, int]]
) -> None:
    """In short lives, one fault in each; the busy life below has every fault of a single event."""
    assert kinds(truth, record, end) == found


def test_a_welcome_into_a_new_log_does_not_stand_for_the_gap() -> None:
    """What the client has not seen of the new log is unreported."""
    welcomed = life(seen(1), Welcomed(0.0, NEW, 0, False), NEW_ONE)
    assert ("unreported", 1) in kinds(history(1, epoch=NEW, into=history(1)), welcomed, (NEW, 1))


def test_violations_fail_a_test_with_their_count() -> None:
    """The message names kinds, clients and places."""
    with pytest.raises(AssertionError, match=r"2 violations \{'lost': 2\} for 1 clients:\s+lost: c at aaaaaa:1: never seen"):
        assert_kept(history(1, 2), [life()], (OLD, 2))


def test_a_log_or_a_receipt_that_contradicts_a_receipt_is_found() -> None:
    """A receipt is a promise, and an epoch and an offset name one event."""
    with pytest.raises(AssertionError, match="where a receipt says"):
        history(1).found(OLD, 1, "orders.1", "other")
    with pytest.raises(AssertionError, match="two receipts"):
        history(1).published(OLD, 1, "orders.1", "other")


def test_an_attempt_that_was_lost_may_have_been_seen() -> None:
    """Its publisher tried again, and has one receipt; but the client must have been notified."""
    truth = one_line()
    truth.published(NEW, 6, "orders.1", "again")
    lost: list[Entry] = [Seen(0.0, 3, "orders.1", "again")]
    new = [*seen(3, 4, 5, epoch=NEW), Seen(0.0, 6, "orders.1", "again")]
    gap = Gap(0.0, 3, 3, 1, "rolled_back", epoch=NEW)
    assert kinds(truth, life(seen(1, 2), lost, gap, new), (NEW, 6)) == []
    assert ("phantom", 3) in kinds(truth, life(seen(1, 2), lost, Moved(0.0, NEW, 3), new[1:]), (NEW, 6))


def test_an_event_published_again_at_its_old_offset_may_be_reported_as_rolled_back() -> None:
    """A publisher whose connection breaks in a failover tries again under the same id."""
    truth = one_line()
    truth.published(OLD, 3, "orders.1", f"{NEW[0]}3")
    gap = Gap(0.0, 3, 3, 1, "rolled_back", epoch=NEW)
    assert kinds(truth, life(seen(1, 2), seen(3, epoch=NEW), gap, seen(3, 4, 5, epoch=NEW)), (NEW, 5)) == []


# A busy life, broken in every place -------------------------------------------------------------------------------------------

LAST, ROLLED_BACK = 30, range(14, 18)


def topic_of(offset: int) -> str:
    return f"orders.{offset % 2}" if offset % 5 else "bills.1"


def busy() -> tuple[History, list[Entry]]:
    """Return a good life: patterns that overlap, sessions, an overflow, a rollback, and a topic that is not owed for a while."""
    truth = History()
    for offset in range(1, LAST + 1):
        epoch = OLD if offset < ROLLED_BACK[0] else NEW
        truth.published(epoch, offset, topic_of(offset), f"{epoch[0]}{offset}")
    for offset in ROLLED_BACK:
        truth.published(OLD, offset, topic_of(offset), f"a{offset}")
    truth.follow([(OLD, 1), (NEW, ROLLED_BACK[0])])
    truth.held_from = 1

    def saw(*offsets: int, epoch: str = OLD) -> list[Entry]:
        return [entry for offset in offsets for entry in seen(offset, epoch=epoch, topic=topic_of(offset))]

    parts: list[list[Entry]] = [
        [Welcomed(0.0, OLD, 0, None), Subscribed(0.0, "orders.*", 0), Subscribed(0.0, "orders.1", 0)],
        saw(1, 2, 3, 4),
        [Subscribed(0.0, "bills.#", 4), *saw(5, 6)],
        [Gap(0.0, 7, 9, 3, "overflow"), *saw(10, 11)],
        [Noted(0.0, "closed"), Welcomed(0.0, OLD, 11, True), Subscribed(0.0, "orders.*", 11), *saw(12, 13, *ROLLED_BACK)],
        [Gap(0.0, 14, 17, 4, "rolled_back", epoch=NEW), *saw(*range(14, 25), epoch=NEW)],
        [Moved(0.0, NEW, 24), Unsubscribed(0.0, "bills.#"), *saw(26, 27, 28, 29, epoch=NEW)],
    ]
    return truth, [entry for part in parts for entry in part]


def broken(entries: list[Entry], at: int, *instead: Entry) -> set[tuple[str, int]]:
    """Return what the checker finds if other entries stand in a place of the busy life."""
    record = Record("c", [*entries[:at], *instead, *entries[at + 1 :]])
    return set(kinds(busy()[0], record, (NEW, LAST)))


def test_a_busy_life_is_good_beside_others_like_it() -> None:
    """Clients share one log, and what is checked of one is not left out of another."""
    truth, entries = busy()
    records = [Record(f"c{number}", list(entries)) for number in range(3)]
    records[1].entries.remove(seen(12, topic=topic_of(12))[0])
    assert [(each.client, each.kind, each.offset) for each in check(truth, records, (NEW, LAST))] == [("c1", "unreported", 12)]
    assert {record.owed for record in records} == {28}


@pytest.mark.parametrize("at", [at for at, entry in enumerate(busy()[1]) if isinstance(entry, Seen)])
def test_whatever_goes_wrong_with_one_event_is_named(at: int) -> None:
    """Each event of the busy life in turn is missing, doubled, late, of another content, or of a topic that is not its own."""
    truth, entries = busy()
    entry, after = entries[at], entries[at + 1 :]
    assert isinstance(entry, Seen)
    lost_later = entry.id in {f"a{offset}" for offset in ROLLED_BACK}
    missing = "unreported" if any(isinstance(each, Seen | Moved) for each in after) else "lost"
    assert broken(entries, at) == (set() if lost_later else {(missing, entry.offset)})
    assert broken(entries, at, entry, entry) == {("doubled", entry.offset)}
    assert broken(entries, at, replace(entry, intact=False)) == {("phantom", entry.offset)}
    assert broken(entries, at, replace(entry, topic="orders.9")) == {("phantom", entry.offset)}
    assert ("phantom", entry.offset) in broken(entries, at, replace(entry, id="nobody's"))
    if after and isinstance(after[0], Seen):
        late = Record("c", [*entries[:at], after[0], entry, *after[1:]])
        assert ("reordered", entry.offset) in kinds(truth, late, (NEW, LAST))


def test_whatever_goes_wrong_with_what_is_told_is_named() -> None:
    """A gap that is missing, counts wrong, or ends too early; a rollback of too much, of too little, or none."""
    _, entries = busy()
    overflow, rollback = (at for at, entry in enumerate(entries) if isinstance(entry, Gap))
    told, back = entries[overflow], entries[rollback]
    assert isinstance(told, Gap)
    assert isinstance(back, Gap)
    assert broken(entries, overflow) == {("unreported", 7), ("unreported", 8), ("unreported", 9)}
    assert broken(entries, overflow, replace(told, count=2)) == {("miscounted", 7)}
    assert broken(entries, overflow, replace(told, last=8, count=2)) == {("unreported", 9)}
    assert broken(entries, overflow, replace(told, first=6)) == set(), "one that was seen is not counted"
    assert {kind for kind, _ in broken(entries, rollback)} == {"doubled"}
    assert broken(entries, rollback, replace(back, first=15)) == {("doubled", 14)}
    assert broken(entries, rollback, replace(back, last=16)) == {("ghost", 17)}
    assert ("retold", 13) in broken(entries, rollback, replace(back, first=13))
    silent = broken(entries[: rollback + 1], rollback, *[entry for entry in entries[rollback + 5 :] if entry != back])
    assert silent == {("ghost", offset) for offset in ROLLED_BACK}
    assert broken(entries, overflow, told, Welcomed(0.0, OLD, 9, None)) == {("lost", 9)}
    assert ("lost", LAST) in broken(entries[:rollback], rollback - 1)


# Publishers and consumers ---------------------------------------------------------------------------------------------------


def receipt(offset: int, *, epoch: str = OLD, at_s: float = 5.0) -> Acknowledged:
    """Return the receipt of an event as `history` names it; its publish took a second."""
    return Acknowledged("p", at_s - 1, at_s, epoch, offset, f"{epoch[0]}{offset}")


def done(*offsets: int, epoch: str = OLD, at_s: float = 1.0) -> list[Done]:
    """Return these events as a consumer does them, a second after one another."""
    return [Done(at_s + number, epoch, offset, f"{epoch[0]}{offset}") for number, offset in enumerate(offsets)]


def faults(*spans: tuple[float, float], loses: bool = True) -> Faults:
    """Return faults with these beginnings and ends."""
    return Faults([Fault("a fault", loses, began_s, ended_s) for began_s, ended_s in spans])


def receipt_kinds(truth: History, receipts: list[Acknowledged], fates: dict[int, Fate], past: Faults) -> list[tuple[str, int]]:
    """Return the findings of the checker in receipts of the old epoch: kind and offset."""
    by_place = {(OLD, offset): str(fate) for offset, fate in fates.items()}
    found = check_receipts(truth, receipts, by_place, past, NEW if truth.lineage else OLD)
    return [(violation.kind, violation.offset) for violation in found]


def consumer_kinds(truth: History, work: list[Done], past: Faults) -> list[tuple[str, int]]:
    """Return the findings of the checker in a consumer's work: kind and offset."""
    found = check_consumer(truth, "consumer", work, past, NEW if truth.lineage else OLD)
    return [(violation.kind, violation.offset) for violation in found]


EXCUSE, NO_EXCUSE = faults((4.5, 6.0)), faults((4.5, 6.0), loses=False)
RECEIPTS: list[tuple[str, History, list[Acknowledged], dict[int, Fate], Faults, list[tuple[str, int]]]] = [
    ("reported", one_line(3), [receipt(1), receipt(2), receipt(3)], {1: Fate.IN_LOG, 3: Fate.ROLLED_BACK}, EXCUSE, []),
    ("not asked about", one_line(3), [receipt(3)], {}, EXCUSE, [("unreported", 3)]),
    ("said to be there", one_line(3), [receipt(3)], {3: Fate.IN_LOG}, EXCUSE, [("unreported", 3)]),
    ("unknown", one_line(3), [receipt(3)], {3: Fate.UNKNOWN}, EXCUSE, [("unreported", 3)]),
    ("said to be trimmed", one_line(3), [receipt(3)], {3: Fate.TRIMMED}, EXCUSE, [("unreported", 3)]),
    ("lost without a fault", one_line(3), [receipt(3)], {3: Fate.ROLLED_BACK}, Faults(), [("unbounded", 3)]),
    ("lost after a fault", one_line(3), [receipt(3)], {3: Fate.ROLLED_BACK}, faults((0.0, 3.9)), [("unbounded", 3)]),
    ("lost before a fault", one_line(3), [receipt(3)], {3: Fate.ROLLED_BACK}, faults((5.1, 9.0)), [("unbounded", 3)]),
    ("lost in a fault that loses nothing", one_line(3), [receipt(3)], {3: Fate.ROLLED_BACK}, NO_EXCUSE, [("unbounded", 3)]),
    ("there, and denied", history(1), [receipt(1)], {1: Fate.ROLLED_BACK}, Faults(), [("denied", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("truth", "receipts", "fates", "past", "found"), [row[1:] for row in RECEIPTS], ids=[row[0] for row in RECEIPTS]
)
def test_each_fault_of_a_receipt_is_found(
    truth: History, receipts: list[Acknowledged], fates: dict[int, Fate], past: Faults, found: list[tuple[str, int]]
) -> None:
    """A lost one is named by `check`, and excused by a fault that loses events during its publish."""
    assert receipt_kinds(truth, receipts, fates, past) == found


def test_a_lost_receipt_of_an_epoch_that_is_lost_as_a_whole_may_be_unknown() -> None:
    """Nothing of that epoch is left by which the log could know it."""
    truth = history(3, epoch="c" * 16, into=one_line())
    gone = Acknowledged("p", 4.0, 5.0, "c" * 16, 3, "c3")
    for fate, found in ((Fate.UNKNOWN, 0), (Fate.ROLLED_BACK, 0), (Fate.IN_LOG, 1), (Fate.TRIMMED, 1)):
        assert len(check_receipts(truth, [gone], {gone.place: fate}, faults((4.5, 6.0)), NEW)) == found


def test_an_id_that_is_in_the_log_twice_is_found() -> None:
    """A publisher that tried again has one receipt, and all clients two events."""
    truth = history(1)
    truth.found(OLD, 2, "orders.1", "a1")
    assert receipt_kinds(truth, [receipt(1)], {}, Faults()) == [("twice", 0)]


def test_a_fault_lasts_longer_while_an_old_primary_may_live_on() -> None:
    """From when another server took over; any other fault ends with its block."""
    past = Faults()
    with past.one("two servers", loses=True) as lost_end:
        lost_end.moved_s, lost_end.lives_on = 1e9, True
    with past.one("planned") as planned:
        planned.moved_s = 1e9
    assert lost_end.ended_s == 1e9 + FOLLOW_S
    assert planned.ended_s < 1e9


def test_the_latest_publish_of_a_lost_event_is_measured_from_the_new_primary_on() -> None:
    """The figure of how long publishers stayed with the old one."""
    past = faults((0.0, 20.0), (7.0, 20.0))
    past.past[0].moved_s, past.past[1].moved_s = 2.0, 8.0
    assert latest_s([receipt(3, at_s=4.0), receipt(4, at_s=6.5), receipt(5, at_s=10.0)], past) == 3.5


def test_the_first_event_of_a_new_primary_is_measured_with_the_silence_before_it() -> None:
    """Of the browser that has it first, over all of its sessions; earlier events do not count as new."""
    past = faults((0.0, 3.0), (20.0, 21.0))
    past.past[0].moved_s, past.past[1].moved_s = 2.0, 20.5
    life = [
        Seen(1.0, 1, "orders.1", "a1"),
        Seen(2.5, 2, "orders.1", "a2", took_s=1.0),
        Seen(4.0, 3, "orders.1", "a3", took_s=0.5),
    ]
    later = Record("later", [*life[:2], Seen(9.0, 3, "orders.1", "a3", took_s=5.5)])
    assert flows([later, Record("idle"), Record("first", list(life))], past) == [(2.0, 1.5)]


TWICE = [*done(1, 2), *done(1, at_s=5.0)]
WORK: list[tuple[str, History, list[Done], Faults, list[tuple[str, int]]]] = [
    ("everything, in any order", one_line(3), [*done(2, 1, 3), *done(4, 5, 3, epoch=NEW)], Faults(), []),
    ("one skipped", history(1, 2, 3), done(1, 3), Faults(), [("skipped", 2)]),
    ("one again", history(1, 2), TWICE, Faults(), [("doubled", 1)]),
    ("one again, no fault between", history(1, 2), TWICE, faults((0.0, 0.5), (5.5, 9.0)), [("doubled", 1)]),
    ("one again, a fault between", history(1, 2), TWICE, faults((2.0, 3.0), loses=False), []),
    ("one that nobody published", history(1), [*done(1), Done(1.0, OLD, 2, "b2")], Faults(), [("phantom", 2)]),
    ("one that may have been published", doubtful(history(1), "b2"), [*done(1), Done(1.0, OLD, 2, "b2")], Faults(), []),
    ("two at one place", history(1), [*done(1), Done(2.0, OLD, 1, "other")], Faults(), [("phantom", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "work", "past", "found"), [row[1:] for row in WORK], ids=[row[0] for row in WORK])
def test_each_fault_of_a_consumer_is_found(truth: History, work: list[Done], past: Faults, found: list[tuple[str, int]]) -> None:
    """What it never did, did again without a fault between, or cannot have been given."""
    assert consumer_kinds(truth, work, past) == found


def test_two_doubtful_events_have_not_one_place() -> None:
    """One of them was published at most."""
    truth = doubtful(doubtful(history(1), "b2"), "b3")
    assert consumer_kinds(truth, [*done(1), Done(1.0, OLD, 2, "b2"), Done(2.0, OLD, 2, "b3")], Faults()) == [("phantom", 2)]
