"""The rules of the feed, one at a time: the inputs, and what it reports to its namespace.

Redis is the model of tests/support/model_redis.py, and answers at once. test_feed.py tries every order of things.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from headgate.delivery.bus import actions as out
from headgate.delivery.bus.feed import LATE_FENCES, MAX_EVENTS, Feed, State
from headgate.delivery.bus.fence import IDLE_TICKS
from headgate.delivery.bus.interest import LINGER_S
from headgate.events.event import HEADER_TAG
from headgate.redis.lineage import Head
from tests.support.model_redis import NAMESPACE, OLD_LIBRARY, TIME_MS, ModelRedis

INTERVAL_S = 1.0
EITHER = pytest.mark.parametrize("patterns", [("#",), ("orders.*", "bills.1")], ids=["whole", "narrow"])


class Gateway:
    """A feed that carries out its actions at once.

    Attributes:
        told: the reports to the namespace, in order.
        sent: the commands for Redis on the connection.
        fences: the heads that fences asked for.
        cut: replies are held back from the feed while it is set.
    """

    def __init__(self, *patterns: str, redis: ModelRedis | None = None, sharded: bool = False) -> None:
        self.redis = redis or ModelRedis()
        self.sharded = sharded
        self.feed = Feed(NAMESPACE, 65536, INTERVAL_S, sharded=sharded)
        self.told: list[tuple[Any, ...]] = []
        self.sent: list[tuple[bytes, ...]] = []
        self.reads = self.fences = 0
        self.follows = False  # the connection of the fences leads to the server that the address leads to now
        self.now_s = 100.0
        self.deaf = False
        self._commands: deque[tuple[bytes, ...]] = deque()
        for pattern in patterns:
            self.feed.interest.acquire(pattern)
        self.connect()
        self.told.clear()

    @property
    def offsets(self) -> list[int | None]:
        return [event[1] for kind, *rest in self.told if kind == "deliver" for event in rest[0]]

    def only(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.told if entry[0] in kinds]

    def connect(self) -> None:
        self.redis.connect()
        self.feed.connected()
        self.run()

    def disconnect(self) -> None:
        self.redis.disconnect()
        self.carry_out_all(self.feed.disconnected())

    def run(self) -> None:
        """Carry out everything that there is to do, until the feed waits for Redis."""
        while self.feed.state is not State.DOWN:
            action = self.feed.next_action()
            if action is not None:
                self.carry_out(action)
                continue
            while self._commands:
                self.redis.run(self._commands.popleft())
            if not self.redis.sent or self.deaf:
                return
            self.feed.receive(list(self.redis.sent), TIME_MS)
            self.redis.sent.clear()

    def tick(self, after_s: float = INTERVAL_S) -> None:
        """Let the time pass, tick, and do all that follows."""
        self.now_s += after_s
        self.carry_out_all(self.feed.tick(self.now_s))
        self.run()
        self.wake()

    def wake(self) -> None:
        """Subscribe to new sources, and expedite its fence."""
        while actions := self.feed.wake():
            self.carry_out_all(actions)
            self.run()

    def acquire(self, *patterns: str) -> None:
        """Acquire patterns until they are active."""
        for pattern in patterns:
            self.feed.interest.acquire(pattern)
        self.wake()
        assert all(map(self.feed.interest.active, patterns))

    def carry_out_all(self, actions: Iterable[out.Action]) -> None:
        for action in actions:
            self.carry_out(action)

    def carry_out(self, action: out.Action) -> None:
        match action:
            case out.Deliver():
                self.told.append(("deliver", [(event.topic, event.offset, event.data) for event in action.events]))
            case out.Gap():
                self.told.append(("gap", action.first, action.last, action.reason.value))
            case out.LineChanged(end=None):
                self.told.append(("lost", action.head.epoch, action.head.offset))
            case out.LineChanged():
                self.told.append(("line", action.head.epoch, action.end, action.was_offset))
            case out.Quarantine():
                self.told.append(("quarantine", action.error.code))
            case out.SimpleAction.UP:
                self.told.append(("up",))
            case out.SimpleAction.DOWN:
                self.told.append(("down",))
            case out.SimpleAction.SYNCED:
                self.told.append(("synced",))
            case out.SimpleAction.CONFIGURE:
                self.feed.answer(self.redis.configure(sharded=self.sharded))
            case out.ReadHead():
                self.feed.answer(self.redis.head(*action.known))
            case out.SimpleAction.READ_LINK_HEAD:
                self.feed.answer(self.redis.link_head())
            case out.ReadLog():
                self.reads += 1
                self.feed.answer(self.redis.page(action.after, action.upto, action.epoch))
            case out.ReadFenceHead():
                self.fences += 1
                old = None if self.follows else self.redis.left_behind
                head = old or self.redis.head(*action.known)
                self.carry_out_all(self.feed.fence_head(action.number, head, self.now_s))
            case out.Ping():
                self.send([(b"PING", action.token)])
            case out.SendCommands():
                self.send(action.commands)
                self.feed.sent()
            case out.Close():
                self.told.append(("close", action.error and action.error.code))
                self.disconnect()

    def send(self, commands: list[tuple[bytes, ...]]) -> None:
        self.sent += commands
        self._commands.extend(commands)


def publish(gateway: Gateway, count: int, topic: str = "orders.1") -> list[int]:
    """Publish so many events and let the feed take them; return their offsets."""
    offsets = [gateway.redis.publish(topic) for _ in range(count)]
    gateway.run()
    return offsets


def header(epoch: str, offset: int) -> bytes:
    """Return the header of a message that claims to be an event of a log."""
    return HEADER_TAG + b"%b %d %d forged\n" % (epoch.encode(), offset, TIME_MS)


# 1, 2: in order, once, without holes -------------------------------------------------------------------------------------


@EITHER
def test_more_events_than_one_batch_takes_follow_in_the_next(patterns: tuple[str, ...]) -> None:
    """However many have come at once, others have their turn in between, and none waits for another read."""
    gateway = Gateway(*patterns)
    offsets = publish(gateway, 2 * MAX_EVENTS + 1)
    gateway.tick()
    assert gateway.offsets == offsets
    assert [kind for kind, *_ in gateway.told] == ["deliver", "deliver", "deliver", "synced"]


def test_the_offset_moves_when_events_have_been_handed_on_and_reached_when_they_are_given() -> None:
    """Events that come in during a pass join it."""
    gateway = Gateway("#")
    gateway.redis.publish("orders.1")
    gateway.feed.receive(list(gateway.redis.sent), TIME_MS)
    gateway.redis.sent.clear()
    assert isinstance(gateway.feed.next_action(), out.Deliver)
    assert (gateway.feed.offset, gateway.feed.reached) == (0, 1)
    gateway.redis.publish("orders.1")
    assert [event.offset for event in gateway.feed.more(list(gateway.redis.sent), TIME_MS)] == [2]
    assert (gateway.feed.offset, gateway.feed.reached) == (0, 2)
    assert gateway.feed.next_action() is None
    assert (gateway.feed.offset, gateway.feed.reached) == (2, 2)


def test_an_event_without_a_message_is_read_from_the_log_when_the_next_one_shows_the_hole() -> None:
    """Offsets of a whole feed follow each other."""
    gateway = Gateway("#")
    gateway.redis.publish("orders.1", live=False)
    publish(gateway, 1)
    assert gateway.offsets == [1, 2]


def test_events_that_could_not_be_handed_on_are_told_as_missing() -> None:
    """It is unknown which clients have them. The plain one was promised to no client."""
    gateway = Gateway("orders.1")
    publish(gateway, 6, "bills.1")
    gateway.redis.send("orders.1", b"0")
    for _ in range(3):
        gateway.redis.publish("orders.1")
    gateway.feed.receive(list(gateway.redis.sent), TIME_MS)
    assert isinstance(gateway.feed.next_action(), out.Deliver)
    gateway.carry_out_all(gateway.feed.failed())
    assert gateway.told == [("gap", 7, 9, "upstream")]
    assert gateway.feed.offset == 9


# 3: a connection ---------------------------------------------------------------------------------------------------------


def test_a_log_that_ends_before_the_head_that_was_read_is_told_as_trimmed() -> None:
    """The stream was emptied by hand."""
    gateway = Gateway("#")
    gateway.disconnect()
    for _ in range(5):
        gateway.redis.publish("orders.1")
    gateway.redis.trim(0)
    gateway.connect()
    assert gateway.told == [("down",), ("gap", 1, 5, "trimmed"), ("up",)]


def test_a_repair_delivers_page_by_page_and_not_event_by_event() -> None:
    """One write per client and page: 1,500 events for 1,000 clients are otherwise 1.5 million writes."""
    gateway = Gateway("#")
    gateway.disconnect()
    for _ in range(1000):
        gateway.redis.publish("orders.1")
    gateway.connect()
    assert gateway.offsets == list(range(1, 1001))
    assert len(gateway.only("deliver")) == gateway.reads == 10


def test_only_a_refusal_during_a_subscribe_makes_it_take_the_whole_feed() -> None:
    """Redis may refuse other commands too."""
    gateway = Gateway("orders.1")
    assert not gateway.feed.interest.narrow_refused()
    gateway.feed.interest.acquire("bills.*")
    assert gateway.feed.wake()
    assert gateway.feed.interest.narrow_refused()
    assert not gateway.feed.interest.narrow_refused()
    gateway.disconnect()
    gateway.sent.clear()
    gateway.connect()
    assert gateway.sent == [(b"PSUBSCRIBE", b"hg:{n}/users.*", b"hg:{n}:*")]


# 4: the fence ------------------------------------------------------------------------------------------------------------


def test_the_fence_finds_an_event_that_nobody_heard_of_live() -> None:
    """The last of a burst, with nothing after it to show the hole."""
    gateway = Gateway("#")
    gateway.redis.publish("orders.1", live=False)
    gateway.tick()
    assert gateway.offsets == [1]


def test_a_new_pattern_is_active_after_an_expedited_fence() -> None:
    """No tick is needed, and every event after the acknowledgement comes."""
    gateway = Gateway("orders.1")
    publish(gateway, 3, "bills.1")
    gateway.feed.interest.acquire("bills.*")
    assert not gateway.feed.interest.active("bills.*")
    gateway.wake()
    assert gateway.feed.interest.active("bills.*")
    assert gateway.feed.reached == 3
    assert publish(gateway, 2, "bills.1") == gateway.offsets == [4, 5]


def test_an_idle_log_has_a_fence_at_every_fifth_tick_only() -> None:
    """No client needs anything, and nothing is published. Either one ends that."""
    gateway = Gateway()

    def fences(ticks: int) -> int:
        before = gateway.fences
        for _ in range(ticks):
            gateway.tick()
        return gateway.fences - before

    fences(IDLE_TICKS + 2)
    assert fences(10 * IDLE_TICKS) == 10
    publish(gateway, 1, "orders.1")
    fences(IDLE_TICKS)
    assert gateway.feed.head == 1
    gateway.acquire("orders.1")
    assert fences(10) == 10


def test_two_late_fences_replace_the_connection() -> None:
    """Redis holds every connection open and answers on none."""
    gateway = Gateway("#")
    gateway.deaf = True
    for _ in range(LATE_FENCES):
        gateway.tick()
        assert gateway.only("close") == []
    gateway.tick()
    assert gateway.told == [("close", None), ("down",)]


def test_a_pong_takes_a_late_fence_back() -> None:
    """Only fences in a row count."""
    gateway = Gateway("#")
    for _ in range(5):
        gateway.deaf = True
        gateway.tick()
        gateway.tick()
        gateway.deaf = False
        gateway.run()
    assert {kind for kind, *_ in gateway.told} == {"synced"}


def test_a_head_that_cannot_be_read_counts_as_a_late_fence() -> None:
    """Redis answers neither way."""
    gateway = Gateway("#")
    for expected in ([], [out.Close]):
        (begun,) = [action for action in gateway.feed.tick(gateway.now_s) if isinstance(action, out.ReadFenceHead)]
        assert [type(action) for action in gateway.feed.fence_failed(begun.number, gateway.now_s)] == expected


@pytest.mark.parametrize("answered", [True, False])
def test_a_stall_of_the_gateway_is_one_late_fence_and_not_two(answered: bool) -> None:
    """The next tick is a whole interval later, so that the replies of that time are read first."""
    gateway = Gateway("#")
    gateway.deaf = True
    gateway.tick()
    gateway.tick(after_s=5 * INTERVAL_S)
    assert gateway.feed.tick_due_s == gateway.now_s + INTERVAL_S
    gateway.deaf = not answered
    gateway.run()
    gateway.tick()
    assert (gateway.only("close") == []) is answered


def test_no_ping_breaks_into_commands_that_wait_for_room() -> None:
    """A dead connection takes no more bytes; that counts as late, and shows."""
    gateway = Gateway("#")
    gateway.feed.interest.acquire("orders.1")
    gateway.feed.interest.release("#", gateway.now_s)
    gateway.now_s += LINGER_S
    gateway.tick()  # the topic is subscribed to, and synced
    gateway.now_s += LINGER_S
    actions = gateway.feed.tick(gateway.now_s)
    assert isinstance(actions[0], out.SendCommands)
    assert isinstance(actions[1], out.ReadFenceHead)
    assert [verb for verb, *_ in actions[0].commands] == [b"PUNSUBSCRIBE"]
    assert gateway.feed.fence_head(actions[1].number, gateway.redis.head(), gateway.now_s) == []
    assert gateway.feed.wake() == []
    assert gateway.feed.tick(gateway.now_s) == [out.Close(None)]


# 5: another line, another log --------------------------------------------------------------------------------------------


@EITHER
def test_messages_of_a_moment_that_is_gone_and_back_hide_nothing(patterns: tuple[str, ...]) -> None:
    """Data go back and forward in one process, messages of the first moment on their way. A hole among them proves nothing."""
    gateway = Gateway(*patterns)
    redis = gateway.redis
    publish(gateway, 8)
    moments = [redis.ago(8 - offset) for offset in range(9)]
    gateway.deaf = True
    for _ in range(2):  # each has the feed look at the log
        redis.send("orders.1", header("f" * 16, 5) + b"0")
    for _ in range(2):
        redis.publish("orders.1")
    newest, replies = redis.ago(0), list(redis.sent)
    redis.sent.clear()
    gateway.told.clear()
    for data, arriving in ((moments[5], replies[:1]), (moments[7], replies[1:2]), (moments[7], replies[2:])):
        redis.put_back(data)
        gateway.feed.receive(arriving, TIME_MS)
        gateway.run()
    assert gateway.only("line") == [("line", f"{2:016x}", 5, 8), ("line", f"{1:016x}", 5, 5)]
    redis.put_back(newest)
    gateway.deaf = False
    gateway.tick()
    assert gateway.offsets == [6, 7, 8, 9, 10]
    publish(gateway, 1)
    gateway.tick()
    # From this fence on no client here needs the events of a hole.
    reads = gateway.reads
    redis.publish("bills.2")
    publish(gateway, 1)
    assert gateway.offsets[-2:] == ([12, 13] if patterns == ("#",) else [11, 13])
    assert gateway.reads == reads


def test_a_message_of_the_line_before_is_not_handed_on_again() -> None:
    """It was on its way while the feed read the new line. Events of both came from the log, and the rest was lost."""
    gateway = Gateway("#")
    redis = gateway.redis
    publish(gateway, 3)
    for _ in range(4):
        redis.publish("orders.1")
    on_their_way = list(redis.sent)
    redis.put_back(redis.ago(2))
    redis.sent.clear()
    redis.publish("orders.1")
    gateway.run()
    gateway.feed.receive(on_their_way, TIME_MS)
    gateway.run()
    assert gateway.offsets == [1, 2, 3, 4, 5, 6]
    assert gateway.only("line", "gap") == [("line", redis.epoch, 5, 3)]
    assert gateway.only("quarantine") == [("quarantine", "invalid_event")] * 2


def test_the_end_of_a_log_that_goes_while_it_is_read_is_not_told_as_trimmed() -> None:
    """The head said that there was more, and the next page of the log is empty."""
    gateway = Gateway("#")
    redis = gateway.redis
    gateway.disconnect()
    for _ in range(5):
        redis.publish("orders.1")
    redis.connect()
    gateway.feed.connected()
    while not isinstance(action := gateway.feed.next_action(), out.ReadLog):
        if action is not None:
            gateway.carry_out(action)
        else:
            redis.run(gateway._commands.popleft())
            gateway.feed.receive(list(redis.sent), TIME_MS)
            redis.sent.clear()
    redis.put_back(redis.ago(4))
    gateway.carry_out(action)  # two of the five
    gateway.run()
    assert gateway.only("gap") == []
    assert (gateway.feed.epoch, gateway.feed.offset) == (redis.epoch, 2)


class OfVersionTwo(ModelRedis):
    """A Redis whose older library is the second one, which publishes on the channels of users."""

    def head(self, *known: str | int) -> Head:
        """Answer `headgate_head`."""
        return replace(super().head(*known), library=max(self.library, 2))


def test_an_older_library_that_cannot_be_replaced_goes_back_in_the_same_epoch() -> None:
    """It reports no lineage and begins no epoch; the end is where its head stands."""
    gateway = Gateway("orders.1", redis=OfVersionTwo())
    publish(gateway, 10)
    gateway.redis.downgrade()
    gateway.redis.configure = lambda *, sharded=False: gateway.redis.head()  # type: ignore[method-assign]
    gateway.redis.put_back(gateway.redis.ago(4))
    gateway.tick()
    assert gateway.only("line", "lost") == [("line", gateway.redis.epoch, 6, 10)]
    assert publish(gateway, 1) == [7]
    assert gateway.offsets == [*range(1, 11), 7]


# 6: messages that the log decides about ----------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["", "a..b", "a.*", "#", "a b", "ä", "x" * 300, "1.2.3.4.5.6.7.8.9", 'a"]'])
def test_a_channel_that_is_no_topic_is_quarantined_and_goes_to_nobody(topic: str) -> None:
    """A topic becomes part of a packet, so nothing outside the grammar may get that far."""
    gateway = Gateway("#")
    gateway.redis.send(topic, b"1")
    publish(gateway, 1)
    assert gateway.told == [("quarantine", "invalid_topic"), ("deliver", [("orders.1", 1, b"1")])]


def test_copies_through_overlapping_sources_come_once_and_the_next_publish_alike_too() -> None:
    """Redis sends one copy through each source, back to back."""
    gateway = Gateway("orders.*", "*.paid", "#.1.#")
    for _ in range(3):
        gateway.redis.send("orders.1.paid", b"0")
    gateway.redis.send("orders.9", b"0")
    gateway.redis.publish("orders.1.paid")
    gateway.run()
    assert gateway.offsets == [None, None, None, None, 1]


def test_a_publish_behind_a_change_of_sources_is_not_taken_for_a_copy() -> None:
    """Redis' acknowledgement of the change stands between the two."""
    gateway = Gateway("orders.*")
    gateway.redis.send("orders.paid", b"0")
    gateway.run()
    gateway.acquire("*.paid")
    gateway.feed.interest.release("orders.*", gateway.now_s)
    gateway.tick(after_s=LINGER_S)
    gateway.redis.send("orders.paid", b"0")
    gateway.run()
    assert gateway.offsets == [None, None]


# 7: one server -----------------------------------------------------------------------------------------------------------


def test_a_connection_to_another_server_than_the_heads_is_closed_before_it_subscribes() -> None:
    """Two servers share one address, and nothing that one sends proves anything about the other."""
    gateway = Gateway("#")
    gateway.disconnect()
    gateway.sent.clear()
    gateway.redis.connect()
    gateway.redis.move(gateway.redis.ago(0))
    gateway.feed.connected()
    gateway.run()
    assert gateway.only("close", "up") == [("close", "bus_unavailable")]
    assert gateway.sent == []
    gateway.connect()
    assert gateway.only("up") == [("up",)]


@EITHER
def test_a_server_that_the_address_has_left_is_left_as_soon_as_a_connection_follows(patterns: tuple[str, ...]) -> None:
    """It lives on, takes its own heads for the log's, and every event goes to the other."""
    gateway = Gateway(*patterns)
    redis = gateway.redis
    publish(gateway, 3)
    redis.move(redis.ago(1))
    offsets = [redis.publish("orders.1") for _ in range(5)]
    gateway.tick()
    assert gateway.only("close") == []
    gateway.follows = True
    gateway.tick()
    assert gateway.only("close") == [("close", "bus_unavailable")]
    gateway.connect()
    assert gateway.only("line") == [("line", redis.epoch, 2, 3)]
    assert gateway.offsets == [1, 2, 3, *offsets]


@pytest.mark.parametrize("noticed_by", ["fence", "connection"])
def test_a_replica_is_not_listened_to(noticed_by: str) -> None:
    """A primary that was made a replica keeps its connections; its log lags, and may be replaced."""
    gateway = Gateway("#")
    read_head, configure = gateway.redis.head, gateway.redis.configure
    gateway.redis.head = lambda *known: replace(read_head(*known), replica=True)  # type: ignore[method-assign]
    gateway.redis.configure = lambda *, sharded=False: replace(configure(), replica=True)  # type: ignore[method-assign]
    if noticed_by == "fence":
        gateway.tick()
    else:
        gateway.disconnect()
        gateway.connect()
    assert gateway.only("close") == [("close", "bus_unavailable")]
    assert gateway.feed.state is State.DOWN


# 8: users, and an older library ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noticed_by", ["fence", "reconnect"])
def test_an_older_library_that_comes_back_is_noticed_and_its_possible_losses_are_told(noticed_by: str) -> None:
    """It publishes on no channel of a user, and later events move the position past those that were for users."""
    gateway = Gateway("users.7.#", "orders.1")
    publish(gateway, 1)
    gateway.tick()
    gateway.redis.library = OLD_LIBRARY
    publish(gateway, 1, "users.7.mail")
    publish(gateway, 1)
    assert gateway.offsets == [1, 3]
    if noticed_by == "fence":
        gateway.tick()
        assert gateway.only("close") == [("close", "bus_unavailable")]
    else:
        gateway.disconnect()
    gateway.connect()
    publish(gateway, 1, "users.7.mail")
    assert gateway.only("gap") == [("gap", 2, 3, "upstream")]
    assert gateway.offsets == [1, 3, 4]


@pytest.mark.parametrize("patterns", [("users.7.mail",), ("users.7.#", "users.7.mail"), ("users.*.mail",), ("*.7.*",), ("#",)])
@pytest.mark.parametrize("in_cluster", [False, True])
def test_an_event_of_a_user_comes_once_while_an_older_gateway_comes_and_goes(patterns: tuple[str, ...], in_cluster: bool) -> None:
    """On the channel of the user, and with an older gateway on that of the topic as well."""
    gateway = Gateway(*patterns, sharded=in_cluster)
    offsets: list[int] = []
    for is_older_there in (False, True, False):
        gateway.redis.is_older_there = is_older_there
        offsets += publish(gateway, 3, "users.7.mail")
    gateway.redis.send("users.7.mail", b"0")
    gateway.run()
    gateway.tick()
    assert gateway.offsets == [*offsets, None]
    assert gateway.reads == 0
    assert [kind for kind, *_ in gateway.told if kind != "deliver"] == ["synced"]


# 9: sharded channels in a Cluster -----------------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("back", [False, True])
def test_a_slot_that_leaves_ends_the_connection_and_nothing_is_lost(patterns: tuple[str, ...], back: bool) -> None:
    """Even if it comes back to the same process at once, the subscriptions are gone."""
    gateway = Gateway(*patterns, sharded=True)
    offsets = publish(gateway, 2)
    gateway.redis.move_slot()
    offsets.append(gateway.redis.publish("orders.1"))
    if back:
        gateway.redis.move_slot(back=True)
    offsets.append(gateway.redis.publish("orders.1"))
    gateway.run()
    assert gateway.only("close") == [("close", "bus_unavailable")]
    gateway.connect()
    offsets += publish(gateway, 1)
    assert gateway.offsets == offsets
    assert not gateway.only("gap", "lost")
    assert all(was <= end for _, _, end, was in gateway.only("line"))
