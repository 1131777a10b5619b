"""A browser that holds a naive view of what it is owed against what it receives: the oracle of the delivery histories.

In: packets in the order in which the browser reads them; markers among them say where a subscription begins and ends. Out: an
AssertionError as soon as an event comes twice, out of order, or behind something that is missing and has not been told.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.topic import matches

_decode = msgspec.json.Decoder().decode

# Topic of each offset, by epoch: the truth about the log.
Logs = dict[str, dict[int, str]]


class Browser:
    """One user's page, over all of its sessions.

    Attributes:
        position, epoch: where it goes on when it comes back.
        had: the offsets of this log that it has had.
        checked: up to here everything that it is owed has been received or told.
        patterns: pattern → the offset above which its events are owed, and its policy.
        latest: the patterns of this session that replace older events by newer ones; a full queue may do so before the browser
            knows of the subscription.
        ended: the patterns of this session that ended once; their policies no longer protect what waits of their topics.
        plain_left_out: topics of plain publishes that a full queue left out; one may have replaced a logged value before, and is
            then told without an offset.
        overflowed: the sum of the counts in overflow gaps.
    """

    def __init__(self, name: str, logs: Logs) -> None:
        self.name = name
        self._logs = logs
        self.epoch = ""
        self.position = self.checked = 0
        self.patterns: dict[str, tuple[int, str]] = {}
        self.had: set[int] = set()
        self.plain: set[str] = set()
        self.told: list[tuple[int, int]] = []
        self.replaced: dict[int, str] = {}  # owed, of a `latest` subscription: a newer one of the topic is owed
        self.latest: set[str] = set()
        self.ended: set[str] = set()
        self.plain_left_out: set[str] = set()
        self.overflowed = 0
        self.states: list[str] = []
        self.received: list[str] = []
        self.last = 0
        self._expects_loss = False
        self._expects_cursor = False
        self._welcomed = False
        self._again: set[int] = set()  # asked for a second time
        self._plain_topics: set[str] = set()  # whose newest event is a plain one

    # -- sessions -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect: nothing of the session before comes any more."""
        self._welcomed = self._expects_cursor = self._expects_loss = False
        self.overflowed = 0
        self.states = []
        self.latest, self.ended, self.plain_left_out = set(), set(), set()

    def receive(self, packet: bytes) -> None:
        """Read one packet."""
        name, *rest = _decode(packet[packet.index(b",") + 1 :])
        self.received.append(name if name != "event" else f"event {rest[2].get('offset')}")
        assert self._welcomed or name in ("welcome", "backpressure"), f"{name} ahead of the welcome"
        getattr(self, f"_{name}")(*rest)

    def _welcome(self, body: dict[str, Any]) -> None:
        self._welcomed = True
        fresh = body["resumed"] is None or body["lost"]
        if fresh or body["epoch"] != self.epoch:
            self._begin_log(body["epoch"], body["offset"])
            self.position = body["offset"]
        else:
            self.checked = self.position
        self.last = 0
        self.replaced.clear()
        self._expects_loss = body["lost"]
        self.patterns = {}
        for pattern, start, past, policy in body["patterns"]:
            self._owe(pattern, start, past, policy)

    def _begin_log(self, epoch: str, offset: int) -> None:
        self.epoch, self.checked, self.last = epoch, offset, 0
        self.had, self._again, self.told = set(), set(), []
        self.replaced.clear()
        self.patterns = {pattern: (offset, policy) for pattern, (_, policy) in self.patterns.items()}

    def _subscribed(self, body: dict[str, Any]) -> None:
        self._owe(*body["words"])

    def _owe(self, pattern: str, start: int, past: bool, policy: str) -> None:
        if pattern in self.patterns and not past:
            self.patterns[pattern] = (self.patterns[pattern][0], policy)
            return
        self.patterns[pattern] = (start, policy)
        self.checked = min(self.checked, start)
        if past:  # asked for again: it may come again, from there on
            self.last = min(self.last, start)
            topics = self._logs[self.epoch]
            self._again |= {offset for offset in self.had if offset > start and matches(pattern, topics[offset])}

    def _unsubscribed(self, body: dict[str, Any]) -> None:
        self.patterns.pop(body["words"][0], None)

    # -- events and notices ---------------------------------------------------------------------------------------

    def _event(self, topic: str, data: Any, meta: dict[str, Any]) -> None:
        offset = meta.get("offset")
        if offset is None:
            assert meta["id"] not in self.plain, "a plain publish twice"
            self.plain.add(meta["id"])
            self._plain_topics.add(topic)
            return
        self._plain_topics.discard(topic)
        assert not self._expects_loss, "an event ahead of the word that its log is another one"
        assert not self._expects_cursor, "an event between a lost log and the place in the next one"
        assert data[0] == self.epoch, f"event {offset} of {data[0]} in {self.epoch}"
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
        elif body["reason"] == "overflow":
            self.overflowed += body["count"]
        if body["from"] is not None:
            self.told.append((body["from"], body["to"]))

    def _cursor(self, body: dict[str, Any]) -> None:
        if self._expects_cursor:
            self._expects_cursor = False
            self._begin_log(body["epoch"], body["offset"])
            self.position = body["offset"]
            return
        assert body["epoch"] == self.epoch
        self._check_up_to(body["offset"])
        assert not self.replaced, f"a cursor at {body['offset']}, and the newest of {self.replaced} has not come"
        self.position = max(self.position, body["offset"])

    def _backpressure(self, body: dict[str, Any]) -> None:
        before = self.states[-1] if self.states else "off"
        assert body["state"] != "off" or before != "off", "told twice that the queue has drained"
        self.states.append(body["state"])

    def _check_up_to(self, upto: int) -> None:
        """Everything owed up to an offset has been received or told; a `latest` one may have a newer one behind it."""
        topics = self._logs[self.epoch]
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
