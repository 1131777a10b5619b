"""A feed between a model Redis and an oracle, driven one input at a time, in an order that a seed decides.

Everything that may happen at the same time is a separate step: publishers, commands on their way to Redis, replies on their way
back, reads of the log and of fences, passes over the clients, the clock, clients that come and go, and faults.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headgate.delivery.bus import actions as out
from headgate.delivery.bus.feed import Feed, State
from headgate.delivery.direct import direct_writer
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.tally import Tallies
from headgate.errors import BusUnavailable
from headgate.events.event import Event
from headgate.events.topic import matches
from headgate.events.wire.packets import GapReason
from headgate.redis.lineage import Entry, Head
from tests.support.direct_events import Wire, WrittenTo, events_in
from tests.support.model_redis import NAMESPACE, OLD_LIBRARY, ModelRedis

TOPICS = ["orders.1", "orders.2", "orders.1.paid", "bills.1", "bills.1.paid", "users.7", "users.7.mail", "users.8.mail.new"]
PATTERNS = [
    *("orders.1", "orders.*", "orders.#", "*.1", "#.paid", "orders.1.paid", "bills.1", "bills.#.paid", "#"),
    *("users.7.#", "users.7.mail", "users.8.mail.*", "users.*.mail.#", "users.7"),
]
MATCHING = {pattern: [topic for topic in TOPICS if matches(pattern, topic)] for pattern in PATTERNS}
FENCE_INTERVAL_S = 1.0
# Steps in which a history without further faults must come to rest.
REST_STEPS = 20_000

# The greatest weight of each step. A history draws its own below it, so that rare mixtures have their share.
GATEWAY = {"feed": 40, "receive": 20, "write": 6, "wake": 4, "tick": 4, "fence_head": 3}
OTHERS = {"redis": 8, "publish": 24, "plain": 3, "burst": 1, "acquire": 5, "release": 5, "join": 1}
# In a quiet history few events come after one that is missing, and hide it from a fence.
QUIET = {"redis": 2, "publish": 3, "tick": 12, "fence_head": 6, "write": 12, "wake": 8, "acquire": 6, "release": 8, "join": 4}
FAULTS = (
    *("cut", "trim", "delete", "silent", "bad", "poison", "forge", "flush"),
    *("restart", "lose_tail", "put_back", "put_forward", "to_and_fro", "fail_over", "move", "forget", "roll_back"),
    *("downgrade", "older_gateway", "fence_fails", "read_fails", "pass_fails"),
    *("slot", "slot_back", "slot_there_and_back", "unshard", "revert"),
)
SLOT_FAULTS = ("slot", "slot_there_and_back", "slot_there_and_back", "unshard")
FAULT_SHARE = 0.15
# One history in so many is of a Cluster.
SHARDED_EVERY = 3


class Broken(AssertionError):
    """The oracle has found a promise that was not kept."""


class Published(NamedTuple):
    """An event that was appended. `topic` is None if no client is owed it, `data` is empty if it is unknown."""

    topic: str | None
    data: bytes
    sent: bool  # an older library does not publish on the channel of a user


# No event; or one of several that an older library wrote at one epoch and offset.
UNKNOWN = Published(None, b"", True)


class Oracle:
    """The promises of the feed, checked the plain way: for each epoch all that was published on the line that leads to it, and a
    set of all that came.

    Order; at most once; an event above the position that an active pattern matches is delivered, or reported in a gap, before
    the position passes it; the position goes back only to where two lines part, and exactly to there; a log is reported as lost
    only if it has no epoch in common; trimmed events are gone.
    """

    def __init__(self, redis: ModelRedis) -> None:
        self._redis = redis
        self.lines: dict[str, list[Published]] = {}  # epoch → its line, by offset
        self.doubt: set[int] = set()  # events that an older library did not send, and that the position has passed
        self.absent: set[int] = set()  # offsets that the log did not have when a page of it was read
        self.since: dict[str, int] = {}  # pattern → the position at which it was acknowledged
        self.owed: dict[str, int] = {}  # topic → the lowest of them
        self.had: set[int] = set()
        self.epoch: str | None = None
        self.position = self.newest = 0
        self.plain: set[bytes] = set()  # plain ones on a connection that still works
        self.plain_had: set[bytes] = set()

    def appended(self, topic: str, data: bytes, *, owed: bool, sent: bool) -> None:
        offset = self._redis.offset
        line = self._line(self._redis.epoch)
        if offset < len(line):  # only an older library goes on in an epoch without its end
            assert self._redis.library == OLD_LIBRARY
            line[offset:] = [UNKNOWN] * (len(line) - offset)
            return
        assert len(line) == offset
        line.append(Published(topic if owed else None, data, sent))

    def delivered(self, events: Iterable[Event]) -> None:
        for event in events:
            offset = event.offset
            if offset is None:
                if event.data in self.plain_had:
                    raise Broken(f"{event.data!r} came twice")
                self.plain_had.add(event.data)
                self.plain.discard(event.data)
                continue
            if offset <= self.newest or offset <= self.position:
                raise Broken(f"{offset} came behind {max(self.newest, self.position)}")
            self.newest = offset
            topic, data, _ = self._at(offset)
            if data and (data != event.data or topic not in (None, event.topic)):
                raise Broken(f"{offset} is not the event that was published")
            self.had.add(offset)

    def undelivered(self, events: Iterable[Event]) -> None:
        self.had.difference_update(event.offset for event in events if event.offset is not None)

    def told(self, gap: out.Gap) -> None:
        self.had.update(range(gap.first, gap.last + 1))
        self.doubt.difference_update(range(gap.first, gap.last + 1))
        if gap.reason is GapReason.TRIMMED:
            present = [offset for offset in range(gap.first, gap.last + 1) if offset not in self.absent]
            if present:
                raise Broken(f"{present} were told as trimmed, and are in the log")

    def lost(self, head: Head) -> None:
        if self._epochs_of(self.epoch) & self._epochs_of(head.epoch):
            raise Broken("the log was told as lost, and is not")
        self._go(head.epoch, head.offset)
        self.since = dict.fromkeys(self.since, head.offset)
        self._count_owed()

    def line_changed(self, change: out.LineChanged, end: int) -> None:
        """The clients were notified that the log goes on in another epoch, and up to where it is the same."""
        head = change.head
        if change.was_offset != self.position:
            raise Broken(f"the position was {self.position}, not {change.was_offset}")
        if head.epoch == self.epoch:
            raise Broken("the line was told as changed, and nobody has begun another epoch")
        was, now = self._line(self.epoch or ""), self._line(head.epoch)
        if end >= len(now):
            raise Broken(f"the new line does not reach {end}")
        for offset in range(1, min(end, self.position) + 1):
            if was[offset] is not now[offset] and UNKNOWN not in (was[offset], now[offset]):
                raise Broken(f"{offset} is another event now, and was told to be on the line")
        if end < self.position and end < head.offset and was[end + 1] is now[end + 1] is not UNKNOWN:
            raise Broken(f"{end + 1} is on the line, and was told as rolled back")
        self._go(head.epoch, min(end, self.position))
        self.since = {pattern: min(offset, self.position) for pattern, offset in self.since.items()}
        self._count_owed()

    def _go(self, epoch: str, offset: int) -> None:
        if epoch not in self._redis.parents:
            raise Broken(f"nobody has begun the epoch {epoch}")
        lost_log = not self._epochs_of(self.epoch) & self._epochs_of(epoch)
        self.epoch, self.position, self.newest = epoch, offset, offset
        self.doubt = set() if lost_log else {each for each in self.doubt if each <= offset}
        self.had.clear()
        self.absent.clear()

    def moved(self, epoch: str | None, offset: int) -> None:
        if self.epoch is None:
            self.epoch, self.position = epoch, offset
        if epoch != self.epoch or offset < self.position:
            raise Broken(f"the position went from {self.epoch} {self.position} to {epoch} {offset}")
        if offset == self.position:
            return
        for missing in range(self.position + 1, offset + 1):
            if missing in self.had:
                continue
            event = self._at(missing)
            topic = event.topic
            if topic is not None and self.owed.get(topic, missing) < missing and self._is_there(missing, event):
                if event.sent:
                    raise Broken(f"{missing} {topic} was neither delivered nor told before the position was {offset}")
                self.doubt.add(missing)
        self.position = offset
        self.newest = max(self.newest, offset)
        self.had.clear()

    def active(self, pattern: str, position: int) -> None:
        self.since[pattern] = position
        for topic in MATCHING[pattern]:
            self.owed[topic] = min(self.owed.get(topic, position), position)

    def ended(self, pattern: str) -> None:
        if self.since.pop(pattern, None) is not None:
            self._count_owed()

    def _count_owed(self) -> None:
        self.owed = {}
        for pattern, position in self.since.items():
            for topic in MATCHING[pattern]:
                self.owed[topic] = min(self.owed.get(topic, position), position)

    def _at(self, offset: int) -> Published:
        line = self._line(self.epoch or "")
        if offset < len(line):
            return line[offset]
        raise Broken(f"{offset} is above the head of the log")

    def _is_there(self, offset: int, event: Published) -> bool:
        """Return whether Redis has not lost an event with the end of its log (of which the feed will speak)."""
        redis = self._redis
        return bool(redis.epoch) and offset <= redis.offset and self._line(redis.epoch)[offset] is event

    def _line(self, epoch: str) -> list[Published]:
        if epoch not in self.lines:
            before, end = self._redis.parents[epoch]
            self.lines[epoch] = self._line(before)[: end + 1] if before else [UNKNOWN]
        return self.lines[epoch]

    def _epochs_of(self, epoch: str | None) -> set[str]:
        """Return an epoch and those before it on its line."""
        epochs = set()
        while epoch:
            epochs.add(epoch)
            epoch = self._redis.parents[epoch][0]
        return epochs


class World:
    """See the module.

    Attributes:
        inputs: how many inputs the feed has had, and actions it has given.
        taken: how many messages were written directly, past the feed.
        trail: the steps so far.
    """

    def __init__(self, seed: int, feed_class: type[Feed] = Feed) -> None:
        self._random = random.Random(seed).random
        self.whole = self._random() < 0.3
        self.sharded = seed % SHARDED_EVERY == 0
        self.redis = ModelRedis(max_events=10 + int(60 * self._random()), page_events=2 + int(6 * self._random()))
        self.feed = feed_class(NAMESPACE, 65536, FENCE_INTERVAL_S, sharded=self.sharded)
        self.oracle = Oracle(self.redis)
        self.inputs = self.taken = 0
        self._of_direct = random.Random(f"direct writes of {seed}").random
        self._wire = Wire()
        matcher: SubscriptionMatcher[Any] = SubscriptionMatcher()
        matcher.add("#", WrittenTo(self._wire))
        self._direct = direct_writer(NAMESPACE, matcher, 65536, Tallies(0))
        self.trail: list[str] = []
        self._acquired: list[str] = []
        self._now_s = 0.0
        self._plains = self._published = 0
        self._pipe = self.redis.sent  # replies on their way
        self._commands: deque[tuple[bytes, ...]] = deque()  # on their way to Redis
        self._writing: list[tuple[bytes, ...]] | None = None  # commands that wait for room
        self._connected = self._cut = False
        self._synced = 0  # fences that have passed on this connection
        self._reading = False  # the feed has nothing to do but to wait for replies
        self._pass: out.Deliver | None = None  # the pass over the clients under way
        self._question: Any = None
        self._reply: Head | list[Entry] | None = None
        self._fence: out.ReadFenceHead | None = None
        self._fence_head: Head | None = None
        self._pinged: deque[Head] = deque()  # the heads of fences with a PING under way, or with a PONG that the feed deals with
        for pattern in ["#"] if self.whole else ["orders.*", "users.7.#"][: self._below(3)]:
            self._acquire(pattern)
        bag = [
            name
            for name, most in (GATEWAY | (QUIET if self._random() < 0.25 else OTHERS)).items()
            for _ in range(1 + self._below(most))
        ]
        faults = [name for name in FAULTS if self._random() < 0.4]
        share = int(FAULT_SHARE * self._random() * len(bag))
        self._bag = bag + [faults[self._below(len(faults))] for _ in range(share if faults else 0)]
        if self.sharded and self._random() < 0.5:  # few faults, and of one kind, as any other has the gateway listen again
            self._bag = [*bag, SLOT_FAULTS[self._below(len(SLOT_FAULTS))]]

    # -- a history ------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Make so many steps, then let everything come to rest, and check that nothing is missing.

        Raises:
            Broken: a promise was not kept.
        """
        bag, size, rand, trail = self._bag, len(self._bag), self._random, self.trail
        actions: dict[str, Callable[[], None]] = {name: getattr(self, f"_do_{name}") for name in set(bag)}
        for _ in range(steps):
            name = bag[int(rand() * size)]
            trail.append(name)
            actions[name]()
        self._rest()

    def _rest(self) -> None:
        trail = self.trail
        trail.append("rest")
        self._synced = 0
        for step in range(REST_STEPS):
            for name in ("feed", "receive", "redis", "write", "wake", "fence_head"):
                getattr(self, f"_do_{name}")()
            at_home = self._synced >= 3 and self.redis.left_behind is None and not self._cut
            if at_home and not self._pipe and self._reading and all(map(self.feed.interest.active, self._acquired)):
                break
            if step % 50 == 49:
                self._do_tick()
        else:
            raise Broken(f"does not come to rest: {self.feed.state}, {self.feed.offset} of {self.redis.offset}")
        self._check()
        if (self.feed.epoch, self.feed.offset) != (self.redis.epoch, self.redis.offset):
            raise Broken(f"at rest at {self.feed.epoch} {self.feed.offset}, the log at {self.redis.epoch} {self.redis.offset}")
        if self.oracle.plain or self.oracle.doubt:
            raise Broken(f"missing at the end: {self.oracle.plain} {self.oracle.doubt}")

    def _below(self, count: int) -> int:
        return int(self._random() * count)

    def _check(self) -> None:
        self.oracle.moved(self.feed.epoch, self.feed.offset)
        if self.feed.reached < self.feed.offset:
            raise Broken("events were handed on that have not been reached")

    # -- the feed's greenlet --------------------------------------------------------------------------------------

    def _do_feed(self) -> None:
        if not self._connected:
            self._connect()
        elif self._question is not None:
            self._go_on_reading()
        elif not self._reading:
            self._pass = None
            self._next()

    def _connect(self) -> None:
        self.redis.connect()
        self._pipe = self.redis.sent
        self._commands.clear()
        self._writing = self._pass = None
        self._connected, self._cut, self._reading = True, False, False
        self.inputs += 1
        self.feed.connected()

    def _next(self) -> None:
        self.inputs += 1
        action = self.feed.next_action()
        if self.feed.epoch is not None:
            if isinstance(action, out.LineChanged):
                if action.end is None:
                    self.oracle.lost(action.head)
                else:
                    self.oracle.line_changed(action, action.end)
            self._check()
        if action is None:
            self._reading = True
        elif isinstance(action, out.ReadHead | out.ReadLog) or action in (
            out.SimpleAction.CONFIGURE,
            out.SimpleAction.READ_LINK_HEAD,
        ):
            self._question = action
        elif isinstance(action, out.Close):
            self._disconnect()
        else:
            self._carry_out(action)

    def _carry_out(self, action: out.Action) -> None:
        if isinstance(action, out.Deliver):
            self._pass = action
            self.oracle.delivered(action.events)
        elif isinstance(action, out.Gap):
            self.oracle.told(action)
        elif action is out.SimpleAction.SYNCED:
            head = self._pinged.popleft()
            self._synced += 1
            still_there = min(head.offset, self.redis.offset) if head.epoch == self.redis.epoch else 0
            if head.epoch == self.feed.epoch and still_there > self.feed.offset:
                raise Broken(f"synced at {self.feed.offset}, before the head of its fence, {head.offset}")
            self._look_at_active()
        elif action is out.SimpleAction.UP:
            if self.oracle.doubt:
                raise Broken(f"{self.oracle.doubt} were published where nobody listened, and not told")
            self._look_at_active()
        elif isinstance(action, out.SendCommands):
            if self.feed.state is not State.LIVE:
                self._send(action.commands)
            elif self._writing is not None:
                raise Broken("commands were to be sent while others were being sent")
            else:
                self._writing = action.commands
        elif isinstance(action, out.ReadFenceHead):
            self._fence = action
            self._fence_head = self._read_head(*action.known) if self._random() < 0.5 else None
        elif isinstance(action, out.Ping):
            if self._writing is not None:
                raise Broken("a PING would break into commands that are being sent")
            self._send([(b"PING", action.token)])
        elif isinstance(action, out.Close):
            self._lose_connection(0)

    def _send(self, commands: list[tuple[bytes, ...]]) -> None:
        if not self._cut:
            self._commands.extend(commands)

    def _carry_out_all(self, actions: Iterable[out.Action]) -> None:
        for action in actions:
            self.inputs += 1
            self._carry_out(action)

    def _go_on_reading(self) -> None:
        """Let Redis answer, or the feed get the answer, as two steps, between which anything may happen."""
        question = self._question
        if self._reply is not None:
            reply, self._question, self._reply = self._reply, None, None
            self.inputs += 1
            self.feed.answer(reply)
        elif isinstance(question, out.ReadLog):
            try:
                self._reply = page = self.redis.page(question.after, question.upto, question.epoch)
                upto = page[-1].offset if len(page) == self.redis.page_events else question.upto
                self.oracle.absent |= {*range(question.after + 1, upto + 1)} - {entry.offset for entry in page}
            except BusUnavailable:
                self._disconnect()
        else:
            redis = self.redis
            if isinstance(question, out.ReadHead):
                self._reply = self._read_head(*question.known)
            elif question is out.SimpleAction.CONFIGURE:
                self._reply = redis.configure(sharded=self.sharded)
            else:
                try:
                    self._reply = redis.link_head()
                except BusUnavailable:
                    self._disconnect()

    def _read_head(self, *known: str | int) -> Head:
        """Ask on a connection that may still lead to the server from which the address has gone."""
        redis = self.redis
        if redis.left_behind is not None and self._random() < 0.7:
            return redis.left_behind
        return redis.head(*known)

    def _do_receive(self) -> None:
        joining = self._pass is not None and self._pass.live
        if not self._reading and not joining:
            return
        count = min(1 + self._below(8), len(self._pipe))
        if not count:
            if self._cut and self._reading:
                self._disconnect()
            return
        replies = [self._pipe.popleft() for _ in range(count)]
        self.inputs += count
        if self._reading:
            self._take_directly(replies)
            if replies:
                self.feed.receive(replies, 1)
                self._reading = False
        elif self._pass is not None:
            events = self.feed.more(replies, 1)
            self._pass.events.extend(events)
            self.oracle.delivered(events)

    def _take_directly(self, replies: list[list[bytes]]) -> None:
        """Let a direct writer take the simple successors, as the listener does, or not."""
        front = self.feed.front()
        if front is None or self._direct is None or self._of_direct() < 0.5:
            return
        taken = self._direct.take(replies, front).taken
        data, self._wire.data = self._wire.data, b""
        events = list(events_in(data, NAMESPACE, front.epoch))
        assert len(events) == taken
        self.oracle.delivered(events)
        del replies[:taken]
        if taken and self._of_direct() < 0.01:  # a fault of ours, after some of the writes
            self.oracle.undelivered(events)
            self._carry_out_all(self.feed.half_handed_on(front))
        else:
            self.feed.handed_on(front)
        self.taken += taken
        self._check()

    def _disconnect(self) -> None:
        self._lose_connection(0)
        self._connected = self._reading = False
        self._question = self._reply = self._pass = None
        self._pinged.clear()
        self._synced = 0
        self.inputs += 1
        self._carry_out_all(self.feed.disconnected())
        self.oracle.plain.clear()
        if self.feed.epoch is not None:
            self._check()
        self._look_at_active()

    def _lose_connection(self, arrived: int) -> None:
        """Cut the connection; so many replies on their way still arrive."""
        if self._connected and not self._cut:
            self._pipe = deque(list(self._pipe)[:arrived])
            self.redis.disconnect()
            self._cut = True
            self._commands.clear()
            self.oracle.plain.clear()

    # -- the fence's greenlet, and Redis --------------------------------------------------------------------------

    def _do_redis(self) -> None:
        if self._commands:
            try:
                self.redis.run(self._commands.popleft())
            except BusUnavailable:
                self._lose_connection(len(self._pipe))

    def _do_write(self) -> None:
        if self._writing is not None and self._connected:
            self._send(self._writing)
            self._writing = None
            self.inputs += 1
            self.feed.sent()

    def _do_wake(self) -> None:
        if self._fence is None:
            self.inputs += 1
            self._carry_out_all(self.feed.wake())

    def _do_tick(self) -> None:
        if self._fence is None:
            self._now_s += self._random() * 2
            self.inputs += 1
            self._carry_out_all(self.feed.tick(self._now_s))

    def _do_fence_head(self) -> None:
        fence = self._fence
        if fence is None:
            return
        if self._fence_head is None:
            self._fence_head = self._read_head(*fence.known)
            return
        head, self._fence, self._fence_head = self._fence_head, None, None
        self.inputs += 1
        actions = self.feed.fence_head(fence.number, head, self._now_s)
        if any(isinstance(action, out.Ping) for action in actions):
            self._pinged.append(head)
        self._carry_out_all(actions)

    def _do_fence_fails(self) -> None:
        if self._fence is not None:
            fence, self._fence, self._fence_head = self._fence, None, None
            self.inputs += 1
            self._carry_out_all(self.feed.fence_failed(fence.number, self._now_s))

    # -- publishers -----------------------------------------------------------------------------------------------

    def _publish(self, topic: str, *, good: bool = True, live: bool = True) -> None:
        redis = self.redis
        self._published += 1
        data = b"%d" % self._published if good else b"1."
        redis.publish(topic, data, good=good, live=live)
        sent = redis.library > OLD_LIBRARY or not topic.startswith("users.")
        sent = sent or self.sharded  # the glob beside the sharded channels brings it
        self.oracle.appended(topic, data if good else b"never delivered", owed=live or self.whole, sent=sent)

    def _do_publish(self) -> None:
        self._publish(TOPICS[self._below(len(TOPICS))])

    def _do_burst(self) -> None:
        topic = TOPICS[self._below(len(TOPICS))]
        for _ in range(self._below(20)):
            self._publish(topic)

    def _do_plain(self) -> None:
        self._plains += 1
        data = b"%d" % -self._plains
        if self.redis.send(TOPICS[self._below(len(TOPICS))], data):
            self.oracle.plain.add(data)

    def _do_silent(self) -> None:
        self._publish(TOPICS[self._below(len(TOPICS))], live=False)

    def _do_bad(self) -> None:
        self._publish(TOPICS[self._below(len(TOPICS))], good=False)

    def _do_poison(self) -> None:
        self.redis.send(TOPICS[self._below(len(TOPICS))], [b"hg1 x", b"{", b"hg1 %b 1 1 a" % (b"0" * 16)][self._below(3)])

    def _do_forge(self) -> None:
        """Another epoch, an offset far ahead, an old one. (One a little ahead would be believed until the next fence.)"""
        redis = self.redis
        past = min(self.feed.offset, redis.offset) if self.feed.epoch == redis.epoch else 0
        forged = [("f" * 16, 5), (redis.epoch or "f" * 16, redis.offset + 10**9), (redis.epoch if past else "f" * 16, past or 1)]
        forged += [(epoch, 1 + self._below(self.feed.offset)) for epoch in self.feed.lineage.ends if self.feed.offset]
        epoch, offset = forged[self._below(len(forged))]
        redis.send(TOPICS[self._below(len(TOPICS))], b"hg1 %b %d 1 forged\n0" % (epoch.encode(), offset))

    # -- clients --------------------------------------------------------------------------------------------------

    def _acquire(self, pattern: str) -> None:
        self._acquired.append(pattern)
        self.inputs += 1
        self.feed.interest.acquire(pattern)
        self._look_at_active()

    def _look_at_active(self) -> None:
        """Acknowledge subscriptions to newly active patterns, as a namespace does."""
        if self.feed.epoch is None:
            return
        for pattern in self._acquired:
            if pattern not in self.oracle.since and self.feed.interest.active(pattern):
                self.oracle.active(pattern, self.feed.reached)

    def _do_acquire(self) -> None:
        if len(self._acquired) < 10:
            self._acquire(PATTERNS[self._below(len(PATTERNS))])

    def _do_join(self) -> None:
        """A client subscribes in the moment in which a fence begins, and an event for it is published before Redis knows."""
        if len(self._acquired) < 10:
            pattern = PATTERNS[self._below(len(PATTERNS))]
            self._acquire(pattern)
            self._do_wake()
            self._do_write()
            self._do_tick()
            if self._fence_head is None:
                self._do_fence_head()
            self._publish(MATCHING[pattern][self._below(len(MATCHING[pattern]))])
            for step in (self._do_redis, self._do_redis, self._do_receive, self._do_feed, self._do_feed):
                step()

    def _do_release(self) -> None:
        keep = 1 if self.whole else 0
        if len(self._acquired) > keep:
            pattern = self._acquired.pop(keep + self._below(len(self._acquired) - keep))
            self.inputs += 1
            self.feed.interest.release(pattern, self._now_s)
            if pattern not in self._acquired:
                self.oracle.ended(pattern)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _do_cut(self) -> None:
        self._lose_connection(self._below(len(self._pipe) + 1))

    def _do_read_fails(self) -> None:
        if self._question is not None:
            self._disconnect()

    def _do_pass_fails(self) -> None:
        if self._pass is not None:
            self.oracle.undelivered(self._pass.events)
            self._carry_out_all(self.feed.failed())
            self._disconnect()

    def _do_trim(self) -> None:
        self.redis.trim(self._below(10))

    def _do_delete(self) -> None:
        self.redis.delete(self.redis.offset - self._below(8))

    def _do_flush(self) -> None:
        if self.redis.epoch:
            self.redis.flush()

    def _do_restart(self) -> None:
        """Another process, with all that there was."""
        self._lose_connection(self._below(len(self._pipe) + 1))
        self.redis.restart()

    def _do_lose_tail(self) -> None:
        self._lose_connection(self._below(len(self._pipe) + 1))
        self.redis.restart(self.redis.ago(1 + self._below(6)))

    def _do_put_back(self) -> None:
        self.redis.put_back(self.redis.ago(1 + self._below(6)))

    def _do_revert(self) -> None:
        """The machine is put back to a snapshot with its memory."""
        self._lose_connection(self._below(len(self._pipe) + 1))
        self.redis.revert(self.redis.ago(1 + self._below(6)))

    def _do_put_forward(self) -> None:
        """Data of any moment come into the same process, later ones too, while messages of each are on their way.

        Not between the first head of a connection and its first fence, where the feed takes the one for the other.
        """
        if self._synced:
            self.redis.put_back(self.redis.copies[self._below(len(self.redis.copies))])

    def _do_to_and_fro(self) -> None:
        """The data of an earlier moment for a while, and then those of now again."""
        if not self._synced:
            return
        now = self.redis.copies[-1]
        self._do_put_back()
        for _ in range(self._below(3)):
            (self._do_publish, self._do_feed, self._do_receive, self._do_fence_head)[self._below(4)]()
        self.redis.put_back(now)

    def _do_fail_over(self) -> None:
        """A server takes over that may have stood apart for long, and may have been on another line."""
        self._lose_connection(self._below(len(self._pipe) + 1))
        self.redis.restart(self.redis.copies[self._below(len(self.redis.copies))])

    def _do_move(self) -> None:
        """The address leads to another server, which lagged a little; connections to the one before stay whole."""
        self.redis.move(self.redis.ago(self._below(6)))

    def _do_forget(self) -> None:
        self.redis.forget()

    def _do_roll_back(self) -> None:
        """Lose the end several times over, while publishers overtake the old offsets before the feed looks."""
        for _ in range(1 + self._below(3)):
            (self._do_lose_tail if self._random() < 0.5 else self._do_put_back)()
            for _ in range(self._below(10)):
                self._do_publish()

    def _do_downgrade(self) -> None:
        self.redis.downgrade()

    def _do_older_gateway(self) -> None:
        """An older gateway comes, or the last one goes."""
        self.redis.is_older_there = not self.redis.is_older_there

    def _do_slot(self) -> None:
        """The slot goes to a node without its history."""
        if self.sharded:
            self.redis.move_slot()

    def _do_slot_back(self) -> None:
        """The slot goes to its earlier node, which remembers its writes."""
        if self.sharded:
            self.redis.move_slot(back=True)

    def _do_slot_there_and_back(self) -> None:
        """The slot is elsewhere for a few events, between two fences."""
        if self.sharded:
            self.redis.move_slot()
            for _ in range(1 + self._below(3)):
                self._do_publish()
            self.redis.move_slot(back=True)

    def _do_unshard(self) -> None:
        """A gateway of another kind has events published on plain channels."""
        if self.sharded:
            self.redis.configure()
