"""The parts of presence one by one: places of connections, leases, writes, a room, its watchers, the rooms of a process."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import UNSET
from structlog.testing import capture_logs

from headgate.errors import BusUnavailable, InvalidRequest, LimitReached, PayloadTooLarge
from headgate.node.presence import other_members
from headgate.node.presence import presence as presence_module
from headgate.node.presence.leases import BACK_S, Leases
from headgate.node.presence.own_members import GRACE_S, MAX_CHANGES, OwnMembers
from headgate.node.presence.presence import Presence
from headgate.node.presence.room import MERGED_AT_ONCE, Room
from headgate.node.presence.rooms import MAX_IN_ALL, SETTLE_S, Rooms, read_meta
from headgate.redis.presence_entries import LEASE_S, Entry, Member, encode_entry, merge, merge_all, read_entries
from headgate.runtime.loop import Signal
from headgate.settings.settings import Settings
from tests.support.presence_world import Page


def entry(connections: int = 1, since_ms: int = 10, changed_ms: int = 10, meta: str | None = None) -> Entry:
    return Entry(connections, since_ms, changed_ms, meta)


# Places of connections ---------------------------------------------------------------------------------------------------


def test_a_page_that_enters_without_meta_keeps_what_another_page_of_the_user_has_said() -> None:
    """A second tab changes only the count, as a tab that comes back does; a page that says null takes the meta back."""
    own = OwnMembers()
    own.enter("s1", "ana", '"typing"', now_ms=5)
    own.enter("s2", "ana", None, now_ms=6)
    assert own.entry("ana") == Entry(2, 5, 5, '"typing"')
    own.break_off("s2", now_s=100.0)
    own.enter("s3", "ana", None, now_ms=7)
    assert own.entry("ana") == Entry(2, 5, 5, '"typing"')
    own.enter("s3", "ana", "null", now_ms=8)
    assert own.entry("ana") == Entry(2, 5, 8, "null")


def test_since_is_the_earliest_that_is_known_and_the_newest_meta_wins() -> None:
    """A user of another process before keeps its time; equal times are decided the same way everywhere."""
    own = OwnMembers()
    own.enter("s1", "ana", None, now_ms=50, since_ms=7)
    assert own.entry("ana") == Entry(1, 7, 0, None)
    tables = [{"ana": entry(1, 7, 20, "1")}, {"ana": entry(2, 5, 30, "2")}, {"ben": entry()}]
    assert merge_all(tables) == [Member("ana", 3, 5, "2"), Member("ben", 1, 10, None)]
    assert merge("eve", []) is None


def test_what_is_no_entry_is_nobody() -> None:
    """Another program may write where we do."""
    values = {"ana": encode_entry(entry()), "ben": b"{}", "eve": b"\xff", "joe": b'[1,5,10,"\xff"]'}
    assert read_entries(values) == {"ana": entry()}


# Leases ------------------------------------------------------------------------------------------------------------------


def test_a_process_whose_beat_redis_has_lost_is_dead_after_a_lease_too() -> None:
    """Unless it beats again."""
    leases = Leases()
    leases.received({"p1": 5, "p2": 5}, 5, 0.0)
    for second in range(1, 7):
        assert leases.received({"p2": second}, 5, float(second)) == []
    assert leases.received({"p2": 7}, 5, LEASE_S + 0.5) == ["p1"]
    assert leases.received({"p2": 8}, 5, LEASE_S + 1) == []


def test_nobody_is_dead_for_what_we_have_not_seen() -> None:
    """After a time without Redis each lease starts again."""
    leases = Leases()
    leases.received({"p1": 5}, 5, 0.0)
    assert leases.received({"p1": 5}, 99_000, 60.0) == []
    for second in range(61, 64):
        assert leases.received({"p1": 5}, 99_000, float(second)) == []
    leases.missed()
    for second in range(64, 71):
        assert leases.received({"p1": 5}, 99_000, float(second)) == []
    assert leases.received({"p1": 5}, 99_000, 64.1 + LEASE_S) == ["p1"]


def test_one_that_died_before_we_came_is_not_known_to_be_dead_until_it_could_have_beaten_again() -> None:
    """Redis may have been unreachable until now. One that another process has begun to take out is dead at once."""
    leases = Leases("p0")
    assert leases.is_unsure("p1")
    beats = {"p0": 61_000, "p1": 1000, "p2": 60_000, "p3": 0}  # p2 is quiet for a second, which says nothing
    assert leases.received(beats, 61_000, 5.0) == ["p3"]
    assert [leases.is_unsure(each) for each in ("p1", "p2", "p9")] == [True, False, False]
    for second in range(1, int(BACK_S)):
        assert leases.received({**beats, "p0": second}, 61_000, 5.0 + second) == ["p3"]
    assert sorted(leases.received({**beats, "p0": 9}, 61_000, 5.0 + BACK_S)) == ["p1", "p3"]
    assert not leases.is_unsure("p1")


def test_one_that_beats_again_after_our_first_look_is_not_dead_whatever_its_age_was() -> None:
    """Nor is one with an age that says nothing, since another process has looked for longer than we have."""
    leases = Leases("p0")
    leases.received({"p1": 1000, "p2": 1000}, 61_000, 5.0)
    assert leases.received({"p1": 62_000, "p2": 1000}, 62_000, 6.0) == []
    assert [leases.is_unsure(each) for each in ("p1", "p2")] == [False, True]
    for second in range(7, 12):
        assert leases.received({"p1": 1000 * second, "p2": 1000}, 99_000, float(second)) == []
    assert leases.received({"p1": 5, "p2": 1000}, 99_000, 5.1 + LEASE_S) == ["p2"]


# Writes ------------------------------------------------------------------------------------------------------------------


def message(write: Any) -> list[Any]:
    return list(json.loads(write.message))


def test_what_comes_to_nothing_is_not_written() -> None:
    """A user who came and left in between, or has the same entry as before."""
    own = OwnMembers()
    for session, user in (("s1", "ana"), ("s2", "ben")):
        own.enter(session, user, None, now_ms=10)
    own.leave("s2")
    write = own.next_write("t", "p1", 1)
    assert write is not None
    assert (write.before, write.members, [user for user, _ in write.puts]) == (0, 1, ["ana"])
    assert message(write)[:4] == ["p1", 0, 1, 1]
    own.written(write, accepted=True)
    own.enter("s1", "ana", None, now_ms=20)
    own.enter("s3", "ben", None, now_ms=20)
    own.leave("s3")
    assert own.next_write("t", "p1", 2) is None
    assert not own.pending


def test_members_are_gone_once_redis_has_confirmed_it() -> None:
    """A write without an answer is repeated as a whole, since Redis may still have them."""
    own = OwnMembers()
    own.enter("s1", "ana", None, now_ms=10)
    write = own.next_write("t", "p1", 1)
    assert write is not None
    own.written(write, accepted=True)
    own.leave("s1")
    for number, accepted in ((2, False), (3, True)):
        write = own.next_write("t", "p1", number)
        assert write is not None
        assert message(write) == ["p1", 1 if number == 2 else -1, number, 0, [], ["ana"] if number == 2 else []]
        assert not own.is_gone
        own.written(write, accepted=accepted)
    assert own.is_gone
    own.write_again()
    assert not own.pending


def test_many_changes_are_several_writes() -> None:
    """None of them holds Redis up for long."""
    rooms = rooms_of(max_members=MAX_CHANGES + 10)
    sizes: list[list[int]] = []

    def write() -> None:
        while rooms.has_writes:
            writes = rooms.next_writes()
            sizes.append([len(each.puts) for each in writes])
            rooms.written(writes, accepted=True)

    for topic, users in (("a", MAX_CHANGES + 5), ("b", MAX_CHANGES), ("c", 1)):
        for number in range(users):
            rooms.prepare(f"{topic}{number}", topic)
            rooms.enter(f"{topic}{number}", topic, Page("", ""), f"u{number}", None)
    write()
    assert sizes == [[MAX_CHANGES, MAX_CHANGES], [5, 1]]
    sizes.clear()
    rooms.write_all()
    write()
    assert MAX_CHANGES + 5 + MAX_CHANGES > MAX_IN_ALL
    assert sizes == [[MAX_CHANGES + 5], [MAX_CHANGES, 1]]


# A room ------------------------------------------------------------------------------------------------------------------


Found = dict[str, tuple[int, dict[str, Entry]]]


def load(room: Room, found: Found, now_s: float = 0.0, in_touch_since_s: float | None = 0.0) -> bool:
    """Let a room read the writes of each process, in one part each, and merge it."""
    nth = room.others.begin()
    for process, (number, table) in found.items():
        if room.others.lacks(process, number, len(table)):
            room.others.add(process, {user: encode_entry(each) for user, each in table.items()})
    last = {process: number for process, (number, _) in found.items()}
    live = room.others.loaded(nth, last, now_s, in_touch_since_s)
    while room.merge():
        pass
    return live


def names(room: Room) -> list[str]:
    return [member[0] for member in room.part(None)["members"]]


def room_here() -> Room:
    return Room("n", "t", "p1", "p1.1")


def live_room() -> Room:
    room = room_here()
    assert load(room, {})
    return room


def write_of(process: str, before: int, number: int, count: int, puts: list[Any], takes: list[str] | None = None) -> bytes:
    return json.dumps([process, before, number, count, puts, takes or []]).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"?",
        b"[1]",
        b'["\xff", 0, 1, 0, [], []]',
        write_of("p2", 3, 4, 1, [["ana", 1, 5, 6, None]]),
        write_of("p2", -1, 4, 1, []),
        write_of("p2", 0, 1, 2, [["ana", 1, 5, 6, None]]),
    ],
    ids=["no JSON", "no message", "no Unicode", "a hole", "written anew", "fewer members than it says"],
)
def test_what_does_not_follow_puts_the_room_in_doubt(raw: bytes) -> None:
    """Then Redis is read, and the known members stay until it is."""
    room = live_room()
    room.take(write_of("p3", 0, 1, 1, [["ben", 1, 5, 6, None]]))
    assert room.take(raw)
    assert not room.others.is_live
    assert "ben" in names(room)
    assert load(room, {"p2": (4, {"ana": entry()}), "p3": (1, {"ben": entry(1, 5, 6)})})
    assert room.member("ana") == Member("ana", 1, 10, None)
    assert names(room) == ["ana", "ben"]


def test_messages_wait_while_redis_is_read_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the reading has already are passed over; a hole among them means to read again."""
    room = room_here()
    room.take(write_of("p2", 0, 1, 1, [["old", 1, 5, 6, None]]))
    room.take(write_of("p2", 3, 4, 2, [["ben", 1, 5, 6, None]]))
    assert load(room, {"p2": (3, {"ana": entry()}), "p1": (9, {"own": entry()})})
    assert names(room) == ["ana", "ben"]
    room.others.doubt()
    room.take(write_of("p2", 8, 9, 2, [["eve", 1, 5, 6, None]]))
    assert not load(room, {"p2": (5, {"ana": entry()})})
    monkeypatch.setattr(other_members, "MAX_WAITING", 1)
    assert not room.take(write_of("p2", 0, 1, 1, []))
    assert room.take(write_of("p2", 0, 1, 1, []))


def test_members_that_redis_has_lost_are_kept_for_a_lease_and_no_longer() -> None:
    """Their process may be about to write them again. Readings show how long we have been in touch."""
    room = live_room()
    room.take(write_of("p2", 0, 7, 1, [["ana", 1, 5, 6, None]]))
    older: Found = {"p2": (5, {"old": entry()})}
    for second in range(int(LEASE_S) + 1):
        room.others.doubt()
        assert load(room, older if second % 2 else {}, 100.0 + second)
        assert (names(room), room.others.holds) == (["ana"], True)
    room.others.doubt()
    assert load(room, older, 100.0 + LEASE_S + 0.5)
    assert (names(room), room.others.holds) == (["old"], False)


def test_members_that_redis_has_lost_are_kept_anew_after_another_outage() -> None:
    """The time in which no process could write does not count."""
    room = live_room()
    room.take(write_of("p2", 0, 7, 1, [["ana", 1, 5, 6, None]]))
    for now_s, since_s in ((100.0, 90.0), (101.0, 90.0), (120.0, 119.0), (121.0, 119.0), (130.0, None)):
        room.others.doubt()
        assert load(room, {}, now_s, since_s)
        assert names(room) == ["ana"]


def test_the_word_that_nobody_is_left_counts_though_the_room_is_in_doubt_again() -> None:
    """Redis would lack them, and they would be held."""
    room = live_room()
    room.take(write_of("p2", 0, 7, 1, [["ana", 1, 5, 6, None]]))
    room.others.doubt()
    room.take(write_of("p2", 7, 8, 0, [], ["ana"]))
    room.others.doubt()
    assert load(room, {}, 1.0)
    assert (names(room), room.others.holds) == ([], False)
    room.take(write_of("p2", 0, 9, 1, [["ana", 1, 5, 6, None]]))
    room.others.doubt()
    room.take(write_of("p2", -1, 10, 1, []))
    room.take(write_of("p2", 10, 11, 0, [], ["ana"]))
    assert not load(room, {}, 2.0)
    assert load(room, {}, 2.0)
    assert (names(room), room.others.holds) == ([], False)


def test_many_members_are_merged_some_at_a_time() -> None:
    """Pages see the merged ones; the others come with later differences."""
    room = live_room()
    count = 2 * MERGED_AT_ONCE + 1
    room.take(write_of("p2", 0, 1, count, [[f"u{number:04}", 1, 5, 6, None] for number in range(count)]))
    assert (len(room), room.has_changes) == (0, True)
    assert room.merge()
    assert len(room) == MERGED_AT_ONCE
    room.take(write_of("p2", 1, 2, count - 1, [], ["u0000"]))  # merged, and gone again
    for session in ("s1", "s2", "s3"):
        room.own.enter(session, "u0400", None, now_ms=10)
    room.own_changed(["u0400"])
    assert room.member("u0400") == Member("u0400", 4, 5, None)
    while room.merge():
        pass
    assert len(room) == count - 1


def test_a_difference_has_a_size() -> None:
    """The rest comes with the next version."""
    room = live_room()
    for number in range(5):
        room.own.enter(f"s{number}", f"u{number}", None, now_ms=10)
        room.own_changed([f"u{number}"])
    assert [member.user for member in room.take_changes(60)[0]] == ["u0", "u1"]
    assert (room.version, room.has_changes) == (1, True)


# The rooms of a process --------------------------------------------------------------------------------------------------


def rooms_of(max_topics: int = 2, max_members: int = 2) -> Rooms:
    return Rooms("n", Settings(max_presence_topics=max_topics, max_presence_members=max_members))


def test_a_page_that_is_slow_gets_a_reset_and_nothing_else() -> None:
    """And one that leaves while it lags is forgotten."""
    rooms = rooms_of(max_members=10)
    pages = [Page(name, name) for name in ("slow", "quick", "gone")]
    for page in pages:
        rooms.prepare(page.session, "t")
        page.begin(rooms.enter(page.session, "t", page, page.user, None))
    pages[0].slow = pages[2].slow = True
    rooms.prepare("s", "t")
    rooms.enter("s", "t", Page("late", "s"), "late", None)
    assert sum(rooms.notify()) == 0
    assert rooms.any_behind
    assert pages[0].members is not None
    assert "late" not in pages[0].members
    assert pages[1].members is not None
    assert "late" in pages[1].members
    rooms.gone("gone", in_order=False)
    pages[0].slow = False
    assert sum(rooms.notify()) == 1
    assert pages[0].members is None
    assert not rooms.any_behind


def test_a_client_has_so_many_topics_and_a_topic_so_many_members() -> None:
    """A refused one changes nothing; a member's second tab is none more. Leaving one of two topics keeps the other."""
    two = rooms_of()
    for topic in ("t", "u"):
        two.prepare("s1", topic)
    two.leave("s1", "t")
    assert two.topics_of("s1") == ["u"]
    rooms = rooms_of(max_topics=1, max_members=1)
    page = Page("ana", "s1")
    rooms.prepare("s1", "t")
    rooms.enter("s1", "t", page, "ana", None)
    with pytest.raises(LimitReached, match="presence_topics"):
        rooms.prepare("s1", "u")
    rooms.prepare("s2", "t")
    with pytest.raises(LimitReached, match="presence_members"):
        rooms.enter("s2", "t", page, "ben", None)
    assert rooms.topics_of("s2") == []
    rooms.prepare("s3", "t")
    assert rooms.enter("s3", "t", page, "ana", None)["count"] == 1
    with pytest.raises(LimitReached, match="presence_topics"):
        rooms_of(max_topics=0).prepare("s1", "u")


def test_a_room_is_closed_when_redis_knows_that_its_last_place_has_ended() -> None:
    """Then messages that still come belong to no room. Of one who came and went between two writes Redis hears nothing."""
    closed: list[str] = []
    now = [0.0]
    rooms = Rooms("n", Settings(max_presence_topics=5, max_presence_members=5), closed=closed.append, now_s=lambda: now[0])
    for session, is_written in (("s1", True), ("s2", False)):
        rooms.prepare(session, "t")
        rooms.enter(session, "t", Page("ana", session), "ana", None)
        if is_written:
            rooms.written(rooms.next_writes(), accepted=True)
        rooms.gone(session, in_order=False)
        rooms.gone(session, in_order=False)
        assert (closed, rooms.members, rooms.next_end_s(now[0])) == ([], 1, now[0] + GRACE_S)
        now[0] += GRACE_S
        rooms.expire(now[0] - SETTLE_S + 1)  # another process may not have written yet that the client is there
        assert rooms.members == 1
        rooms.expire(0.0)
        assert (closed, rooms.members, rooms.next_end_s(0.0)) == ([], 0, None)
        writes = rooms.next_writes()
        assert bool(writes) == is_written
        rooms.written(writes, accepted=True)
        assert (closed, rooms.open) == (["t"], {})
        closed.clear()
    assert not rooms.take("t", b"")
    with pytest.raises(InvalidRequest, match="does not watch"):
        rooms.page("s1", "t", "")


def test_meta_is_json_of_a_size_and_nothing_of_the_anonymous() -> None:
    """They have one name, and would overwrite each other's."""
    assert read_meta({"at": "door"}, "ana", 100) == '{"at":"door"}'
    assert read_meta({"at": "door"}, "anonymous", 100) is None
    assert read_meta(UNSET, "ana", 100) is None
    assert read_meta(None, "ana", 100) == "null"
    with pytest.raises(PayloadTooLarge):
        read_meta("12345", "ana", 6)
    with pytest.raises(InvalidRequest):
        read_meta(object(), "ana", 6)


def test_many_watchers_are_told_in_turns() -> None:
    """The loop runs between two of them."""
    rooms = rooms_of(max_members=100)
    for number in range(70):
        rooms.prepare(f"s{number}", "t")
        rooms.watch(f"s{number}", "t", Page("ana", f"s{number}"))
    rooms.prepare("s", "t")
    rooms.enter("s", "t", Page("ana", "s"), "ana", None)
    assert list(rooms.notify()) == [0, 0, 0]


# Closing -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closes", [True, False])
def test_a_step_that_fails_because_presence_was_closed_is_no_fault(monkeypatch: pytest.MonkeyPatch, closes: bool) -> None:
    """Its connection is closed in the middle of it. Any other failure is logged with its traceback, and the next step comes."""
    monkeypatch.setattr(presence_module, "sleep", lambda seconds: None)
    presence = Presence("n", "redis://127.0.0.1:1", Settings(), lambda *_, **__: None)
    steps: list[bool] = []

    def fail() -> float | None:
        steps.append(True)
        if closes or len(steps) == 2:
            presence.close()
        raise ValueError("as planned")

    with capture_logs() as lines:
        presence._run("reader", Signal(), fail)
    assert [(line["event"], line["part"]) for line in lines] == ([] if closes else [("presence failed", "reader")])
    assert len(steps) == (1 if closes else 2)


def test_a_link_that_ends_while_a_command_is_sent_is_closed() -> None:
    """Sending lets the loop run, and the link's greenlet may have let go of it by then."""
    presence = Presence("n", "redis://127.0.0.1:1", Settings(), lambda *_, **__: None)
    closed: list[bool] = []

    def send(command: object) -> None:
        presence._link = None
        raise BusUnavailable("gone")

    presence._link = cast(Any, SimpleNamespace(send=send, close=lambda: closed.append(True)))
    presence.rooms.prepare("s", "rooms.7")
    assert closed == [True]
    presence.close()


# The lease ---------------------------------------------------------------------------------------------------------------


def test_a_process_without_members_gives_its_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of the others takes it for dead, and says so, although it serves on."""
    now_s = 100.0
    calls: list[str] = []

    def beat(client: object, namespace: str, process: str) -> tuple[bool, int, int, dict[str, int]]:
        calls.append(f"beat {bool(process)}")
        return True, 0, 0, {}

    def write(*_: object, **__: object) -> int:
        calls.append("write")
        return 0

    recorded = SimpleNamespace(
        any_process=lambda *_: True, beat=beat, write=write, forget=lambda *_, **__: calls.append("forget")
    )
    monkeypatch.setattr(presence_module, "store", recorded)
    monkeypatch.setattr(presence_module, "spawn", lambda *_: None)
    presence = Presence("n", "redis://127.0.0.1:1", Settings(), lambda *_, **__: None, lambda: now_s)
    presence.rooms.prepare("s", "rooms.7")
    presence.rooms.enter("s", "rooms.7", Page("ana", "s"), "ana", None)
    presence._beat_and_write()
    presence.rooms.leave("s", "rooms.7")
    for _ in range(3):
        presence._beat_and_write()
        now_s += 3.0
    assert calls == ["beat True", "write", "write", "forget", "beat False", "beat False"]
    presence.close()
