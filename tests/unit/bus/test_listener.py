"""The listener: the feed's shell. It connects, waits, carries out and logs; here on a model of Redis and on the test's own clock.

tests/contract/test_bus_links.py holds the model's two ends to the real ones. test_feed_rules.py has the rules of the feed.
"""

from collections.abc import Callable, Collection
from random import Random
from types import SimpleNamespace
from typing import cast

import gevent
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headgate.delivery.bus import listener
from headgate.delivery.bus.actions import Ping, ReadFenceHead, SendCommands
from headgate.delivery.bus.feed import Front
from headgate.delivery.bus.interest import LINGER_S
from headgate.delivery.bus.listener import (
    ACTIVE_TIMEOUT_S,
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    FENCE_ROUND_TRIPS,
    FIRST_RECONNECT_S,
    LAST_RECONNECT_S,
    QUARANTINE_LOG_S,
)
from headgate.delivery.direct import Run
from headgate.errors import BusRefused, BusUnavailable
from headgate.events.event import Event
from headgate.redis.faults import NO_PERMISSION
from headgate.redis.lineage import Head
from headgate.redis.subscriber_link import SubscriberLink
from tests.support.bus_here import ModelBus, StartModelBus
from tests.support.model_links import ModelServer
from tests.support.model_redis import NAMESPACE, ModelRedis

EITHER = pytest.mark.parametrize("patterns", [("#",), ("orders.*", "bills.1")], ids=["whole", "narrow"])


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headgate_{name}", {"namespace": NAMESPACE, **labels}) or 0.0


def leave(server: ModelServer) -> None:
    """Nothing listens at the address."""
    server.away = True


def attempts_while(bus: ModelBus, seconds: float) -> list[float]:
    """Let time pass, a hundredth of a second at a time; return at an attempt to connect."""
    at_s: list[float] = []
    began_s = bus.clock.now_s
    for _ in range(round(seconds * 100)):
        before = bus.server.attempts
        bus.advance(0.01)
        at_s += [bus.clock.now_s - began_s] * (bus.server.attempts - before)
    return at_s


# Up, in order, once ------------------------------------------------------------------------------------------------------


def test_a_listener_that_is_up_says_where_the_log_stands(model_bus: StartModelBus) -> None:
    """To the namespace, to the callers that wait for the first connection, and in the metrics."""
    bus = model_bus("orders.1", before=lambda server: [server.redis.publish("orders.1") for _ in range(3)])
    assert (bus.bus.up, bus.bus.was_up.is_set(), bus.bus.last_error) == (True, True, None)
    assert (bus.bus.epoch, bus.bus.feed.offset, bus.bus.reached, bus.bus.head, bus.bus.first) == (bus.redis.epoch, 3, 3, 3, 1)
    assert counted("bus_up") == 1
    assert counted("bus_subscriptions") == 2  # the anchor and the topic


def test_the_retention_of_the_settings_is_stored_in_redis(model_bus: StartModelBus) -> None:
    """Every publisher's appends obey it."""
    bus = model_bus("#", log_max_events=7)
    bus.publish(10)
    bus.advance(1)
    assert bus.redis.max_events == 7
    assert bus.bus.first == 4


def test_a_redis_that_may_evict_what_it_was_given_is_one_warning(model_bus: StartModelBus) -> None:
    """Nothing else reports what is lost that way."""
    with capture_logs() as lines:
        model_bus("#", before=lambda server: setattr(server, "eviction_policy", "allkeys-lru"))
    assert [line["policy"] for line in lines if line["event"] == "Redis evicts keys"] == ["allkeys-lru"]


def test_fences_have_time_for_a_far_redis_until_one_shows_that_it_is_near(model_bus: StartModelBus) -> None:
    """The time of connecting is an estimate, because a process that starts measures too long a one."""
    bus = model_bus("#")
    bus.server.opens_in_s, intervals_s = 0.9, list[float]()
    bus.server.refusal = lambda command: intervals_s.append(bus.bus.feed.fence_interval_s)
    bus.server.cut()
    bus.advance(10)
    assert (intervals_s[0], intervals_s[-1], bus.bus.up) == (FENCE_ROUND_TRIPS * 0.9, 1.0, True)


def test_a_listener_that_is_held_waits_each_time_before_it_hands_on_what_has_arrived(model_bus: StartModelBus) -> None:
    bus = model_bus("#")
    first, second = bus.clock.signal(), bus.clock.signal()
    bus.bus.hold(first.wait)
    offsets = [*bus.publish(2), *bus.publish(2)]
    assert bus.offsets == []
    bus.bus.hold(second.wait)  # it stands still again meanwhile
    first.set()
    bus.run()
    assert bus.offsets == []
    second.set()
    bus.run()
    second.clear()
    assert bus.offsets == offsets
    assert bus.publish() == bus.offsets[4:]


class Taking:
    """A namespace that takes the topics it can directly: `orders.…`, at most `most` at once. `bills.…` are a crowd."""

    def __init__(self, bus: ModelBus, most: int = 1000) -> None:
        self._bus, self._most = bus, most
        self.offsets: list[int] = []  # of all events, in the order in which they were handed on
        self.calls: list[int] = []  # how many replies were offered each time
        bus.takes = self._take
        bus.during = self._routed
        self.fails = False

    def _take(self, replies: list[list[bytes]], front: Front) -> Run:
        topics = [reply[-2].partition(b":")[2].partition(b":")[2] for reply in replies]
        count = next((at for at, topic in enumerate(topics) if not topic.startswith(b"orders.")), len(replies))
        taken = min(count, self._most)
        self.calls.append(len(replies))
        self.offsets += range(front.reached + 1, front.reached + 1 + taken)
        front.reached += taken
        if self.fails:
            self.fails = False
            raise RuntimeError("as planned")
        crowd = taken == count < len(replies) and topics[count].startswith(b"bills.")
        return cast(Run, SimpleNamespace(taken=taken, crowd=crowd, full=taken < count))

    def _routed(self, more: Callable[[], list[Event]]) -> None:
        """Events have come by way of the feed; those that have come in since go with them."""
        self.offsets += [offset for _, offset, _ in self._bus.told[-1][1]]
        if self._bus.redis.offset % 3 == 0:
            self._bus.redis.publish("orders.1")
        self.offsets += [event.offset or 0 for event in more()]


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_what_is_taken_directly_and_what_is_not_come_in_order_each_once(model_bus: StartModelBus, most: int) -> None:
    """Whatever a read brings: events after one that has to be routed never overtake it, whether or not they join its pass."""
    bus = model_bus("#")
    taking = Taking(bus, most)
    before = counted("events_received_total")
    for seed in range(60):
        drawn = Random(seed)
        for _ in range(drawn.randint(1, 9)):
            bus.redis.publish(drawn.choice(["orders.1", "orders.1", "orders.1", "bills.1", "users.7"]))
        if drawn.random() < 0.5:
            bus.run()
    bus.run()
    assert taking.offsets == list(range(1, bus.redis.offset + 1))
    assert (bus.bus.feed.offset, bus.bus.reached) == (bus.redis.offset, bus.redis.offset)
    assert counted("events_received_total") - before == bus.redis.offset
    assert bool(bus.rested) == (most < 1000)
    assert bus.only("missing") == []


def test_what_cannot_be_taken_goes_to_the_feed_in_growing_portions(model_bus: StartModelBus) -> None:
    """One odd event among usual ones costs one detour; where all are odd, the attempts get rare. A crowd takes all along."""
    bus = model_bus("#")
    taking = Taking(bus)
    bus.during = lambda more: None
    for topic in ("users.7", "orders.1", "users.7"):
        bus.redis.publish(topic)
    bus.run()
    assert (taking.calls, len(bus.told[-1][1])) == ([3, 2, 1], 1)

    taking.calls.clear()
    bus.publish(40, "users.7")
    assert taking.calls == [40, 38, 34, 26, 10]

    taking.calls.clear()
    bus.publish(40, "bills.1")
    assert (taking.calls, len(bus.told[-1][1])) == ([40], 40)


def test_a_fault_while_events_are_taken_directly_is_told_as_a_gap(model_bus: StartModelBus) -> None:
    """It is unknown which clients have which events; a new connection goes on after them."""
    bus = model_bus("#")
    taking = Taking(bus)
    bus.publish(2)
    taking.fails = True
    with capture_logs() as logs:
        bus.publish(3)
    assert bus.only("missing") == [["missing", 3, 5, "upstream"]]
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["bus listener failed"]
    bus.advance(LAST_RECONNECT_S)
    bus.publish(1)
    assert (taking.offsets, bus.bus.feed.offset) == ([1, 2, 3, 4, 5, 6], 6)


def test_others_have_their_turn_while_there_is_always_something_to_read(model_bus: StartModelBus) -> None:
    """A read that need not wait does not let the loop run, so the listener does so itself before the next one."""
    bus = model_bus("#")
    others: list[int] = []

    def other() -> None:
        while len(bus.offsets) < 20:
            others.append(len(bus.offsets))
            gevent.sleep()

    bus.during = lambda more: bus.redis.publish("orders.1") if len(bus.offsets) < 20 else None
    bus.redis.publish("orders.1")
    turns = gevent.spawn(other)
    bus.run()
    turns.join()
    assert bus.offsets == list(range(1, 21))
    assert len(set(others)) >= 10, "at most two reads between two turns"


def test_events_that_arrive_while_a_closed_listener_still_routes_are_left(model_bus: StartModelBus) -> None:
    """The listener has no connection any more."""
    bus = model_bus("#")

    def during(more: object) -> None:
        bus.bus.close()
        bus.bus._link = None
        assert more() == []  # type: ignore[operator]

    bus.during = during
    bus.publish(1)
    assert bus.offsets == [1]


def test_a_router_that_fails_leaves_a_gap_and_a_new_connection(model_bus: StartModelBus) -> None:
    """It is unknown which clients have which events; the feed goes on after them."""
    bus = model_bus("#")

    def during(more: object) -> None:
        bus.during = lambda more: None
        raise RuntimeError("a fault of ours")

    bus.during = during
    with capture_logs() as lines:
        offsets = bus.publish(3)
        assert isinstance(bus.bus.last_error, BusUnavailable)
        assert bus.bus.last_error.message.endswith("internal error: RuntimeError")
        assert attempts_while(bus, 2 * LAST_RECONNECT_S) == [pytest.approx(LAST_RECONNECT_S, abs=0.02)]
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["bus listener failed"]
    assert bus.only("missing") == [["missing", offsets[0], offsets[-1], "upstream"]]
    assert bus.publish(1) == [4]
    assert bus.offsets == [1, 2, 3, 4]
    assert bus.bus.last_error is None


def test_a_fence_that_fails_costs_a_connection_and_the_next_fences_go_on(
    model_bus: StartModelBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without fences no loss would be noticed any more, and no new pattern would become active."""
    bus = model_bus("#")
    tick, attempts = bus.bus.feed.tick, bus.server.attempts

    def fail(now_s: float) -> None:
        monkeypatch.setattr(bus.bus.feed, "tick", tick)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(bus.bus.feed, "tick", fail)
    with capture_logs() as lines:
        bus.advance(20)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["fence failed"]
    assert (bus.bus.up, bus.server.attempts) == (True, attempts + 1)
    assert bus.bus.fence_age_s < 2
    assert bus.publish(1) == bus.offsets


# Bad messages ------------------------------------------------------------------------------------------------------------


def test_quarantined_messages_are_all_counted_and_logged_now_and_then(model_bus: StartModelBus) -> None:
    """Anyone may publish rubbish; the log is not to be filled with it."""
    bus = model_bus("#")
    before = counted("quarantined_total", code="not_serializable")
    with capture_logs() as lines:
        for _ in range(5):
            bus.redis.send("orders.1", b"{")
            bus.run()
        bus.advance(QUARANTINE_LOG_S + 1)
        bus.redis.send("orders.1", b"{")
        bus.run()
    assert counted("quarantined_total", code="not_serializable") - before == 6
    assert [line["event"] for line in lines] == ["message quarantined"] * 2


# Down and up -------------------------------------------------------------------------------------------------------------


def test_attempts_to_connect_come_further_and_further_apart(model_bus: StartModelBus) -> None:
    """Up to a bound; the same reason is logged once."""
    with capture_logs() as lines:
        bus = model_bus("#", before=leave)
        at_s = attempts_while(bus, 5.2)
    waits_s = [later - earlier for earlier, later in zip([0.0, *at_s], at_s, strict=False)]
    wanted_s = [0.1, 0.2, 0.4, 0.8, *[LAST_RECONNECT_S] * 3]
    assert waits_s == pytest.approx(wanted_s, abs=0.02)
    assert min(wanted_s) > FIRST_RECONNECT_S
    assert [(line["event"], line["log_level"]) for line in lines] == [("bus down", "warning")]
    assert (bus.told, bus.bus.up, bus.bus.was_up.is_set()) == ([], False, False)
    assert bus.bus.last_error is not None
    assert "connection refused" in bus.bus.last_error.message

    bus.server.away = False
    bus.advance(LAST_RECONNECT_S + 1)
    assert bus.only("bus") == [["bus", True]]
    assert bus.bus.last_error is None


def test_a_listener_that_was_up_connects_again_soon(model_bus: StartModelBus) -> None:
    """Attempts that failed before it came up do not count any more."""
    bus = model_bus("#", before=leave)
    bus.advance(5)
    bus.server.away = False
    bus.advance(LAST_RECONNECT_S + 1)
    bus.server.cut()
    assert attempts_while(bus, 1)[0] <= FIRST_RECONNECT_S + 0.01


@EITHER
def test_a_redis_that_stands_still_is_told_as_down_and_what_it_did_meanwhile_comes_once(
    model_bus: StartModelBus, patterns: tuple[str, ...]
) -> None:
    """Two late fences: every connection stays open, and none answers."""
    bus = model_bus(*patterns)
    offsets = bus.publish(5)
    with capture_logs() as lines:
        bus.server.stop()
        bus.advance(0.9)
        assert bus.bus.up
        bus.advance(2.5)
        assert not bus.bus.up
        assert isinstance(bus.bus.last_error, BusUnavailable)
        offsets += [bus.redis.publish("orders.1") for _ in range(200)]
        bus.advance(10)
        bus.server.go_on()
        bus.advance(5)
    assert bus.only("bus") == [["bus", True], ["bus", False], ["bus", True]]
    assert bus.offsets == offsets
    assert bus.only("missing", "log_lost") == []
    assert {line["event"] for line in lines} == {"fence late", "bus down", "bus up"}
    assert bus.bus.last_error is None


def test_a_redis_that_never_answers_a_new_connection_is_given_up(model_bus: StartModelBus) -> None:
    """It accepts connections, and nothing more, so the first command ends the attempt."""
    bus = model_bus("#", before=lambda server: server.stop())
    assert bus.server.attempts == 1
    bus.advance(COMMAND_TIMEOUT_S + LAST_RECONNECT_S)
    assert bus.server.attempts == 2
    assert isinstance(bus.bus.last_error, BusUnavailable)
    assert not bus.bus.up


def test_a_redis_that_acknowledges_no_subscription_is_given_up(model_bus: StartModelBus) -> None:
    """The subscriber connection has a timeout until the feed is live, and none afterwards, when the fence watches it."""
    held: list[str] = []

    def before(server: ModelServer) -> None:
        server.redis.run = lambda command: held.append("a command")  # type: ignore[method-assign]

    bus = model_bus("#", before=before)
    assert held == ["a command"]
    bus.advance(CONNECT_TIMEOUT_S - 0.1)
    assert bus.server.attempts == 1
    bus.advance(0.5)
    assert bus.server.attempts == 2


def test_an_emptied_redis_is_told_once_and_live_goes_on(model_bus: StartModelBus) -> None:
    """No publish comes in between. The fence notices, and begins the new epoch itself."""
    bus = model_bus("orders.*")
    bus.publish(10)
    before = counted("log_lost_total")
    bus.redis.flush()
    with capture_logs() as lines:
        bus.advance(4)
    assert bus.only("log_lost") == [["log_lost", bus.redis.epoch, 0]]
    bus.publish(1)
    assert bus.events[-1] == ["orders.1", 1, "1"]
    assert counted("log_lost_total") - before == 1
    assert [(line["event"], line["was_offset"], line["now_offset"]) for line in lines] == [("log lost", 10, 0)]


class EvictingRedis(ModelRedis):
    """It drops the log as soon as a gateway has begun one, as a full Redis may that evicts keys."""

    def configure(self, *, sharded: bool = False) -> Head:
        head = super().configure(sharded=sharded)
        self.flush()
        return head


def test_a_log_that_is_evicted_again_and_again_is_begun_at_the_pace_of_fences(model_bus: StartModelBus) -> None:
    """Each loss is reported. The first one of a fence expedites another fence, and that one none."""

    def before(server: ModelServer) -> None:
        server.redis = EvictingRedis()
        server.redis.on_sent = server.stir

    bus = model_bus("orders.*", before=before)
    bus.advance(4)
    assert len(bus.only("log_lost")) == 2 * 5  # the first fence comes at once


# Rights ------------------------------------------------------------------------------------------------------------------


def refuse_narrow(code: str) -> object:
    """Return a function that makes a server refuse every subscription but the one to the whole feed."""

    def refusal(command: tuple[bytes, ...]) -> BusRefused | None:
        if command[0] in (b"SUBSCRIBE", b"PSUBSCRIBE") and command[1:] != (b"hg:{n}/users.*", b"hg:{n}:*"):
            return BusRefused("no", redis_code=code)
        return None

    def before(server: ModelServer) -> None:
        server.refusal = refusal

    return before


@pytest.mark.parametrize(("code", "is_whole"), [(NO_PERMISSION, True), ("MISCONF", False)])
def test_a_redis_that_allows_only_the_whole_feed_gives_that(model_bus: StartModelBus, code: str, is_whole: bool) -> None:
    """Rights to globs are compared letter by letter. One that cannot write to its disk may give the narrow feed again."""
    with capture_logs() as lines:
        bus = model_bus("orders.*", before=refuse_narrow(code))
        bus.advance(1)
    assert bus.bus.up is is_whole
    assert ((b"PSUBSCRIBE", b"hg:{n}/users.*", b"hg:{n}:*") in bus.server.ran) is is_whole
    assert ("narrow feed refused" in [line["event"] for line in lines]) is is_whole
    bus.server.refusal = lambda command: None
    bus.advance(LAST_RECONNECT_S + 1)
    bus.publish(2)
    assert (bus.offsets, bus.bus.feed.interest.whole) == ([1, 2], is_whole)


# Patterns ----------------------------------------------------------------------------------------------------------------


def test_two_hundred_users_cost_no_glob_and_leave_nothing_behind(model_bus: StartModelBus) -> None:
    """A channel each, and none when they have gone."""
    bus = model_bus()
    for number in range(200):
        bus.bus.acquire(f"users.u{number}.#")
    bus.advance(1)
    assert counted("bus_subscriptions") == 201
    assert not any(command[0] == b"PSUBSCRIBE" for command in bus.server.ran)
    for number in range(200):
        bus.bus.release(f"users.u{number}.#")
    bus.advance(LINGER_S + 3)
    assert counted("bus_subscriptions") == 1


def test_a_pattern_that_redis_does_not_confirm_is_given_up(model_bus: StartModelBus) -> None:
    """Fences that pass in between, and other patterns, do not help it."""
    bus = model_bus("#")
    bus.bus.feed.interest.active_among = lambda patterns: set()  # type: ignore[method-assign]
    waiting = gevent.spawn(bus.bus.wait_for, "orders.*")
    bus.advance(ACTIVE_TIMEOUT_S - 1)
    assert not waiting.ready()
    bus.advance(2)
    assert isinstance(waiting.exception, BusUnavailable)
    assert "not confirmed" in waiting.exception.message


def test_a_fence_wakes_those_whose_pattern_is_active_and_nobody_else(model_bus: StartModelBus) -> None:
    """Any other would look, and wait again. With many joins at a time that was most of their waits."""
    bus = model_bus("orders.1")
    interest, looked = bus.bus.feed.interest, list[object]()
    active = interest.active_among

    def look(patterns: Collection[str]) -> Collection[str]:
        looked.append(gevent.getcurrent())
        return set(active(patterns)) - {"bills.1"}

    interest.active_among = look  # type: ignore[method-assign]
    bus.bus.acquire("bills.1")
    waiting = gevent.spawn(bus.bus.wait_for, "bills.1")
    gevent.sleep()
    looks = looked.count(waiting)
    for number in range(3):
        bus.bus.acquire(f"users.u{number}.#")
        other = gevent.spawn(bus.bus.wait_for, f"users.u{number}.#")
        bus.advance(0.1)
        assert other.successful()
    assert (looks, looked.count(waiting), waiting.ready()) == (1, 1, False)

    waiting.kill()

    assert not bus.bus._waiting


def test_a_subscription_waits_while_redis_stands_still_until_the_connection_is_given_up(model_bus: StartModelBus) -> None:
    """The next connection begins with it, and with the log from the position on. Nothing after its acknowledgement is missed."""
    bus = model_bus("orders.1")
    bus.server.stop()
    bus.bus.acquire("bills.*")
    waiting = gevent.spawn(bus.bus.wait_for, "bills.*")
    bus.advance(0.5)
    assert not waiting.ready()
    bus.advance(4)
    assert waiting.successful()
    bus.server.go_on()
    offsets = [bus.redis.publish("bills.1") for _ in range(20)]
    bus.advance(5)
    assert bus.offsets == offsets


def test_a_connection_that_takes_no_more_bytes_is_noticed_by_the_fence(model_bus: StartModelBus) -> None:
    """Commands wait for room in a separate greenlet; the fence goes on."""
    bus = model_bus("orders.1")
    bus.server.full = True
    bus.bus.acquire("bills.1")
    bus.advance(2.9)
    assert bus.only("bus")[-1] == ["bus", False]
    bus.server.full = False
    bus.advance(2)
    assert bus.only("bus")[-1] == ["bus", True]
    assert bus.publish(1, "bills.1") == bus.offsets


# Races -------------------------------------------------------------------------------------------------------------------


def test_commands_for_a_connection_that_has_gone_are_dropped(model_bus: StartModelBus) -> None:
    """The next one subscribes to everything again."""
    bus = model_bus("orders.1", before=leave)
    bus.bus._carry_out(SendCommands([(b"SUBSCRIBE", b"hg:{n}:orders.1")]))
    bus.bus._carry_out(Ping(b"token"))
    assert bus.server.ran == []


def test_a_send_that_outlives_its_connection_does_not_touch_the_next_one(model_bus: StartModelBus) -> None:
    """The feed counts the commands of the present connection only."""
    bus = model_bus("orders.1")
    old = bus.server.link()
    bus.bus.feed._sending = True
    bus.bus._send(cast(SubscriberLink, old), [(b"SUBSCRIBE", b"x")])
    assert bus.bus.feed._sending


def test_an_expedited_fence_makes_the_next_one_wait_a_moment(model_bus: StartModelBus) -> None:
    """Clients that come in between share the next one."""
    bus = model_bus("orders.1")
    fence = gevent.spawn(bus.bus._read_fence_head, ReadFenceHead(0, True, ("",)))
    bus.run()
    assert not fence.ready()
    bus.advance(listener.EXPEDITED_INTERVAL_S)
    assert fence.ready()


# The end -----------------------------------------------------------------------------------------------------------------


def test_a_closed_listener_ends_both_greenlets_and_connects_no_more(model_bus: StartModelBus) -> None:
    """In silence; start and close are idempotent."""
    bus = model_bus("#")
    greenlets = list(bus.bus._greenlets)
    bus.bus.start()
    assert bus.bus._greenlets == greenlets
    with capture_logs() as lines:
        bus.bus.close()
        bus.bus.close()
        bus.run()
        assert ended(bus), "not only at the next tick"
        bus.advance(2)
    assert (bus.server.attempts, lines) == (1, [])
    assert bus.only("bus") == [["bus", True], ["bus", False]]


def test_a_listener_that_was_never_up_can_be_closed(model_bus: StartModelBus) -> None:
    """It gives up between two attempts, and does not wait for the next."""
    bus = model_bus("#", before=leave)
    bus.advance(LAST_RECONNECT_S * 3)
    attempts = bus.server.attempts
    bus.bus.close()
    bus.run()
    assert ended(bus)
    bus.advance(2)
    assert bus.server.attempts == attempts


def test_a_listener_that_is_closed_behind_an_expedited_fence_ends_at_once(model_bus: StartModelBus) -> None:
    """Such a fence makes the next one wait a moment, which is no longer needed."""
    bus = model_bus("orders.1")
    bus.bus.acquire("orders.2")
    bus.run()
    bus.bus.close()
    bus.run()
    assert ended(bus)


def ended(bus: ModelBus) -> bool:
    return all(greenlet.ready() for greenlet in bus.bus._greenlets)  # type: ignore[attr-defined]
