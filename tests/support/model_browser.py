"""A browser that holds a naive view of its owed events against the received ones: the oracle of the delivery histories.

In: packets in the order in which the browser reads them; markers among them show where a subscription begins and ends. Out: an
AssertionError as soon as an event comes twice, out of order, or after something that is missing and unreported.
"""

from typing import Any

import msgspec

from headgate.events.topic import matches

# Another namespace over the same connection.
NEIGHBOUR = b"42/neighbour,"
_decode = msgspec.json.Decoder().decode


class Lines:
    """The truth about the log: the events of each line, by the epoch that it leads to.

    Attributes:
        topics: topic of each offset.
        writers: the epoch in which each was written.
        cuts: where the log has lost the end of an epoch that is still its newest.
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, str]] = {}
        self.writers: dict[str, dict[int, str]] = {}
        self.cuts: dict[str, int] = {}

    def begin(self, epoch: str, before: str | None = None, end: int = 0) -> None:
        """Begin an epoch: of a new log, or after an offset on the line of another one."""
        for lines in (self.topics, self.writers):
            older = lines[before] if before is not None else {}
            lines[epoch] = {offset: value for offset, value in older.items() if offset <= end}

    def append(self, epoch: str, offset: int, topic: str) -> None:
        self.topics[epoch][offset], self.writers[epoch][offset] = topic, epoch

    def shared(self, one: str, other: str) -> int:
        if one == other:
            return self.cuts.get(one, 1 << 60)
        ours, theirs = self.writers[one], self.writers[other]
        offset = 0
        while offset + 1 in ours and ours[offset + 1] == theirs.get(offset + 1):
            offset += 1
        return offset


class Browser:
    """One user's page, over all of its sessions.

    Attributes:
        position, epoch: where it goes on when it comes back.
        had: the offsets of this log that it has had.
        checked: up to here all owed events have been received or reported.
        patterns: pattern → the offset above which its events are owed, and its policy.
        latest: the patterns of this session that replace older events by newer ones; a full queue may do so before the browser
            knows of the subscription.
        ended: the patterns of this session that ended once; their policies no longer protect what waits of their topics.
        plain_left_out: topics of plain publishes that a full queue left out; one may have replaced a logged value before, and
            is then reported without an offset.
        overflowed: the sum of the counts in overflow gaps.
        neighbours: the number of the newest event of another namespace.
    """

    def __init__(self, name: str, lines: Lines) -> None:
        self.name = name
        self._lines = lines
        self.epoch = ""
        self.position = self.checked = 0
        self.patterns: dict[str, tuple[int, str]] = {}
        self.had: set[int] = set()
        self.plain: set[int] = set()
        self.told: list[tuple[int, int]] = []
        self.replaced: dict[int, str] = {}  # owed, of a `latest` subscription: a newer one of the topic is owed
        self.latest: set[str] = set()
        self.ended: set[str] = set()
        self.plain_left_out: set[str] = set()
        self.overflowed = self.neighbours = 0
        self.states: list[str] = []
        self.received: list[str] = []
        self.last = 0
        self._expects_loss = False
        self._expects_cursor = False
        self._expects_rollback: tuple[str, int] | None = None
        self._welcomed = False
        self._again: set[int] = set()  # asked for a second time
        self._ahead: list[tuple[str, str, int, bool, str]] = []  # (epoch, …) of subscriptions on an unreported line
        self._plain_topics: set[str] = set()  # of which the newest event is a plain one

    # -- sessions -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect, after which nothing of the session before comes any more."""
        self._welcomed = self._expects_cursor = self._expects_loss = False
        self._expects_rollback = None
        self._ahead = []
        self.overflowed = 0
        self.states = []
        self.latest, self.ended, self.plain_left_out = set(), set(), set()

    def visit_another_gateway(self, epoch: str, head: int) -> None:
        """Be served by a gateway at the head of the log, with all its events, or a report of them."""
        self._begin_log(epoch, head)
        self.had = set(range(1, head + 1))
        self.position = head

    def receive(self, packet: bytes) -> None:
        if packet.startswith(NEIGHBOUR):
            _, _, [number], _ = _decode(packet[packet.index(b",") + 1 :])
            assert number > self.neighbours, "the events of another namespace come in order"
            self.neighbours = number
            return
        name, *rest = _decode(packet[packet.index(b",") + 1 :])
        self.received.append(name if name != "event" else f"event {rest[2].get('offset')}")
        assert self._welcomed or name in ("welcome", "backpressure"), f"{name} ahead of the welcome"
        getattr(self, f"_{name}")(*rest)

    def _welcome(self, body: dict[str, Any]) -> None:
        self._welcomed = True
        start = body["from"]
        self.patterns = {}
        if start is None:
            self._expects_loss = body["resumed"] is False
            self._begin_log(body["epoch"], body["offset"])
            self.position = body["offset"]
        else:
            self.checked = self.position
            if body["resumed"]:
                assert start["offset"] == self.position, "resumed, but not where it was"
                self._go_on_in(start["epoch"])
            else:  # until the gap has come, it resumes from where it was
                self._expects_rollback = (start["epoch"], start["offset"])
        self.last = 0
        self.replaced.clear()
        for pattern, start, past, policy in body["patterns"]:
            self._owe(pattern, start, past, policy)

    def _begin_log(self, epoch: str, offset: int) -> None:
        self.epoch, self.checked, self.last = epoch, offset, 0
        self.had, self._again, self.told = set(), set(), []
        self.replaced.clear()
        self.patterns = {pattern: (offset, policy) for pattern, (_, policy) in self.patterns.items()}

    def _go_on_in(self, epoch: str) -> None:
        """The log goes on in another epoch, and all that this browser has had is on its line."""
        if epoch != self.epoch:
            end = self._lines.shared(self.epoch, epoch)
            lost = [offset for offset in {*self.had, self.position} if offset > end]
            assert not lost, f"{lost} are not in {epoch}, and that was not told"
            self._forget_above(end)
            self.epoch = epoch
            self._owe_ahead()

    def _forget_above(self, end: int) -> None:
        self.had = {offset for offset in self.had if offset <= end}
        self._again = {offset for offset in self._again if offset <= end}
        self.told = [(first, min(last, end)) for first, last in self.told if first <= end]
        self.replaced = {offset: topic for offset, topic in self.replaced.items() if offset <= end}
        self.position, self.checked, self.last = min(self.position, end), min(self.checked, end), min(self.last, end)
        self.patterns = {pattern: (min(start, end), policy) for pattern, (start, policy) in self.patterns.items()}

    def _subscribed(self, body: dict[str, Any]) -> None:
        *words, epoch = body["words"]
        pattern, _, past, _ = words
        if epoch == self.epoch or (pattern in self.patterns and not past):
            self._owe(*words)
        else:  # the gateway is there already, and its word of that comes after this
            self._ahead.append((epoch, *words))

    def _owe_ahead(self) -> None:
        """Begin the subscriptions on this line, ahead of the word of it."""
        ahead, self._ahead = self._ahead, []
        for epoch, pattern, start, past, policy in ahead:
            self._owe(pattern, min(start, self._lines.shared(epoch, self.epoch)), past, policy)

    def _owe(self, pattern: str, start: int, past: bool, policy: str) -> None:
        if pattern in self.patterns and not past:
            self.patterns[pattern] = (self.patterns[pattern][0], policy)
            return
        # Its earlier requests are still to come.
        self.patterns[pattern] = (min(start, self.patterns.get(pattern, (start, policy))[0]), policy)
        self.checked = min(self.checked, start)
        if past:  # asked for again, so it may come again, from there on
            self.last = min(self.last, start)
            topics = self._lines.topics[self.epoch]
            self._again |= {offset for offset in self.had if offset > start and matches(pattern, topics[offset])}

    def _unsubscribed(self, body: dict[str, Any]) -> None:
        self.patterns.pop(body["words"][0], None)
        self._ahead = [ahead for ahead in self._ahead if ahead[1] != body["words"][0]]

    # -- events and notices ---------------------------------------------------------------------------------------

    def _event(self, topic: str, data: Any, meta: dict[str, Any]) -> None:
        offset = meta.get("offset")
        if offset is None:
            assert data[0] not in self.plain, "a plain publish twice"
            self.plain.add(data[0])
            self._plain_topics.add(topic)
            return
        self._plain_topics.discard(topic)
        assert not self._expects_loss, "an event ahead of the word that its log is another one"
        assert not self._expects_cursor, "an event between a lost log and the place in the next one"
        assert self._expects_rollback is None, "an event ahead of the word that the log has lost its end"
        assert data[0] == self._lines.writers[self.epoch].get(offset), f"event {offset} of {data[0]} in {self.epoch}"
        assert offset not in self.had or offset in self._again, f"event {offset} twice"
        self._again.discard(offset)
        assert offset > self.last, f"event {offset} behind {self.last}"
        self._check_up_to(offset - 1)
        self.had.add(offset)
        self.last = offset
        self.position = max(self.position, offset)

    def _gap(self, body: dict[str, Any]) -> None:
        if body["reason"] == "log_lost":
            if self._expects_loss:
                self._expects_loss = False
            else:
                self._expects_cursor = True
        elif body["reason"] == "rolled_back":
            self._roll_back(body)
            return
        elif body["reason"] == "overflow":
            self.overflowed += body["count"]
        # One of plain publishes has no place in the log.
        assert self._expects_rollback is None or body["from"] is None, "a gap ahead of the word that the log has lost its end"
        if body["from"] is not None:
            self.told.append((body["from"], body["to"]))
        if body["reason"] == "trimmed":  # an event below its end is a duplicate from now on
            self.last, self.position = max(self.last, body["to"]), max(self.position, body["to"])

    def _roll_back(self, body: dict[str, Any]) -> None:
        epoch, end, last = body["epoch"], body["from"] - 1, body["to"]
        assert body["count"] == last - end > 0
        announced, self._expects_rollback = self._expects_rollback, None
        assert announced in (None, (epoch, end)), "not what the welcome has announced"
        shared = self._lines.shared(self.epoch, epoch)
        # In one epoch, a gateway that has not met the loss yet reports the rest when it does.
        assert end == shared or (epoch == self.epoch and end > shared), f"rolled back to {end}, and not to {shared}"
        assert last >= max(self.had | {self.position}), "it has had more than that"
        topics = self._lines.topics[self.epoch]
        assert last <= max(topics, default=0), "nobody has had that"
        # Of a `latest` subscription, the newest value of a topic may have been replaced by a lost one, and this reports it.
        gone = {topics[offset] for offset in range(end + 1, last + 1)}
        self.replaced = {offset: topic for offset, topic in self.replaced.items() if topic not in gone}
        patterns = self.patterns
        self._forget_above(end)
        if announced:
            self.patterns = patterns  # of the new line already
        self.epoch = epoch
        self._owe_ahead()

    def _cursor(self, body: dict[str, Any]) -> None:
        if self._expects_cursor:
            self._expects_cursor = False
            self._begin_log(body["epoch"], body["offset"])
            self.position = body["offset"]
            self._ahead = [ahead for ahead in self._ahead if ahead[0] == self.epoch]
            self._owe_ahead()
            return
        assert not self._expects_loss
        assert self._expects_rollback is None, "a cursor ahead of the word that the log has lost its end"
        self._go_on_in(body["epoch"])
        self._check_up_to(body["offset"])  # it may come in its place among events, and the newest of a replaced value after it
        self.position = max(self.position, body["offset"])

    def _backpressure(self, body: dict[str, Any]) -> None:
        before = self.states[-1] if self.states else "off"
        assert body["state"] != "off" or before != "off", "told twice that the queue has drained"
        self.states.append(body["state"])

    def _check_up_to(self, upto: int) -> None:
        """Everything owed up to an offset has been received or reported; a `latest` one may have a newer one after it."""
        topics = self._lines.topics[self.epoch]
        for offset in range(self.checked + 1, upto + 1):
            if offset in self.had or any(first <= offset <= last for first, last in self.told):
                continue
            topic = topics[offset]
            policies = {
                "" if pattern in self.ended else policy
                for pattern, (start, policy) in self.patterns.items()
                if offset > start and matches(pattern, topic)
            }
            if not policies:
                continue
            may_be_replaced = "catch_up" not in policies and any(matches(pattern, topic) for pattern in self.latest)
            assert may_be_replaced, f"event {offset} is missing, and not told, ahead of {upto + 1}"
            self.replaced[offset] = topic
        self.checked = max(self.checked, upto)
        for offset, topic in tuple(self.replaced.items()):
            if topic in self._plain_topics or topic in self.plain_left_out:
                del self.replaced[offset]
                continue
            for newer in range(offset, upto + 2):
                at_hand = newer in self.had or any(first <= newer <= last for first, last in self.told)
                if topics.get(newer) == topic and at_hand:
                    del self.replaced[offset]
                    break
