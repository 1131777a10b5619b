"""The checker finds its faults: each kind of violation, in a history made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.services.publisher import Fate
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


ONE_TWO_THREE = history(1, 2, 3)
TOLD = Gap(0.0, 2, 2, 1, "trimmed")
AGAIN: list[Entry] = [Noted(0.0, "closed"), Welcomed(0.0, OLD, 2, True)]
REFUSED: list[Entry] = [Noted(0.0, "closed"), Welcomed(0.0, OLD, 4, False)]
FOUR = history(1, 2, 3, 4)
# Name of the client's observation, the history, the client, the offset of the end, and the findings of the checker.
PLAIN: list[tuple[str, History, Record, int, list[tuple[str, int]]]] = [
    ("all once in order", ONE_TWO_THREE, life(seen(1, 2, 3)), 3, []),
    ("owed from the subscription on", ONE_TWO_THREE, life(seen(3), offset=2), 3, []),
    ("another topic is not owed", history(2, topic="bills.1", into=history(1, 3)), life(seen(1, 3)), 3, []),
    ("one never came", ONE_TWO_THREE, life(seen(1, 2)), 3, [("lost", 3)]),
    ("one was passed over", ONE_TWO_THREE, life(seen(1, 3)), 3, [("unreported", 2)]),
    ("told in time", ONE_TWO_THREE, life(seen(1), TOLD, seen(3)), 3, []),
    ("told too late", ONE_TWO_THREE, life(seen(1, 3), TOLD), 3, [("unreported", 2)]),
    ("a cursor skips one", history(1, 2), life(seen(1), Moved(0.0, OLD, 2), seen(2)), 2, [("unreported", 2)]),
    ("one twice, after a reconnection", history(1, 2), life(seen(1, 2), AGAIN, seen(2)), 2, [("doubled", 2)]),
    ("after a later one", history(1, 2), life(seen(2, 1)), 2, [("unreported", 1), ("reordered", 1)]),
    ("another content", history(1), life(Seen(0.0, 1, "orders.1", "a1", intact=False)), 1, [("phantom", 1)]),
    ("a right count", FOUR, life(seen(1), Gap(0.0, 2, 3, 2, "overflow"), seen(4)), 4, []),
    ("a wrong count", FOUR, life(seen(1), Gap(0.0, 2, 3, 3, "overflow"), seen(4)), 4, [("miscounted", 2)]),
    ("a failed resume, and the gap", FOUR, life(seen(1), REFUSED, Gap(0.0, 2, 3, 2, "trimmed"), seen(4)), 4, []),
    ("a failed resume alone", FOUR, life(seen(1), REFUSED, seen(4)), 4, [("unreported", 2), ("unreported", 3)]),
    ("a pattern given up", ONE_TWO_THREE, life(seen(1), Unsubscribed(0.0, "orders.*"), seen(2)), 3, []),
]


@pytest.mark.parametrize(("truth", "record", "end", "found"), [row[1:] for row in PLAIN], ids=[row[0] for row in PLAIN])
def test_each_kind_of_violation_is_found_and_nothing_else(
    truth: History, record: Record, end: int, found: list[tuple[str, int]]
) -> None:
    """In one epoch of the log."""
    assert kinds(truth, record, (OLD, end)) == found


def test_an_event_that_nobody_published_is_a_phantom() -> None:
    """Unless a publisher does not know whether it did."""
    truth = history(1)
    assert kinds(truth, life(seen(1, 2)), (OLD, 1)) == [("phantom", 2)]
    truth.doubtful("a2")
    assert kinds(truth, life(seen(1, 2)), (OLD, 1)) == []


def test_a_log_lost_after_a_failed_resume_in_it_owes_nothing_more() -> None:
    """Its gap covers the one that would have given the reason of the failed resume. Without a gap the new log is unreported."""
    truth = history(1, epoch=NEW, into=history(1, 2, 3, 4))
    again = seen(1, epoch=NEW)
    assert kinds(truth, life(seen(1), REFUSED, seen(2), lost_log(), again), (NEW, 1)) == []
    assert kinds(truth, life(seen(1), REFUSED, seen(2), lost_log()[1:], again), (NEW, 1)) == [("unreported", 0)]
    twice = life(seen(1), REFUSED, seen(2), lost_log()[:1], lost_log(), again)
    assert kinds(truth, twice, (NEW, 1)) == [("retold", 1)]


def test_a_log_that_was_reported_lost_owes_nothing_more() -> None:
    """From there on the new log counts."""
    truth = history(1, epoch=NEW, into=history(1, 2))
    assert kinds(truth, life(seen(1), lost_log(), seen(1, epoch=NEW)), (NEW, 1)) == []


def test_a_new_log_without_a_word_is_a_violation() -> None:
    """Neither a cursor of another epoch nor a welcome into one may stand for the gap."""
    truth = history(1, epoch=NEW, into=history(1))
    moved = life(seen(1), Moved(0.0, NEW, 0), seen(1, epoch=NEW))
    assert kinds(truth, moved, (NEW, 1)) == [("unreported", 0)]
    welcomed = life(seen(1), Welcomed(0.0, NEW, 0, False), seen(1, epoch=NEW))
    assert ("unreported", 1) in kinds(truth, welcomed, (NEW, 1))


def test_a_log_that_was_reported_lost_twice_is_retold() -> None:
    """Once means once."""
    twice = life(seen(1), lost_log(), lost_log())
    assert kinds(history(1), twice, (NEW, 0)) == [("retold", 0)]


def test_a_client_that_was_left_behind_in_the_old_log_has_lost() -> None:
    """It had no notice."""
    assert kinds(history(1), life(seen(1)), (NEW, 0)) == [("lost", 0)]


def test_a_resume_that_was_forgotten_is_a_loss() -> None:
    """`resumed: null` to a client with a position would hide everything since."""
    assert ("lost", 1) in kinds(history(1), life([], Welcomed(0.0, OLD, 1, None)), (OLD, 1))


def test_violations_fail_a_test_with_their_count() -> None:
    """The message names kinds, clients and places."""
    with pytest.raises(AssertionError, match=r"2 violations \{'lost': 2\} for 1 clients:\s+lost: c at aaaaaa:1: never seen"):
        assert_kept(history(1, 2), [life()], (OLD, 2))


def test_a_log_that_contradicts_a_receipt_is_found() -> None:
    """A receipt is a promise."""
    with pytest.raises(AssertionError, match="where a receipt says"):
        history(1).found(OLD, 1, "orders.1", "other")


# One line of epochs --------------------------------------------------------------------------------------------------------


def one_line(*offsets: int) -> History:
    """Return a log with a first epoch that ends at 2: everything else of it was lost, and its offsets are used again."""
    truth = history(3, 4, 5, epoch=NEW, into=history(1, 2, *offsets))
    truth.follow([(OLD, 1), (NEW, 3)])
    return truth


def rolled_back(first: int, last: int) -> Gap:
    return Gap(0.0, first, last, last - first + 1, "rolled_back", epoch=NEW)


def test_another_epoch_of_the_same_log_needs_no_gap() -> None:
    """A cursor, or a welcome, names it; everything is owed as ever."""
    again: list[Entry] = [Noted(0.0, "closed"), Welcomed(0.0, NEW, 2, True)]
    assert kinds(one_line(), life(seen(1, 2), Moved(0.0, NEW, 2), seen(3, 4, 5, epoch=NEW)), (NEW, 5)) == []
    assert kinds(one_line(), life(seen(1, 2), again, seen(3, 4, 5, epoch=NEW)), (NEW, 5)) == []
    assert kinds(one_line(), life(seen(1, 2), Moved(0.0, NEW, 2), seen(3, 5, epoch=NEW)), (NEW, 5)) == [("unreported", 4)]


def test_lost_events_that_were_seen_must_be_told() -> None:
    """Reported, and followed by the new events at their offsets, they are no violation; else they are ghosts."""
    truth = one_line(3, 4)
    assert kinds(truth, life(seen(1, 2, 3, 4), rolled_back(3, 4), seen(3, 4, 5, epoch=NEW)), (NEW, 5)) == []
    silent = life(seen(1, 2, 3, 4), Moved(0.0, NEW, 4), seen(5, epoch=NEW))
    assert kinds(truth, silent, (NEW, 5)) == [("ghost", 3), ("ghost", 4)]
    too_little = life(seen(1, 2, 3, 4), rolled_back(4, 4), seen(4, 5, epoch=NEW))
    assert kinds(truth, too_little, (NEW, 5)) == [("ghost", 3)]


def test_events_that_are_there_must_not_be_told_as_rolled_back() -> None:
    """The client would take back a true event."""
    assert kinds(one_line(3), life(seen(1, 2, 3), rolled_back(2, 3), seen(2), seen(3, 4, 5, epoch=NEW)), (NEW, 5)) == [
        ("retold", 2)
    ]


def test_new_events_at_old_offsets_are_owed() -> None:
    """After a rollback everything above its beginning is owed again."""
    assert kinds(one_line(3, 4), life(seen(1, 2, 3, 4), rolled_back(3, 4), seen(4, 5, epoch=NEW)), (NEW, 5)) == [
        ("unreported", 3)
    ]


def test_a_gap_still_tells_of_what_lies_below_a_rollback() -> None:
    """Of the rest the new line has other events, which are owed."""
    truth = one_line(3, 4)
    told = [*seen(1), Gap(0.0, 2, 4, 3, "overflow"), rolled_back(3, 4)]
    assert kinds(truth, life(told, seen(3, 4, 5, epoch=NEW)), (NEW, 5)) == []
    assert kinds(truth, life(told, seen(4, 5, epoch=NEW)), (NEW, 5)) == [("unreported", 3)]


def test_an_attempt_that_was_lost_may_have_been_seen() -> None:
    """Its publisher tried again, and has one receipt; but the client must have been notified."""
    truth = one_line()
    truth.published(NEW, 6, "orders.1", "again")
    lost: list[Entry] = [Seen(0.0, 3, "orders.1", "again")]
    new = [*seen(3, 4, 5, epoch=NEW), Seen(0.0, 6, "orders.1", "again")]
    assert kinds(truth, life(seen(1, 2), lost, rolled_back(3, 3), new), (NEW, 6)) == []
    assert ("phantom", 3) in kinds(truth, life(seen(1, 2), lost, Moved(0.0, NEW, 3), new[1:]), (NEW, 6))


def test_a_doubt_that_the_log_does_not_hold_is_a_ghost() -> None:
    """A publisher does not know whether it was published; the log does, where it has been read."""
    truth = history(1)
    truth.doubtful("a2")
    truth.held_from = 1
    assert kinds(truth, life(seen(1, 2)), (OLD, 2)) == [("ghost", 2)]


def test_a_client_that_wants_the_newest_values_must_have_them() -> None:
    """Older ones of a topic may be missing; the newest may not."""
    truth = history(2, topic="orders.2", into=history(1, 3))
    record = life(seen(2, topic="orders.2"), seen(3))
    record.latest = True
    assert kinds(truth, record, (OLD, 3)) == []
    record = life(seen(1), seen(2, topic="orders.2"))
    record.latest = True
    assert kinds(truth, record, (OLD, 3)) == [("stale", 3)]


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


def test_two_receipts_for_one_place_are_found() -> None:
    """An epoch and an offset name one event."""
    with pytest.raises(AssertionError, match="two receipts"):
        history(1).published(OLD, 1, "orders.1", "other")


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


def consumer_kinds(truth: History, work: list[Done], past: Faults | None = None) -> list[tuple[str, int]]:
    """Return the findings of the checker in a consumer's work: kind and offset."""
    found = check_consumer(truth, "consumer", work, past or Faults(), NEW if truth.lineage else OLD)
    return [(violation.kind, violation.offset) for violation in found]


def test_a_lost_receipt_is_reported_by_check_and_bounded_by_its_fault() -> None:
    """The plain case, with the others in the log."""
    receipts = [receipt(1), receipt(2), receipt(3)]
    fates = {1: Fate.IN_LOG, 3: Fate.ROLLED_BACK}
    assert receipt_kinds(one_line(3), receipts, fates, faults((4.5, 6.0))) == []


@pytest.mark.parametrize("fates", [{}, {3: Fate.IN_LOG}, {3: Fate.UNKNOWN}, {3: Fate.TRIMMED}])
def test_a_lost_receipt_that_check_does_not_name_is_unreported(fates: dict[int, Fate]) -> None:
    """Its publisher believes in it."""
    assert receipt_kinds(one_line(3), [receipt(3)], fates, faults((4.5, 6.0))) == [("unreported", 3)]


def test_a_lost_receipt_of_an_epoch_that_is_lost_as_a_whole_may_be_unknown() -> None:
    """Nothing of that epoch is left by which the log could know it."""
    truth = history(3, epoch="c" * 16, into=one_line())
    gone = Acknowledged("p", 4.0, 5.0, "c" * 16, 3, "c3")
    for fate, found in ((Fate.UNKNOWN, 0), (Fate.ROLLED_BACK, 0), (Fate.IN_LOG, 1), (Fate.TRIMMED, 1)):
        assert len(check_receipts(truth, [gone], {gone.place: fate}, faults((4.5, 6.0)), NEW)) == found


@pytest.mark.parametrize("past", [Faults(), faults((0.0, 3.9)), faults((5.1, 9.0)), faults((4.5, 6.0), loses=False)])
def test_a_receipt_that_is_lost_without_a_fault_is_unbounded(past: Faults) -> None:
    """Neither a fault of another time nor one that loses nothing excuses it."""
    assert receipt_kinds(one_line(3), [receipt(3)], {3: Fate.ROLLED_BACK}, past) == [("unbounded", 3)]


def test_a_receipt_that_check_denies_is_found() -> None:
    """Its publisher would publish the event again."""
    assert receipt_kinds(history(1), [receipt(1)], {1: Fate.ROLLED_BACK}, Faults()) == [("denied", 1)]


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


def test_a_consumer_that_does_everything_is_no_violation() -> None:
    """In any order, and with events that were lost later."""
    assert consumer_kinds(one_line(3), [*done(2, 1, 3), *done(4, 5, 3, epoch=NEW)]) == []


def test_a_consumer_that_skips_one_is_found() -> None:
    """It would never be done."""
    assert consumer_kinds(history(1, 2, 3), done(1, 3)) == [("skipped", 2)]


def test_a_delivery_that_comes_again_needs_a_fault_between() -> None:
    """A webhook is doubled without reason if nothing happened since the first."""
    again = [*done(1, 2), *done(1, at_s=5.0)]
    assert consumer_kinds(history(1, 2), again) == [("doubled", 1)]
    assert consumer_kinds(history(1, 2), again, faults((0.0, 0.5), (5.5, 9.0))) == [("doubled", 1)]
    assert consumer_kinds(history(1, 2), again, faults((2.0, 3.0), loses=False)) == []


def test_a_consumer_that_does_what_nobody_published_is_found() -> None:
    """Unless a publisher does not know whether it did; and a place is never that of two events."""
    truth = history(1)
    unknown = Done(1.0, OLD, 2, "b2")
    assert consumer_kinds(truth, [*done(1), unknown]) == [("phantom", 2)]
    truth.doubtful("b2")
    assert consumer_kinds(truth, [*done(1), unknown]) == []
    truth.doubtful("b3")
    assert consumer_kinds(truth, [*done(1), unknown, Done(2.0, OLD, 2, "b3")]) == [("phantom", 2)]
    assert consumer_kinds(history(1), [*done(1), Done(2.0, OLD, 1, "other")]) == [("phantom", 1)]
