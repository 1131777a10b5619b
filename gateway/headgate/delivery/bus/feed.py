"""The live feed of one namespace without I/O: complete, in order, each event at most once on one line of history.

In: a connection that comes and goes (`connected`, `disconnected`), its replies (`receive`, `more`), answers of the log (`answer`,
`fence_head`, `fence_failed`), the clock (`tick`), and the patterns that clients need (`interest`). Out: actions (actions.py),
which listener.py carries out. Two of its greenlets drive the machine. One takes `next_action` until it returns None, then reads
replies. The other calls `tick` and `wake`, and carries out the list that they return.

Rules.
1. The position is (epoch, offset). The feed has handed on everything up to it in the log, for the patterns that are active here
   (interest.py). It never goes back within an epoch. `reached` is ahead of `offset` while events are being handed on. A client
   that subscribes gets every matching event above `reached`.
2. The feed hands on a logged event if and only if its offset is above the position. The offsets of a whole feed have no holes, so
   on a hole it reads the log first. The holes of a narrow feed are events that no client here needs, since one connection keeps
   the order and loses nothing in its middle. This holds on one line only. From a change of the line until a fence that began
   after it has passed, messages of several lines may be in transit, so a narrow feed also reads the log on a hole.
3. After each connect the feed subscribes, waits until Redis acknowledges, then reads the head. Everything above the head comes
   live, and everything up to it is read from the log. No event can fall between the two.
4. The fence (fence.py) reads the head, then sends PING. The PONG proves that everything up to that head has arrived. After two
   late fences the connection is replaced, as after any error. Sources that Redis acknowledged before the head was read become
   active when the fence has passed. An expedited fence saves them the wait for the next tick.
5. The position follows the line of the log (redis/lineage.py). On a head of another epoch, the feed reports the end of what the
   two lines share, goes back there if it is above, and hands on everything of the new line. A head of the same epoch below the
   position means that Redis has data of an earlier moment. Configuring the log then begins another epoch, and the feed acts on
   that answer. This works even if Redis was reverted with its memory, as each request for the head reports the newest known
   offset. A line with no epoch in common is another log. The feed reports the loss, and hands on the new log from its first
   event.
6. The log decides about any message other than the next event: one after a hole, a bad one, one of another epoch.
7. Every head must come from one Redis process, a primary, or the feed closes the connection, as the messages of one server prove
   nothing about the log of another. So the feed also asks for a head on the subscriber connection before it subscribes. The
   connections notice a changed target by themselves (redis/primary_switch.py). This rule holds until all have.
8. The first function library does not publish on the channels of users, and another program may load it at any time. A later one
   answers like the first if it publishes on channels that this gateway does not know (log.lua, "Users"). Either way the position
   moves past events of users that did not come here. So when such a library has answered a request for the head, the connection
   ends, and the next one begins with a gap from the last verified offset to the position.
9. When the slot of the namespace leaves the node, Redis ends the sharded subscriptions, and the feed closes the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from headgate.errors import BusUnavailable, HeadgateError, InvalidEvent
from headgate.events.event import Event
from headgate.events.wire.packets import GapReason
from headgate.redis.lineage import Entry, Head, Lineage, alone
from headgate.runtime.machine import between

from . import actions as out
from .fence import Fence
from .interest import Interest, Source, by_command
from .messages import MESSAGES, Messages

# After this many ticks in a row without a proof, the connection counts as dead.
LATE_FENCES = 2
# Limit of one delivery. The 600 events of users that may come in one read blocked the loop for 5 ms before the first was written.
MAX_EVENTS = 128
# A header further ahead than this of every head read so far is checked against the log first.
MAX_LEAP = 256
# The first function library that publishes on the channels of users.
BY_USER_LIBRARY = 2
# Epochs in each request for the head. A machine may be reverted to one snapshot many times.
MAX_REPORTED = 64

Answer: TypeAlias = Head | list[Entry] | None
# The conversation on one connection yields an action, or None while it waits for replies.
Steps: TypeAlias = Generator[out.Action | None, Answer, None]

_BOUNDARY = [b"boundary"]  # replaces an acknowledgement handled before the messages around it
_SUBSCRIBED = frozenset({b"subscribe", b"psubscribe", b"ssubscribe"})


class State(Enum):
    """The state of the feed."""

    DOWN = "down"
    SYNCING = "syncing"  # connected; the position is not at the head yet
    LIVE = "live"


MACHINE = between(
    "feed",
    {
        State.DOWN: (State.SYNCING, State.DOWN),  # an attempt to connect may fail
        State.SYNCING: (State.LIVE, State.DOWN),
        State.LIVE: (State.DOWN,),
    },
)


@dataclass(slots=True)
class Front:
    """The position of a live feed, for a receiver that recognizes by itself which message simply follows."""

    epoch: str
    reached: int
    head: int
    consecutive: bool  # only the next offset follows; otherwise any above `reached` that is not too far above it and `head`


class Feed:
    """See the module.

    Args:
        fence_interval_s: time from one tick to the next; may change with a new connection.
        sharded: whether Redis is a Cluster, with events on sharded channels.
        database: the number of the log's database.

    Attributes:
        epoch: the epoch of the position; None before the first connection.
        lineage: the line that leads to this epoch, and the known part of earlier lines that Redis has lost.
        offset: everything up to it has been handed on.
        reached: everything up to it has been or is being handed on.
        head: the newest known offset of the log.
        first: the oldest offset of the log, as of the last fence.
        tick_due_s: the time of the next `tick` by the caller's clock.
    """

    def __init__(
        self, namespace: str, max_payload_bytes: int, fence_interval_s: float, *, sharded: bool = False, database: int = 0
    ) -> None:
        self.fence_interval_s, self._database = fence_interval_s, database
        # The patterns that clients need, and their sources in Redis. After an `acquire` that returns True, call `wake`.
        self.interest = Interest(namespace, sharded=sharded, database=database)
        self._messages = Messages(namespace, max_payload_bytes, database)
        self._fence = Fence()
        self.server = ""  # the token of the Redis process that this connection leads to, if known
        self._one_line_from = 0  # number of the fence that proves that no message of an earlier line is in transit
        self._verified = 0  # the library in Redis has published on the channels of users up to this offset
        self._is_downgraded = False  # another library has answered, and the clients do not know the gap yet
        self._steps: Steps | None = None
        self._action: out.Action | None = None  # under way
        self._answer: Answer = None
        self._replies: deque[list[bytes]] = deque()  # received, not handled yet
        self._now_ms = 0  # when the last replies were received
        self._sending = False  # commands are being sent, and may wait for room
        self.state = State.DOWN
        self.epoch: str | None = None
        self.lineage = alone("")
        self.offset = self.reached = self.head = 0
        self.first = 1
        self._newest: dict[str, int] = {}  # epoch → newest known offset, for the last epochs
        self.tick_due_s = 0.0

    # -- a connection ---------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Begin with a connection without any requests."""
        self._move(State.SYNCING)
        self._replies.clear()
        self._messages.forget_copies()
        self._sending = False
        self._fence.reset()
        self._one_line_from = 0
        self.server = ""
        self._steps = self._converse()

    def disconnected(self) -> list[out.Action]:
        """End the connection, or an attempt to connect. The caller must give no more answers."""
        was_live = self.state is State.LIVE
        self._move(State.DOWN)
        self._steps = self._action = self._answer = None
        self.offset = self.reached  # a delivery under way was carried out, or `failed` has reported it
        self.interest.detach()
        return [out.SimpleAction.DOWN] if was_live else []

    def receive(self, replies: list[list[bytes]], now_ms: int) -> None:
        """Take replies of Redis. An event without a time gets `now_ms`."""
        self._now_ms = now_ms
        self._replies.extend(replies)

    def answer(self, answer: Head | list[Entry]) -> None:
        """Answer the CONFIGURE, ReadHead, READ_LINK_HEAD or ReadLog that `next_action` has returned."""
        self._answer = answer

    def next_action(self) -> out.Action | None:
        """Return the next action, or None to read replies. The call confirms that the previous action was carried out."""
        assert self._steps is not None  # there is a connection
        if self._action is None and self.state is State.LIVE and not self._replies:
            return None
        answer, self._answer = self._answer, None
        self._action = self._steps.send(answer)
        return self._action

    def front(self) -> Front | None:
        """Return the position that unreceived replies continue, or None if only the feed can decide which of them follow."""
        interest = self.interest
        if (
            self.state is not State.LIVE
            or self._action is not None
            or self._replies
            or interest.overlapping
            or self.epoch is None
        ):
            return None
        return Front(self.epoch, self.reached, self.head, interest.whole or bool(self._one_line_from))

    def handed_on(self, front: Front) -> None:
        """Note that everything up to `front` has been handed on directly."""
        self.offset = self.reached = front.reached

    def half_handed_on(self, front: Front) -> list[out.Action]:
        """Note that handing on up to `front` failed midway, so it is unknown which clients have which events."""
        first = self.offset + 1
        self.handed_on(front)
        return [out.Gap(first, self.offset, GapReason.UPSTREAM)] if first <= self.offset else []

    def more(self, replies: list[list[bytes]], now_ms: int) -> list[Event]:
        """Return the events among new replies that may join the live Deliver under way, if they simply follow."""
        self._now_ms = now_ms
        self._replies.extend(replies)
        return self._next_events()

    def failed(self) -> list[out.Action]:
        """Note that the Deliver under way failed midway, so it is unknown which clients have which of its events."""
        assert isinstance(self._action, out.Deliver)
        first = next((event.offset for event in self._action.events if event.offset is not None), self.offset + 1)
        self.offset = self.reached
        return [out.Gap(first, self.offset, GapReason.UPSTREAM)] if first <= self.offset else []

    # -- the conversation on a connection -------------------------------------------------------------------------

    def _converse(self) -> Steps:
        if self.epoch is not None:
            # CONFIGURE would replace an older library before this check sees it.
            self._library_fault((yield from self._ask(out.ReadHead(self._known()))))
        if self._is_downgraded and self._verified < self.offset:
            yield out.Gap(self._verified + 1, self.offset, GapReason.UPSTREAM)
            self._verified = self.offset
        self._is_downgraded = False
        yield from self._sync()
        while True:
            if events := self._next_events():
                yield out.Deliver(events, live=True)
                self.offset = self.reached
            elif self._replies:
                yield from self._take(self._replies.popleft())
            else:
                yield None

    def _sync(self) -> Steps:
        """Subscribe to everything, then bring the position to a head read after the last acknowledgement."""
        head = yield from self._ask(out.SimpleAction.CONFIGURE)
        if head.database != self._database:  # it publishes on the channels of another
            yield from self._close(BusUnavailable("the function library in Redis is too old for a database other than 0"))
        if (fault := self._library_fault(head)) is not None:
            yield from self._close(fault)
        yield from self._ask(out.SimpleAction.READ_LINK_HEAD)
        yield out.SendCommands(by_command(self.interest.attach()))
        early: list[list[bytes]] = []
        while self.interest.unacknowledged:
            if not self._replies:
                yield None
                continue
            reply = self._replies.popleft()
            if reply[0] == b"sunsubscribe":
                yield from self._close(_slot_left())
            if reply[0] not in MESSAGES:
                self.interest.acknowledge(reply[0], reply[1])
                reply = _BOUNDARY
            early.append(reply)
        self._replies.extendleft(reversed(early))
        sources = self.interest.acknowledged
        head = yield from self._read_head()
        yield from self._settle(head)
        self._complete(sources, head)
        self._move(State.LIVE)
        yield out.SimpleAction.UP

    def _ask(self, question: out.SimpleAction | out.ReadHead) -> Generator[out.Action | None, Answer, Head]:
        answer = yield question
        assert isinstance(answer, Head)
        if (fault := self._server_fault(answer)) is not None:
            yield from self._close(fault)
        return answer

    def _server_fault(self, head: Head) -> BusUnavailable | None:
        """Return the reason not to listen to the server of a head, if any. The first head of a connection names the server."""
        try:
            head.check_primary()
        except BusUnavailable as fault:
            return fault
        self.server = self.server or head.server
        if head.server not in ("", self.server):  # a user with few rights does not learn the token
            return BusUnavailable("the address leads to another Redis server than a moment ago")
        return None

    def _library_fault(self, head: Head) -> BusUnavailable | None:
        """Return the fault if another library has answered, and remember that for the next connection."""
        if head.library >= BY_USER_LIBRARY:
            return None
        self._is_downgraded = True
        return BusUnavailable("the function library in Redis is too old, and publishes nothing on the channels of users")

    def _close(self, error: HeadgateError) -> Steps:
        yield out.Close(error)
        raise AssertionError("the connection is closed")

    def _known(self) -> tuple[str | int, ...]:
        """Return the last epochs, beginning with the position's, each with its newest known offset."""
        if self.epoch is None:
            return ("",)
        newest = self._newest
        newest[self.epoch] = max(newest.pop(self.epoch, 0), self.reached, self.head)
        if len(newest) > MAX_REPORTED:
            del newest[next(iter(newest))]
        return tuple(word for each in reversed(newest.items()) for word in each)

    def _read_head(self) -> Generator[out.Action | None, Answer, Head]:
        head = yield from self._ask(out.ReadHead(self._known()))
        if (fault := self._library_fault(head)) is not None:
            yield from self._close(fault)
        return head

    def _settle(self, head: Head) -> Steps:
        """Bring the position to `head` from the log, after a report of another line or another log."""
        if not self._can_judge(head):
            head = yield from self._ask(out.SimpleAction.CONFIGURE)
        self.first, self.head = head.first, head.offset
        lineage = head.lineage or alone(head.epoch)
        if self.epoch is None:
            self.epoch, self.lineage = head.epoch, lineage
            self._go_to(head.offset)
        elif head.epoch != self.epoch:
            if (end := self.lineage.fork(lineage, head.offset)) is None:
                yield from self._lose_log(Head(head.epoch, head.first - 1, head.first, head.library, lineage))
            else:
                yield from self._change_line(head, lineage.following(self.lineage), end)
        elif head.offset < self.offset:  # an older library continues the epoch, or ignored the report
            yield from self._change_line(head, self.lineage, head.offset)
        yield from self._repair(head.offset)

    def _can_judge(self, head: Head) -> bool:
        """Return whether a head shows the line of its log. Otherwise only CONFIGURE does.

        If Redis has just been emptied or holds data of an earlier moment, the epoch of its next event has not begun. A head of
        another epoch without a lineage comes from an older library. Until a gateway has announced its database, the library
        publishes nothing.
        """
        if not head.epoch or head.database != self._database:
            return False
        if head.epoch == self.epoch:
            return head.offset >= self.offset
        return head.lineage is not None

    def _change_line(self, head: Head, lineage: Lineage, end: int) -> Steps:
        was_offset = self.offset
        self.epoch, self.lineage = head.epoch, lineage
        self._one_line_from = self._fence.number + 1
        self._go_to(min(was_offset, end))
        self._verified = min(self._verified, self.offset)
        yield out.LineChanged(head, end, was_offset)

    def _lose_log(self, head: Head) -> Steps:
        was_offset = self.offset
        self.epoch, self.lineage = head.epoch, head.lineage or alone(head.epoch)
        self._one_line_from = self._fence.number + 1
        self._verified = head.offset
        self._go_to(head.offset)
        yield out.LineChanged(head, None, was_offset)

    def _repair(self, upto: int) -> Steps:
        """Hand on everything above the position up to `upto` from the log."""
        while self.offset < upto:
            entries = yield out.ReadLog(self.offset, upto, self.epoch)
            assert isinstance(entries, list)
            if not entries:
                head = yield from self._read_head()
                if head.epoch == self.epoch and head.offset >= upto:
                    yield from self._skip(upto, GapReason.TRIMMED)
                else:  # the log has lost its end
                    yield from self._settle(head)
                return
            events: list[Event] = []  # consecutive events go together, so that a client gets one write
            for entry in entries:
                follows = entry.offset == self.offset + len(events) + 1
                if entry.event is None or not follows:
                    yield from self._deliver_repaired(events)
                    events = []
                if not follows:
                    yield from self._skip(entry.offset - 1, GapReason.TRIMMED)
                if entry.event is None:
                    yield out.Quarantine(entry.error or InvalidEvent("entry", "unreadable"))
                    yield from self._skip(entry.offset, GapReason.QUARANTINED)
                else:
                    events.append(entry.event)
            yield from self._deliver_repaired(events)

    def _deliver_repaired(self, events: list[Event]) -> Steps:
        if events:
            self.reached = self.offset + len(events)
            # No live event joins a repair, as the position would move past entries still to come from the log.
            yield out.Deliver(events, live=False)
            self.offset = self.reached

    def _skip(self, upto: int, reason: GapReason) -> Steps:
        self.reached = upto
        yield out.Gap(self.offset + 1, upto, reason)
        self.offset = upto

    def _go_to(self, offset: int) -> None:
        self.offset = self.reached = offset

    # -- replies --------------------------------------------------------------------------------------------------

    def _next_events(self) -> list[Event]:
        """Take up to MAX_EVENTS replies that simply follow the position, and advance `reached`. Hot path."""
        events: list[Event] = []
        replies = self._replies
        interest, messages, now_ms = self.interest, self._messages, self._now_ms
        decode = messages.decode
        while replies and len(events) < MAX_EVENTS:
            reply = replies[0]
            kind = reply[0]
            if kind != b"message" and kind != b"pmessage" and kind != b"smessage":
                break
            if interest.overlapping and messages.is_copy(reply):
                replies.popleft()
                continue
            event = decode(reply[-2], reply[-1], now_ms)
            if not isinstance(event, Event):
                break
            if (offset := event.offset) is not None:
                if event.epoch != self.epoch:
                    break
                if offset <= self.reached:  # it came through another source
                    replies.popleft()
                    continue
                if offset != self.reached + 1 and (
                    interest.whole or self._one_line_from or not self.reached < offset <= max(self.reached, self.head) + MAX_LEAP
                ):
                    break
                self.reached = offset
            events.append(event)
            replies.popleft()
        return events

    def _take(self, reply: list[bytes]) -> Steps:
        """Handle a reply other than the next event."""
        if reply[0] in MESSAGES:
            yield from self._reconcile(reply)
            return
        self._messages.forget_copies()
        if reply[0] == b"pong":
            yield from self._pong(reply[1])
        elif reply[0] in _SUBSCRIBED:
            self.interest.acknowledge(reply[0], reply[1])
            while self._replies and self._replies[0][0] in _SUBSCRIBED:  # a burst of joins shares one command
                reply = self._replies.popleft()
                self.interest.acknowledge(reply[0], reply[1])
            yield out.SimpleAction.WAKE
        elif reply[0] in (b"unsubscribe", b"punsubscribe"):
            self.interest.end(reply[0], reply[1])
        elif reply[0] == b"sunsubscribe" and not self.interest.end(reply[0], reply[1]):
            yield from self._close(_slot_left())

    def _reconcile(self, reply: list[bytes]) -> Steps:
        """Ask the log about a bad or old message, or one after a hole or of another log.

        A bad message in the log leaves a reported gap. A bad plain PUBLISH was never promised.
        """
        event = self._messages.decode(reply[-2], reply[-1], self._now_ms)
        if (where := self._messages.claimed_place(reply[-2], reply[-1])) is None:
            if isinstance(event, HeadgateError):
                yield out.Quarantine(event)
            return
        epoch, offset = where
        if not self._is_behind(epoch, offset):
            head = yield from self._read_head()
            if head.epoch != self.epoch or head.offset < self.offset:
                yield from self._settle(head)
            else:
                self.head = head.offset
        if self._is_behind(epoch, offset):
            # A good one was handed on before, by a repair or through an overlapping source.
            if isinstance(event, HeadgateError):
                yield out.Quarantine(event)
        elif epoch != self.epoch:
            yield out.Quarantine(InvalidEvent("header", "its epoch is not the log's, or has lost this offset"))
        elif offset > self.head:
            yield out.Quarantine(InvalidEvent("header", "its offset is above the log's head"))
        else:
            if self._one_line_from:
                offset = self.head  # in one read, as each event may follow a hole
            elif not self.interest.whole:
                self._go_to(offset - 1)  # all earlier active events have arrived
            yield from self._repair(offset)

    def _is_behind(self, epoch: str, offset: int) -> bool:
        """Return whether an event is on the feed's line, at or below the position."""
        end = self.lineage.end_of(epoch, self.offset)
        return end is not None and offset <= min(end, self.offset)

    # -- the fence ------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> list[out.Action]:
        """Begin a fence at `tick_due_s`, or count the one under way as late."""
        # By the clock, as a slow fence must not delay the verdict.
        self._schedule(self.tick_due_s + self.fence_interval_s, now_s)
        if self.state is not State.LIVE:
            return []
        fence = self._fence
        if self._sending:
            fence.tick()
            fence.missed += not fence.under_way
            return self._verdict()
        actions: list[out.Action] = []
        if sources := self.interest.to_unsubscribe(now_s):
            self._sending = True
            actions.append(out.SendCommands(by_command(sources, undo=True)))
        if fence.under_way:
            fence.tick()
        elif fence.is_due(is_idle=not self.interest.is_needed):
            actions.append(self._begin_fence(expedited=False))
        # A glob just left may have covered a source to subscribe to now.
        return [*actions, out.SimpleAction.WAKE, *self._verdict()]

    def wake(self) -> list[out.Action]:
        """Subscribe to new patterns, and expedite a fence for those that Redis has acknowledged."""
        if self.state is not State.LIVE or self._sending:
            return []
        if sources := self.interest.to_subscribe():
            self._sending = True
            return [out.SendCommands(by_command(sources))]
        if (self.interest.acknowledged or self._one_line_from) and not self._fence.under_way:
            return [self._begin_fence(expedited=True)]
        return []

    def sent(self) -> None:
        """Note that the commands of a SendCommands were sent, or have failed."""
        self._sending = False

    def fence_head(self, number: int, head: Head, now_s: float) -> list[out.Action]:
        """Take the head that a ReadFenceHead asked for."""
        self._schedule(self.tick_due_s, now_s)
        fence = self._fence
        if self.state is not State.LIVE or number != fence.number or not fence.under_way:
            return []  # of an earlier connection
        fault = self._library_fault(head) or self._server_fault(head)
        if fault is not None:
            fence.fail()
            return [out.Close(fault)]
        if self._sending:
            fence.fail()  # commands wait for room, and a PING would cut into them
            return self._verdict()
        if head.epoch == self.epoch:
            self.head = max(self.head, head.offset)
        fence.head = head
        return [out.Ping(fence.token)]

    def fence_failed(self, number: int, now_s: float) -> list[out.Action]:
        """Note that the head of a ReadFenceHead could not be read, or its PING could not be sent."""
        self._schedule(self.tick_due_s, now_s)
        fence = self._fence
        if self.state is not State.LIVE or number != fence.number or not fence.under_way:
            return []
        fence.fail()
        return self._verdict()

    def _begin_fence(self, *, expedited: bool) -> out.ReadFenceHead:
        self._fence.begin(self.reached, self.interest.acknowledged, expedited=expedited)
        return out.ReadFenceHead(self._fence.number, expedited, self._known())

    def _schedule(self, due_s: float, now_s: float) -> None:
        # If the clock is more than an interval late, the gateway itself was held up, and has yet to read the replies of that
        # time. This counts as one late fence rather than two.
        self.tick_due_s = due_s if due_s >= now_s else now_s + self.fence_interval_s

    def _verdict(self) -> list[out.Action]:
        if self._fence.missed < LATE_FENCES:
            return []
        self._fence.missed = 0
        return [out.Close(None)]

    def _pong(self, token: bytes) -> Steps:
        fence = self._fence
        head = fence.head
        if not fence.under_way or head is None or token != fence.token:
            return
        position, sources, was_expedited = fence.position, fence.sources, fence.is_fresh
        fence.pong()
        self.first = head.first
        if head.epoch != self.epoch or head.offset < position:
            # The log changed its line or was replaced, unless it has changed once more since.
            yield from self._settle((yield from self._read_head()))
        elif head.offset > self.offset:
            if self.interest.whole or self._one_line_from:
                yield from self._settle(head)  # Redis answers in order, so a missing event will not come
            else:
                self._go_to(head.offset)  # no event is missing, as every active one up to there has arrived
        if fence.number >= self._one_line_from:
            self._one_line_from = 0
        self._complete(sources, head)
        yield out.SimpleAction.SYNCED
        # A Redis that evicts the log may lose it with each fence, so a second change waits for the next tick.
        if self.interest.acknowledged or (self._one_line_from and not was_expedited):
            yield out.SimpleAction.WAKE

    def _complete(self, sources: frozenset[Source], head: Head) -> None:
        """Mark sources as synced. The position, at `head`, is above everything published before their acknowledgement."""
        if head.epoch == self.epoch:
            # Not the position, as another library may have published the events between the two.
            self._verified = min(head.offset, self.offset)
        self.interest.mark_synced(sources)

    def _move(self, state: State) -> None:
        self.state = MACHINE[self.state, state]


def _slot_left() -> BusUnavailable:
    return BusUnavailable("Redis has ended the subscriptions, as the slot of this namespace leaves the node")
