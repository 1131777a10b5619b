"""A gateway's copy of the revocations: messages in, refusals out. On a clock of the test's own."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.identity import Identity
from headgate.auth.repair import APART_S, WRITTEN_BACK, read_revoked
from headgate.auth.revocation import KEPT_S, MAX_REVOCATIONS, MAX_REVOKED_S, Decision, Revocations, kind_of, revoke
from headgate.errors import BusRefused, InvalidRequest, LimitReached, Unauthorized
from headgate.redis.client import open_client
from headgate.redis.keys import REVOKED, revoked_channel
from tests.support.held_clock import HeldClock
from tests.support.small_redis import SmallRedis
from tests.support.steps import steps_during

ANA = Identity("ana", token_id="t-1")


def is_revoked(revocations: Revocations, identity: Identity) -> bool:
    try:
        revocations.check(identity)
    except Unauthorized:
        return True
    return False


@pytest.mark.parametrize("message", [b"60 user:ana", b"60 token:t-1"])
def test_a_message_refuses_a_user_or_a_token_until_it_ends(message: bytes) -> None:
    """By the gateway's own monotonic clock; others are let in."""
    clock = HeldClock(1000.0)
    revocations = Revocations(clock)
    assert revocations.apply(message) == message.partition(b" ")[2].decode()
    assert is_revoked(revocations, ANA)
    assert not is_revoked(revocations, Identity("ben", token_id="t-2"))
    clock.now_s += 60
    assert not is_revoked(revocations, ANA)


def test_zero_seconds_lift_a_revocation() -> None:
    """And it names no user to disconnect."""
    revocations = Revocations(HeldClock(1000.0))
    revocations.apply(b"60 user:ana")
    assert revocations.apply(b"0 user:ana") is None
    assert not is_revoked(revocations, ANA)


def test_the_whole_set_takes_the_place_of_what_was_known() -> None:
    """After a reconnect, revocations lifted in between are lifted, and new ones count."""
    revocations = Revocations(HeldClock(1000.0))
    revocations.apply(b"60 user:ben")
    revocations.replace([Decision("user:ana", 30, 0)])
    assert is_revoked(revocations, ANA)
    assert not is_revoked(revocations, Identity("ben"))
    assert revocations.members() == ["user:ana"]


@pytest.mark.parametrize(
    "message",
    [b"", b"60", b"60 ", b"60 ana", b"60 group:ana", b"60 user:", b"-1 user:ana", b"1e3 user:ana", b"9999999999 user:ana"],
)
def test_a_message_of_another_form_changes_nothing(message: bytes) -> None:
    """Anyone who reaches Redis can publish on the channel."""
    revocations = Revocations(HeldClock(1000.0))
    assert revocations.apply(message) is None
    assert len(revocations) == 0


@given(st.binary(max_size=60))
def test_no_message_is_a_fault(message: bytes) -> None:
    """Any bytes are taken or passed over."""
    Revocations(HeldClock(1000.0)).apply(message)


def test_more_than_can_be_active_is_acted_on_and_not_remembered() -> None:
    """Memory is bounded, and those that were known stay refused; those that have ended make room first."""
    clock = HeldClock(1000.0)
    revocations = Revocations(clock)
    for number in range(2 * MAX_REVOCATIONS):
        revocations.apply(b"60 user:%d" % number)
    assert revocations.apply(b"60 user:one-more") == "user:one-more"
    assert len(revocations) == 2 * MAX_REVOCATIONS
    assert is_revoked(revocations, Identity("0"))
    clock.now_s += 61
    revocations.apply(b"60 user:after")
    assert revocations.members() == ["user:after"]


def test_a_flood_beyond_the_bound_does_not_look_at_all_of_them_for_each_message() -> None:
    """One look a second is enough: 10,000 revocations take half a millisecond of the loop."""
    revocations = Revocations(HeldClock(1000.0))
    revocations.replace(Decision(f"user:{number}", 60, 0) for number in range(MAX_REVOCATIONS))
    revocations.apply(b"60 user:looks-at-all")
    assert steps_during(lambda: revocations.apply(b"60 user:another")) < 200


@pytest.mark.parametrize(
    ("member", "found"),
    [("user:ana", ("user", "ana")), ("token:a:b", ("token", "a:b")), ("user:", None), ("ana", None), ("", None)],
)
def test_a_member_names_a_kind(member: str, found: tuple[str, str] | None) -> None:
    """A name may hold a colon."""
    assert kind_of(member) == found


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"user": "ana", "token_id": "t"},
        {"user": ""},
        {"user": "a" * 256},
        {"user": "a\nb"},
        {"token_id": "x" * 256},
        {"user": "ana", "for_s": 1.5},
        {"user": "ana", "for_s": -1},
        {"user": "ana", "for_s": MAX_REVOKED_S + 1},
        {"user": "ana", "for_s": True},
    ],
)
def test_a_revocation_of_nobody_or_for_no_time_is_refused_before_redis_is_asked(asked: dict[str, object]) -> None:
    """The client leads to a port without a listener."""
    client = open_client("redis://127.0.0.1:1")
    with pytest.raises(InvalidRequest):
        revoke(client, **asked)  # type: ignore[arg-type]
    client.close()


# Redis ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


@pytest.fixture
def published(server: SmallRedis) -> list[Any]:
    """The message to the gateways."""
    told: list[Any] = []
    server.hearers[revoked_channel(0)] = [told.append]
    return told


def test_a_revocation_is_stored_with_its_end_and_every_gateway_is_told(server: SmallRedis, published: list[Any]) -> None:
    """By Redis' clock; a later call wins, and 0 lifts it."""
    revoke(server.client(), user="ana", for_s=60)
    revoke(server.client(), token_id="t-1", for_s=30)
    revoke(server.client(), user="ana", for_s=10)
    server.now_s += 5
    assert read_revoked(server.client()) == [("token:t-1", 25, 5), ("user:ana", 5, 5)]
    revoke(server.client(), user="ana", for_s=0)
    assert read_revoked(server.client()) == [("token:t-1", 25, 5)]
    assert published == ["60 user:ana", "30 token:t-1", "10 user:ana", "0 user:ana"]


def test_a_lift_stays_one_when_the_clock_of_redis_is_set_back(server: SmallRedis) -> None:
    """A revocation counts for longer then, also one for as long as the time of a decision takes to come round."""
    revoke(server.client(), user="ana", for_s=0)
    revoke(server.client(), user="ben", for_s=2**20)
    server.now_s -= 500
    assert [(member, left_s) for member, left_s, _ in read_revoked(server.client())] == [("user:ben", 2**20 + 500)]


def test_replies_that_come_flat_are_read_as_pairs(server: SmallRedis) -> None:
    """Older versions of redis-py do not pair members and scores."""
    revoke(server.client(), user="ana", for_s=60)
    ask = server.execute_command
    server.execute_command = lambda *command: (  # type: ignore[method-assign]
        [part for pair in ask(*command) for part in pair] if command[0] == "ZRANGE" else ask(*command)
    )
    assert read_revoked(server.client()) == [("user:ana", 60, 0)]


def test_one_revocation_more_than_may_be_active_is_refused_by_name(server: SmallRedis, published: list[Any]) -> None:
    """An active one may be prolonged or lifted, and those that have ended make room."""
    for number in range(MAX_REVOCATIONS):
        server.execute_command("ZADD", REVOKED, 1060, f"token:{number}")
    with pytest.raises(LimitReached) as caught:
        revoke(server.client(), user="one-more")
    assert caught.value.parts == {"name": "revocations", "limit": MAX_REVOCATIONS}
    assert published == []
    revoke(server.client(), token_id="7", for_s=90)
    assert int(server.execute_command("ZSCORE", REVOKED, "token:7")) == 1090
    server.now_s = 1070
    revoke(server.client(), user="one-more")
    assert {member for member, *_ in read_revoked(server.client())} == {"token:7", "user:one-more"}


def test_a_revocation_returns_how_many_gateways_have_received_it(server: SmallRedis) -> None:
    """With none, only Redis has it, and a failover may lose it."""
    assert revoke(server.client(), user="ana") == 0
    server.hearers[revoked_channel(0)] = [lambda message: None] * 2
    assert revoke(server.client(), user="ana") == 2


@pytest.mark.parametrize("command", ["ZCARD", "ZADD", "PUBLISH"])
def test_a_revocation_that_redis_refuses_is_an_error(server: SmallRedis, command: str) -> None:
    """`revoke` never pretends, whichever of its commands is refused."""
    server.refuses = command
    with pytest.raises(BusRefused, match="no permission"):
        revoke(server.client(), user="ana")


# Failover ------------------------------------------------------------------------------------------------------------------


class Site:
    """A Redis, its replica as of some moment, and gateways that hear of revocations while they are connected."""

    def __init__(self, gateways: int) -> None:
        self.redis = SmallRedis()
        self.copies = [Revocations(lambda: float(self.redis.now_s)) for _ in range(gateways)]
        self.connected: set[int] = set()
        self.published: list[bytes] = []
        self._replica: dict[str, float] = {}
        self.redis.hearers[revoked_channel(0)] = [self._hear]
        for gateway in range(gateways):
            self.connect(gateway)

    def connect(self, gateway: int) -> None:
        """Let a gateway read the set, as its watch does after each connect and after a write-back."""
        copy = self.copies[gateway]
        self.connected.add(gateway)
        copy.replace(read_revoked(self.redis.client(), copy.known()))

    def replicate(self) -> None:
        self._replica = {**self.redis._sets.get(REVOKED, {})}

    def fail_over(self) -> None:
        self.redis._sets[REVOKED] = {**self._replica}
        self.connected.clear()

    def stored(self) -> dict[str, int]:
        return {member: left_s for member, left_s, _ in read_revoked(self.redis.client())}

    def _hear(self, message: Any) -> None:
        text = message if isinstance(message, bytes) else message.encode()
        self.published.append(text)
        for gateway in sorted(self.connected):
            if text == WRITTEN_BACK:
                self.connect(gateway)
            else:
                self.copies[gateway].apply(text)
                self.copies[gateway].note_current()


GATEWAYS = 2
DECISIONS = st.lists(st.tuples(st.integers(APART_S + 1, 200), st.sampled_from([0, 60, 900, 4000])), max_size=2)


class Fault(NamedTuple):
    """Decisions that the replica has, a cut of some gateways, decisions that it lacks, a failover or none, and decisions that
    only Redis has. Each is a wait and a time to refuse for. Then the gateways connect in some order."""

    replicated: list[tuple[int, int]]
    cut: set[int]
    lost: list[tuple[int, int]]
    fails_over: bool
    unheard: list[tuple[int, int]]
    order: list[int]


FAULTS = st.builds(
    Fault, DECISIONS, st.sets(st.integers(0, GATEWAYS - 1)), DECISIONS, st.booleans(), DECISIONS, st.permutations(range(GATEWAYS))
)


@given(st.lists(FAULTS, max_size=3))
def test_after_any_failovers_the_newest_decision_about_a_user_counts(faults: list[Fault]) -> None:
    """A gateway that has heard a revocation writes it back. A decision that Redis still has is never replaced by an older one,
    a lift included. A lost lift leaves the user refused."""
    site = Site(GATEWAYS)
    end_s, is_heard, is_stored = 0, False, True

    def decide(decisions: list[tuple[int, int]]) -> None:
        nonlocal end_s, is_heard, is_stored
        for wait_s, for_s in decisions:
            site.redis.now_s += wait_s
            revoke(site.redis.client(), user="ana", for_s=for_s)
            end_s, is_heard, is_stored = site.redis.now_s + for_s, bool(site.connected), True

    for fault in faults:
        decide(fault.replicated)
        site.replicate()
        site.connected -= fault.cut
        decide(fault.lost)
        if fault.fails_over:
            is_stored = not fault.lost and is_stored
            site.fail_over()
        site.connected.clear()
        decide(fault.unheard)
        for gateway in fault.order:
            site.connect(gateway)
        left_s, now_s = site.stored().get("user:ana", 0), site.redis.now_s
        if is_stored:
            assert left_s == max(end_s - now_s, 0)
        elif is_heard:
            assert left_s >= end_s - now_s
        assert all(is_revoked(copy, ANA) is (left_s > 0) for copy in site.copies)


def test_gateways_that_find_the_same_loss_write_it_back_once_and_all_of_them_read_it() -> None:
    """Also one that has read the set before, and one that has never heard of the revocation."""
    site = Site(4)
    site.connected.discard(0)
    revoke(site.redis.client(), user="ana", for_s=900)
    site.fail_over()
    site.published.clear()
    for gateway in range(4):
        site.connect(gateway)
    assert site.published == [WRITTEN_BACK]
    assert all(is_revoked(copy, ANA) for copy in site.copies)


def test_a_gateway_that_has_heard_nothing_for_long_writes_nothing_back() -> None:
    """A lift that it has missed is no longer in the set."""
    site = Site(1)
    revoke(site.redis.client(), user="ana", for_s=3 * KEPT_S)
    site.connected.clear()
    site.redis.now_s += KEPT_S
    revoke(site.redis.client(), user="ana", for_s=0)
    site.redis.now_s += KEPT_S + 1
    revoke(site.redis.client(), user="ben", for_s=60)
    site.connect(0)
    assert set(site.stored()) == {"user:ben"}


def test_of_two_revocations_within_ten_seconds_a_failover_may_lose_the_second() -> None:
    """A gateway does not know their times more exactly."""
    site = Site(1)
    revoke(site.redis.client(), user="ana", for_s=60)
    site.replicate()
    site.redis.now_s += APART_S
    revoke(site.redis.client(), user="ana", for_s=900)
    site.fail_over()
    site.connect(0)
    assert site.stored() == {"user:ana": 60 - APART_S}


def test_a_redis_that_takes_no_write_back_does_not_keep_a_gateway_from_its_work() -> None:
    """The gateway refuses what it knows."""
    site = Site(1)
    revoke(site.redis.client(), user="ana", for_s=900)
    site.fail_over()
    site.redis.refuses = "ZADD"
    site.connect(0)
    assert is_revoked(site.copies[0], ANA)
    assert site.stored() == {}
