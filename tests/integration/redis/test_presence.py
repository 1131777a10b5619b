"""presence.lua on a real Redis, beside the model of it that the unit tests use."""

from random import Random
from typing import Any

import pytest

from headgate.redis import presence as store
from headgate.redis.client import Client, call, call_all
from headgate.redis.connections import Command
from headgate.redis.keys import presence_key, presence_members_key
from headgate.redis.presence_entries import LEASE_S, Entry, TopicWrite, encode_entry
from tests.support.presence_world import ModelStore
from tests.support.redis_server import full_memory

NAMESPACE = "notifications"
PROCESSES, TOPICS, USERS = ("p1", "p2", "p3"), ("rooms.7", "rooms.8"), ("ana", "ben", "o:eve", "ü")


def value(number: int) -> bytes:
    """Return a value of a user."""
    return encode_entry(Entry(number, 1, 2, '{"at":"door"}'))


def members_of(client: Client, topic: str, process: str) -> dict[str, bytes]:
    """Return the values of a process in a topic, by user."""
    return {user: value for part in store.read_parts(client, NAMESPACE, topic, process) for user, value in part.items()}


@pytest.mark.parametrize("seed", range(3))
def test_the_library_keeps_members_as_the_model_does(redis_client: Client, seed: int) -> None:
    """Random writes, resets and deaths leave the same members, processes and events to publish."""
    random, model = Random(seed), ModelStore()
    lost = 0
    for number in range(1, 101):
        process, topic = random.choice(PROCESSES), random.choice(TOPICS)
        what = random.random()
        if what < 0.1:
            model.forget(process, None)
            store.forget(redis_client, NAMESPACE, process, None, events=True)
        elif what < 0.3:
            assert store.beat(redis_client, NAMESPACE, process)[0] == model.beat(process, number)
        else:
            known = model.members.get((topic, process))
            puts = [(user, value(number)) for user in random.sample(USERS, random.randrange(3))]
            takes = [user for user in (known[1] if known else ()) if user not in dict(puts) and random.random() < 0.5]
            whole = known is None or random.random() < 0.1
            left = {**({} if whole else known[1] if known else {}), **dict(puts)}.keys() - set(takes)
            before = -1 if whole else known[0][0] - (random.random() < 0.1) if known else 0  # now and then it does not follow
            late = random.random() < 0.1
            write = TopicWrite(topic, before, number // 3 if late else number, len(left), puts, [] if whole else takes, b"[]")
            answer = store.write(redis_client, NAMESPACE, process, [write], events=True)
            assert (answer is None) == (model.write(process, [write]) is None)
            lost += answer is None
        for each in TOPICS:
            written = store.read_written(redis_client, NAMESPACE, each)
            assert written == model.written(each)
            assert {process: (last, members_of(redis_client, each, process)) for process, last in written.items()} == model.read(
                each
            )
    assert lost
    news = set[tuple[str, ...]]()
    while waiting := store.read_news(redis_client, NAMESPACE):
        news |= set(waiting.values())
        store.published(redis_client, NAMESPACE, waiting)
    assert news == set(map(tuple, model.news))
    for process in PROCESSES:
        store.forget(redis_client, NAMESPACE, process, None, events=False)
    assert call(redis_client, "KEYS", "hg:*") == []


def test_a_page_has_the_members_of_live_processes_by_name(redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, whatever the name. A user gone in between is counted, and is not there; a hash without a number is none."""

    def page(after: str | None, limit: int | None) -> tuple[int, list[str], str | None]:
        count, members, next_ = store.read_page(redis_client, NAMESPACE, "t", after, limit)
        return count, [f"{member.user} {member.connections}" for member in members], next_

    assert not store.any_process(redis_client, NAMESPACE)
    assert page(None, None) == (0, [], None)
    for process, users in (("p1", ["ü", "ana", "#", "ben"]), ("p2", ["ben", "\0x"]), ("dead", ["eve"])):
        store.beat(redis_client, NAMESPACE, process)
        write = TopicWrite("t", 0, 1, len(users), [(user, value(1)) for user in users], [], b"[]")
        store.write(redis_client, NAMESPACE, process, [write], events=False)
    call(redis_client, "ZINCRBY", presence_key(NAMESPACE), -round(1000 * LEASE_S + 1000), "dead")
    everyone = ["\0x 1", "# 1", "ana 1", "ben 2", "ü 1"]

    assert store.any_process(redis_client, NAMESPACE)
    assert page(None, None) == (5, everyone, None)
    assert [page(None, 3), page("ana", 2), page("ana", 1)] == [
        (5, everyone[:3], "ana"),
        (5, everyone[3:], None),
        (5, ["ben 2"], "ben"),
    ]

    def read_late(client: Client, commands: list[Command]) -> list[Any]:
        if commands[0][0] == "HMGET":
            store.write(client, NAMESPACE, "p1", [TopicWrite("t", 1, 2, 2, [], ["ana", "#"], b"[]")], events=False)
        return call_all(client, commands)

    monkeypatch.setattr(store, "call_all", read_late)
    assert page(None, 3) == (5, ["\0x 1"], "ana")
    call(redis_client, "HDEL", presence_members_key(NAMESPACE, "t", "p1"), "#")
    assert page(None, None) == (2, ["\0x 1", "ben 1"], None)
    call(redis_client, "UNLINK", presence_members_key(NAMESPACE, "t", "p2"))
    assert store.read_written(redis_client, NAMESPACE, "t").keys() == {"dead"}


def test_a_process_that_beats_again_is_not_taken_out(redis_client: Client) -> None:
    """Two processes may hold a third one for dead; the word of neither counts once it has spoken."""
    assert not store.beat(redis_client, NAMESPACE, "p1")[0]
    store.write(redis_client, NAMESPACE, "p1", [TopicWrite("t", 0, 1, 1, [("ana", value(1))], [], b"[]")], events=False)
    *_, beats = store.beat(redis_client, NAMESPACE, "")
    store.forget(redis_client, NAMESPACE, "p1", beats["p1"] - 1, events=False)
    assert store.read_page(redis_client, NAMESPACE, "t")[0] == 1
    store.forget(redis_client, NAMESPACE, "p1", beats["p1"], events=False)
    assert store.read_page(redis_client, NAMESPACE, "t")[0] == 0
    assert not store.beat(redis_client, NAMESPACE, "p1")[0]


def test_a_death_of_more_topics_than_a_call_takes_is_finished(redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that removes it may die itself. It stays in the set of processes, so the next check continues."""
    store.beat(redis_client, NAMESPACE, "p1")
    writes = [TopicWrite(f"t.{number}", 0, number, 1, [("ana", value(1))], [], b"[]") for number in range(1, 6)]
    store.write(redis_client, NAMESPACE, "p1", writes, events=False)
    monkeypatch.setattr(store, "_TOPICS", 2)
    key = presence_key(NAMESPACE)
    assert call(redis_client, "FCALL", "headgate_presence_forget", 1, key, "p1", "", 0, 2) == 3
    *_, beats = store.beat(redis_client, NAMESPACE, "")
    assert beats == {"p1": 0}
    assert (
        store.write(redis_client, NAMESPACE, "p1", [TopicWrite("t.9", -1, 9, 1, [("ana", value(1))], [], b"[]")], events=False)
        is None
    )
    call(redis_client, "ZADD", key, 0, "~p1")  # as the library of 0.2 notes it
    store.forget(redis_client, NAMESPACE, "~p1", 0, events=False)
    assert call(redis_client, "KEYS", "hg:*") == []


def test_a_large_topic_is_read_in_parts(redis_client: Client) -> None:
    """All of its members are there, and none of the parts is much larger than it should be."""
    store.beat(redis_client, NAMESPACE, "p1")
    puts = [(f"u{number}", value(1)) for number in range(2000)]
    assert store.write(redis_client, NAMESPACE, "p1", [TopicWrite("t", 0, 1, 2000, puts, [], b"[]")], events=False) == 0
    assert store.read_written(redis_client, NAMESPACE, "t") == {"p1": (1, 2000)}
    parts = list(store.read_parts(redis_client, NAMESPACE, "t", "p1"))
    assert {user for part in parts for user in part} == dict(puts).keys()
    assert max(len(part) for part in parts) < 2 * store.PART
    assert list(store.read_parts(redis_client, NAMESPACE, "t", "p2")) == [{}]


def test_each_topic_that_a_dead_process_leaves_vacant_has_an_event_of_its_own(redis_client: Client) -> None:
    """Also when it comes back and dies once more, because the log keeps one event of an id."""
    for number in (1, 3):
        store.beat(redis_client, NAMESPACE, "p1")
        writes = [TopicWrite(topic, 0, number + nth, 1, [("ana", value(1))], [], b"[]") for nth, topic in enumerate(TOPICS)]
        store.write(redis_client, NAMESPACE, "p1", writes, events=True)
        store.forget(redis_client, NAMESPACE, "p1", None, events=True)
    news = store.read_news(redis_client, NAMESPACE)
    assert sorted((kind, topic) for kind, topic, _ in news.values()) == sorted(
        2 * [(kind, topic) for kind in ("occupied", "vacated") for topic in TOPICS]
    )
    assert len({event_id for *_, event_id in news.values()}) == len(news)


def test_a_full_redis_takes_those_who_come_and_those_who_leave(redis_client: Client) -> None:
    """Or members would be shown long after they have gone."""
    store.beat(redis_client, NAMESPACE, "p1")
    with full_memory(redis_client):
        join = TopicWrite("t", 0, 1, 1, [("ana", value(1))], [], b"[]")
        assert store.write(redis_client, NAMESPACE, "p1", [join], events=True) == 1
        assert store.read_written(redis_client, NAMESPACE, "t") == {"p1": (1, 1)}
        assert store.write(redis_client, NAMESPACE, "p1", [TopicWrite("t", 1, 2, 0, [], ["ana"], b"[]")], events=True) == 2
        assert store.read_written(redis_client, NAMESPACE, "t") == {}
