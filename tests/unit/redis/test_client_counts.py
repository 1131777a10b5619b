"""Client counts in Redis: what a process tells and is told, and what is left of one that is gone. On a small Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from headgate.errors import BusRefused, BusUnavailable
from headgate.redis.client import Client
from headgate.redis.client_counts import read_others
from headgate.redis.keys import PROCESSES, client_counts_key
from headgate.redis.leased import LEASE_S, leave, tell
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


def look(
    client: Client, process: str, told: Mapping[str, int], asked: Sequence[str], *, anew: bool = False
) -> tuple[int, dict[str, int], bool]:
    """Tell counts and ask for others; return how many processes there are, these counts, and whether the lease was known."""
    counts = {user: count or None for user, count in told.items()}
    others, known = tell(client, process, {client_counts_key(process): counts}, anew=anew)
    return len(others) + 1, read_others(client, others, asked), known


def test_each_process_learns_what_the_others_have(server: SmallRedis) -> None:
    """Of the users it asks about, without its own."""
    client = server.client()
    assert look(client, "one", {"ana": 2, "ben": 1}, ["ana"]) == (1, {"ana": 0}, False)
    assert look(client, "two", {"ana": 3}, ["ana", "ben"]) == (2, {"ana": 2, "ben": 1}, False)
    assert look(client, "three", {"ana": 1}, []) == (3, {}, False)
    assert look(client, "one", {}, ["ana", "cem"]) == (3, {"ana": 4, "cem": 0}, True)


def test_clients_that_have_left_count_no_more(server: SmallRedis) -> None:
    """Nor does a process that has left; its keys are gone."""
    client = server.client()
    look(client, "one", {"ana": 2, "ben": 1}, [])
    look(client, "one", {"ana": 0}, [])
    assert look(client, "two", {}, ["ana", "ben"])[1] == {"ana": 0, "ben": 1}
    leave(client, "one", [client_counts_key("one")])
    assert look(client, "two", {}, ["ben"]) == (1, {"ben": 0}, True)
    assert client_counts_key("one") not in server.present()


def test_a_dead_process_gives_its_places_back_when_its_lease_ends(server: SmallRedis) -> None:
    """And learns, if it was only slow, that what it told is lost."""
    client = server.client()
    look(client, "one", {"ana": 2}, [])
    server.now_s += LEASE_S - 1
    look(client, "two", {"ana": 1}, [])
    assert look(client, "two", {}, ["ana"])[1] == {"ana": 2}
    server.now_s += 1
    assert look(client, "two", {}, ["ana"]) == (1, {"ana": 0}, True)
    assert look(client, "one", {}, ["ana"]) == (2, {"ana": 1}, False)


def test_what_is_told_anew_takes_the_place_of_all_that_was_told(server: SmallRedis) -> None:
    """However many users that are, and in however many commands."""
    client = server.client()
    look(client, "one", {"ana": 2}, [])
    many = {f"user-{number}": 1 for number in range(1200)}
    look(client, "one", many, [], anew=True)
    assert look(client, "two", {}, ["ana", "user-0", "user-1199"])[1] == {"ana": 0, "user-0": 1, "user-1199": 1}
    look(client, "one", dict.fromkeys(many, 0), [])
    assert server.present() == {PROCESSES}


def test_a_refusal_and_a_broken_connection_are_told(server: SmallRedis) -> None:
    """As of any other command."""
    server.refuses = "HSET"
    with pytest.raises(BusRefused):
        look(server.client(), "one", {"ana": 1}, [])
    server.up = False
    with pytest.raises(BusUnavailable):
        leave(server.client(), "one", [])
