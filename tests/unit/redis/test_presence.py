"""Commands to Redis about presence, and how its answers are read. tests/integration/redis/test_presence.py asks a real one."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.redis import presence as store
from headgate.redis.client import Client
from headgate.redis.presence_entries import Beat, Entry, Member, TopicWrite, Written, encode_entry

CLIENT = cast(Client, SimpleNamespace(connection_pool=SimpleNamespace(connection_kwargs={"db": 0})))


class Redis:
    """Answers each command with the next of `replies`, and keeps the commands."""

    def __init__(self, *replies: Any) -> None:
        self.replies, self.asked = list(replies), list[tuple[Any, ...]]()

    def call(self, client: Client, *command: Any) -> Any:
        self.asked.append(command)
        return self.replies.pop(0)

    def call_all(self, client: Client, commands: Any) -> list[Any]:
        return [self.call(client, *command) for command in commands]


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> Redis:
    scripted = Redis()
    for name in ("call", "call_all"):
        monkeypatch.setattr(store, name, getattr(scripted, name))
    monkeypatch.setattr(store.PRESENCE_LIBRARY, "call", scripted.call)
    return scripted


def test_a_beat_tells_of_the_others(redis: Redis) -> None:
    """Whichever way the time is written."""
    redis.replies = [[1, 2, b"5000", b"p1", b"4000", b"p2", b"1.7e+12"]]
    assert store.beat(CLIENT, "n", "p1") == Beat(True, 2, 5000, {"p1": 4000, "p2": 1_700_000_000_000})
    redis.replies = [2, 0]
    assert [store.any_process(CLIENT, "n") for _ in range(2)] == [True, False]


@pytest.mark.parametrize("paired", [True, False])
def test_members_are_those_of_live_processes(redis: Redis, paired: bool) -> None:
    """By Redis' clock; a hash without a number is none of ours."""
    ana = encode_entry(Entry(1, 10, 10, None))
    scores: list[Any] = [(b"p1", 100_000.0), (b"p2", 90_000.0)] if paired else [b"p1", b"100000", b"p2", b"90000"]
    redis.replies = [scores, [100, 5000], [b"p1", b"p2", b"p3"], [b"#", b"ana"], [ana]]
    assert store.read_page(CLIENT, "n", "rooms.7") == (1, [Member("ana", 1, 10, None)], None)
    redis.replies = [[], [100, 5000], []]
    assert store.read_page(CLIENT, "n", "rooms.7") == (0, [], None)


def test_a_part_of_the_members_reads_what_is_written_about_these_only(redis: Redis) -> None:
    """By name, those of live processes, each once; a user gone in between is counted, and is not there."""
    ana, ben = encode_entry(Entry(1, 10, 10, None)), encode_entry(Entry(2, 5, 20, '"door"'))
    begin: list[Any] = [[b"p1", b"100000", b"p2", b"99000", b"p3", b"90000"], [100, 5000], [b"p1", b"p2", b"p3"]]
    redis.replies = [*begin, [b"#", b"ben", b"ana", b"eve"], [b"ben", b"#", "jürgen".encode()], [ana, None], [ben]]
    assert store.read_page(CLIENT, "n", "rooms.7", "ana", 2) == (4, [Member("ben", 3, 5, '"door"')], "eve")
    asked = [command for command in redis.asked if command[0] == "HMGET"]
    assert [command[2:] for command in asked] == [("ben", "eve"), ("ben",)]
    redis.replies = [*begin, [b"ana"], []]
    assert store.read_page(CLIENT, "n", "rooms.7", None, 2) == (0, [], None)


def test_a_user_who_is_called_as_the_number_has_another_field(redis: Redis) -> None:
    """The name is `#`, and so is the field of a process's last write."""
    value = encode_entry(Entry(1, 10, 10, None))
    redis.replies = [0]
    store.write(CLIENT, "n", "p1", [TopicWrite("rooms.7", 0, 1, 1, [("#", value)], ["#", "##"], b"m")], events=False)
    assert redis.asked[-1][-7:] == (1, "\0#", value, 2, "\0#", "##", b"m")
    live: list[Any] = [[b"p1", b"100000"], [100, 5000], [b"p1"]]
    redis.replies = [*live, [b"#", b"\0#", b"!"], [value]]
    assert store.read_page(CLIENT, "n", "rooms.7", None, 1) == (2, [Member("!", 1, 10, None)], "!")
    redis.replies = [*live, [b"#", b"\0#", b"!"], [value]]
    assert store.read_page(CLIENT, "n", "rooms.7", "!", 1) == (2, [Member("#", 1, 10, None)], None)
    assert redis.asked[-1][2:] == ("\0#",)


def test_a_process_whose_members_are_gone_by_then_is_left_out(redis: Redis) -> None:
    """Its name is read before its number."""
    redis.replies = [[b"p1", b"p2"], b"4:2", None]
    assert store.read_written(CLIENT, "n", "a") == {"p1": Written(4, 2)}
