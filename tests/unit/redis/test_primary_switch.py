"""The switch of an address: when it is asked, and which connections leave."""

import pytest

from headgate.redis.primary_switch import (
    ANSWERED_RATIO,
    ASK_EVERY_S,
    ASK_EVERY_SENTINEL_S,
    ASK_EVERY_SENTINEL_TLS_S,
    ASK_EVERY_SOCKET_S,
    ASK_EVERY_TLS_S,
    MAX_PAUSE_S,
    NO_LIBRARY,
    PAUSE_RATIO,
    RETURN_WITHIN_ASKS,
    TORN_S,
    UNKNOWN,
    PrimarySwitch,
    switch_of,
)
from headgate.settings.addresses.redis_url import read_url
from tests.support.processes import in_child


class Link:
    def __init__(self) -> None:
        self.left = 0

    def leave(self) -> None:
        self.left += 1


def test_the_address_is_asked_once_for_all_and_again_when_the_answer_is_old() -> None:
    """The first connection is an answer itself; a connection asks before use after an idle time."""
    switch = PrimarySwitch()
    switch.begin(100.0)
    assert not switch.is_due(100.0 + ASK_EVERY_S / 2)
    assert [switch.is_due(100.0 + ASK_EVERY_S) for _ in range(3)] == [True, False, False]
    switch.asked(100.0 + ASK_EVERY_S, 100.001 + ASK_EVERY_S, is_answered=True)
    assert not switch.is_due(100.5 + ASK_EVERY_S)
    assert switch.is_due(1000.0)


def test_a_later_connection_puts_the_question_off_for_nobody() -> None:
    """A process that connects all the time asks all the same."""
    switch = PrimarySwitch()
    for tenth in range(10):
        switch.begin(100.0 + tenth / 10)
    assert switch.is_due(100.0 + ASK_EVERY_S)


@pytest.mark.parametrize(
    ("took_s", "is_answered", "pause_s"),
    [
        (0.001, True, ASK_EVERY_S),
        (0.001, False, ASK_EVERY_S),
        (0.5, False, 0.5 * PAUSE_RATIO),
        (1.5, True, 1.5 * ANSWERED_RATIO),  # a process that got no processor in the middle of a failover
        (3600.0, False, MAX_PAUSE_S),
        (3600.0, True, MAX_PAUSE_S),
    ],
)
def test_an_answer_that_takes_long_is_asked_for_less_often(took_s: float, is_answered: bool, pause_s: float) -> None:
    """A dead resolver must not hold up every call; nor is the address forgotten for ever."""
    switch = PrimarySwitch()
    assert switch.is_due(100.0)
    switch.asked(100.0, 100.0 + took_s, is_answered=is_answered)
    assert not switch.is_due(100.0 + pause_s - 0.01)
    assert switch.is_due(100.0 + pause_s)


def test_a_refusal_has_the_next_caller_ask() -> None:
    """A server that takes no writes any more is a primary no more."""
    switch = PrimarySwitch()
    switch.begin(100.0)
    switch.doubt()
    assert switch.is_due(100.0)


def test_connections_to_the_server_before_are_left() -> None:
    """Whichever of them is used next, and those that only listen at once; those to the new server stay."""
    switch = PrimarySwitch()
    old, new, unknown, gone = Link(), Link(), Link(), Link()
    switch.note("a", 100.0, count=switch.count)
    switch.follow(old, "a", 0)
    switch.follow(new, "b", 0)
    switch.follow(unknown, UNKNOWN, 0)
    switch.follow(gone, "a", 0)
    switch.unfollow(gone)
    assert [old.left, new.left, unknown.left] == [0, 1, 0]  # the last answer of all counts
    switch.follow(new := Link(), UNKNOWN, 0)
    switch.note("b", 100.0, count=switch.count)
    late = Link()
    switch.follow(late, "a", 0)
    after = Link()
    switch.follow(after, UNKNOWN, switch.count)
    switch.note("b", 100.0, count=switch.count)
    assert [link.left for link in (old, unknown, new, gone, late, after)] == [1, 1, 1, 0, 1, 0]
    assert [switch.is_left(*each) for each in (("a", 0), ("b", 0), ("b", 1), (UNKNOWN, 0), (UNKNOWN, 1))] == [
        *(True, False, False),
        *(True, False),
    ]


def test_there_and_back_again_is_noticed_by_those_in_between() -> None:
    """A connection that was made while the address led to the other server leaves it."""
    switch = PrimarySwitch()
    switch.note("a", 100.0, count=switch.count)
    switch.note("b", 100.0, count=switch.count)
    switch.note("a", 100.0, count=switch.count)
    assert [switch.is_left(*each) for each in (("a", 0), ("b", 1), (UNKNOWN, 1), ("a", 2))] == [False, True, True, False]


def test_a_connection_of_before_leads_nobody_back() -> None:
    """It asks for its server when it is used again, and the address has led elsewhere since."""
    switch, link = PrimarySwitch(), Link()
    switch.note("a", 100.0, count=0)
    switch.note("b", 101.0, count=0)
    switch.follow(link, "b", 1)
    for number in range(10):
        switch.note("a", 101.0 + number / 10, count=0)
    assert (switch.server, switch.count, link.left, switch.is_torn(102.0)) == ("b", 1, 0, False)
    switch.note("a", 103.0, count=1)
    assert (switch.server, link.left) == ("a", 1)


def test_an_address_that_leads_to_and_fro_is_torn() -> None:
    """It leads to two primaries. Those that listen leave, and one more return is enough after the pause."""
    switch, link = PrimarySwitch(), Link()
    for number, server in enumerate(["a", "b", "a", "b"]):
        switch.note(server, 100.0 + number, count=switch.count)
        assert not switch.is_torn(100.0 + number)
    switch.follow(link, "a", switch.count)
    switch.note("a", 104.0, count=switch.count)
    assert link.left == 1
    assert [switch.is_torn(104.0 + pause_s) for pause_s in (0.0, TORN_S - 0.1, TORN_S)] == [True, True, False]
    switch.note("b", 113.0, count=switch.count)
    assert switch.is_torn(113.0)


def test_failovers_to_and_fro_are_no_two_primaries() -> None:
    """Some seconds lie between them, or they lead to a third server."""
    for servers, every_s in (("abababab", (RETURN_WITHIN_ASKS + 1) * ASK_EVERY_S), ("abcabcabc", 1.0), ("aba", 1.0)):
        switch = PrimarySwitch()
        for number, server in enumerate(servers):
            switch.note(server, 100.0 + number * every_s, count=switch.count)
            assert not switch.is_torn(100.0 + number * every_s)


def test_a_replica_is_no_place_to_go_to() -> None:
    """A name with two addresses leads to one and the other; a connection to the replica leaves, and no other follows it."""
    switch, link = PrimarySwitch(), Link()
    switch.note("a", 100.0, count=switch.count)
    switch.follow(link, "a", 0)
    switch.note("b", 100.0, count=switch.count, is_replica=True)
    assert (link.left, switch.is_left("a", 0), switch.is_left("b", 0)) == (0, False, True)


def test_a_replica_that_is_all_there_is_stays() -> None:
    """A replica that was given as the primary refuses writes by itself; reads go on."""
    switch = PrimarySwitch()
    switch.note("b", 100.0, count=switch.count, is_replica=True)
    assert not switch.is_left("b", 0)


def test_a_server_without_a_token_is_never_taken_for_another() -> None:
    """Its library is older, or this user may not ask."""
    switch, link = PrimarySwitch(), Link()
    for server in (UNKNOWN, "a", UNKNOWN):
        switch.note(server, 100.0, count=switch.count)
        switch.follow(link, UNKNOWN, 0)
    assert (link.left, switch.count, switch.is_left(UNKNOWN, 0)) == (0, 0, False)


def test_an_empty_server_is_another_one_and_gets_its_library_without_a_switch() -> None:
    """The first process on a new Redis loads the library, which gives the server its token; no process has to leave for that."""
    fresh = PrimarySwitch()
    fresh.note(NO_LIBRARY, 100.0, count=fresh.count)
    fresh.note("a", 100.0, count=fresh.count)
    assert (fresh.count, fresh.is_left(NO_LIBRARY, 0)) == (0, False)
    fresh.note(NO_LIBRARY, 100.0, count=fresh.count)
    assert (fresh.count, fresh.is_left("a", 0), fresh.is_left(NO_LIBRARY, 1)) == (1, True, False)


def test_all_of_a_process_share_the_switch_of_an_address() -> None:
    """Over TLS the question costs Redis more, so it comes less often; Sentinels are asked, not Redis. A socket seldom moves."""
    assert switch_of(read_url("redis://one")) is switch_of(read_url("redis://one"))
    assert switch_of(read_url("redis://one")) is not switch_of(read_url("redis://other"))
    for url, every_s in (
        *(("redis://one", ASK_EVERY_S), ("rediss://one", ASK_EVERY_TLS_S), ("unix:///one", ASK_EVERY_SOCKET_S)),
        ("redis+sentinel://one/mymaster", ASK_EVERY_SENTINEL_S),
        ("rediss+sentinel://one/mymaster?sentinel_tls=no", ASK_EVERY_SENTINEL_S),
        ("rediss+sentinel://one/mymaster", ASK_EVERY_SENTINEL_TLS_S),
    ):
        switch = switch_of(read_url(url))
        switch.asked(100.0, 100.0, is_answered=True)
        assert [switch.is_due(99.9 + every_s), switch.is_due(100.0 + every_s)] == [False, True]


def test_a_forked_child_closes_no_link_of_its_parent() -> None:
    """Both hold the same socket, and a shutdown by one ends it for the other."""
    link, switch = Link(), switch_of(read_url("redis://forked"))
    switch.note("a", 100.0, count=switch.count)
    switch.follow(link, "a", 0)

    def keeps_it() -> bool:
        switch.note("b", 100.0, count=switch.count)
        return link.left == 0

    assert in_child(keeps_it)
    switch.note("b", 100.0, count=switch.count)
    assert link.left == 1
