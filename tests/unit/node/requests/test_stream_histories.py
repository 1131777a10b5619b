"""Received or reported, in order, once: streams and long-polls through random histories. The oracle knows docs/stream.md only.

In virtual time, on a model of Redis. HEADGATE_SEED replays one history. The oracle is tried on planted faults, too.
"""

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from headgate.events.wire.stream_text import StreamText
from headgate.node.requests.streams import Streams
from headgate.transport.stream import Stream
from tests.support.gateway_here import GatewayOnModel, StartGatewayOnModel
from tests.unit.node.requests.test_streams import Reading

HISTORIES, STEPS = int(os.environ.get("HEADGATE_HISTORIES", "15")), 40
# A planted fault is found within so many histories, or the oracle is no good.
FAULT_HISTORIES = 40
QUERY = "pattern=orders.%23"
TOPICS = ("orders.1", "orders.2.3")
LAST_POLLS = 400


class Oracle:
    """One reader, as docs/stream.md describes it: `take` is given all events, in order, and returns the fault.

    Every event of the log matches the reader's pattern, so that each offset is owed.
    """

    def __init__(self, position: int) -> None:
        self.faults: list[str] = []
        self._position: int | None = position
        self._next: int | None = None  # where a log begins that the welcome has named, until a gap says so
        self._begins = position  # the owed events begin after it
        self._has: dict[int, Any] = {}
        self._told: set[int] = set()

    def take(self, name: str, body: dict[str, Any]) -> None:
        """Take an event (`message`) or a notice."""
        if name == "message":
            self._event(body["offset"], body["data"])
        elif name == "welcome":
            self._next = body["offset"] if body["resumed"] is False and body["from"] is None else None
        elif name == "gap":
            self._gap(body["reason"], body["from"], body["to"])
        elif name == "cursor":
            self._stand(body["offset"])

    def end(self, cursor: str) -> None:
        """A request is over. Its cursor is where the reader stands, and nothing of a welcome counts for the next one."""
        self._stand(int(cursor.partition(":")[2]))
        self._next = None

    def rest(self, log: dict[int, Any]) -> None:
        """Everything has come to rest, so compare with the log."""
        for offset, data in log.items():
            if offset > self._begins:
                self._expect(offset in self._has or offset in self._told, f"{offset} never came, and was never told")
            if offset in self._has:
                self._expect(self._has[offset] == data, f"{offset} is {self._has[offset]}, the log has {data}")
        beyond = [offset for offset in self._has if offset > max(log, default=0)]
        self._expect(not beyond, f"{beyond} are in no log, and nothing took them back")

    def _stand(self, offset: int) -> None:
        """Everything up to an offset has come, or has been reported; in a log new to the reader this is where it begins."""
        if self._position is None:
            self._position = self._begins = offset
            return
        missing = [each for each in range(self._position + 1, offset + 1) if each not in self._told]
        self._expect(not missing, f"at {offset}, {missing[:3]} had neither come nor been told")
        self._position = max(self._position, offset)

    def _event(self, offset: int, data: Any) -> None:
        self._expect(self._position is None or offset > self._position, f"{offset} came behind {self._position}")
        self._stand(offset - 1)
        self._has[offset], self._position = data, offset

    def _gap(self, reason: str, first: int | None, last: int | None) -> None:
        if reason == "log_lost":
            self._has, self._told = {}, set()
            self._position = self._next
            self._begins, self._next = self._next or 0, None
            return
        assert first is not None
        assert last is not None
        if reason == "rolled_back":
            self._position = min(self._position or 0, first - 1)
            self._begins = min(self._begins, self._position)
            self._has = {offset: data for offset, data in self._has.items() if offset < first}
            self._told = {offset for offset in self._told if offset < first}
            return
        self._told |= set(range(first, last + 1))
        if reason == "trimmed":
            self._position = max(self._position or 0, last)

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)


class World:
    """One reader's history: requests one after the other, and changes of the log between and within them."""

    def __init__(self, gateway: GatewayOnModel, seed: int) -> None:
        self._gateway, self._redis, self._draw = gateway, gateway.redis, random.Random(seed)
        self._number = 0
        gateway.publish(2, data=b"0")
        self._cursor: str = f"{self._redis.epoch}:{self._redis.offset}"
        self.oracle = Oracle(self._redis.offset)
        self.trail: list[str] = []

    def run(self) -> None:
        """Live through it, then read to the end of the log."""
        for _ in range(STEPS):
            self._draw.choices([self._poll, self._stream, self._fault], [3, 6, 3])[0]()
        self._gateway.wait(5)
        self._publish(3)
        for _ in range(LAST_POLLS):
            self._poll()
            if self._cursor == f"{self._redis.epoch}:{self._redis.offset}":
                break
        else:
            self.oracle.faults.append(f"it stays at {self._cursor}, and the log is at {self._redis.epoch}:{self._redis.offset}")
        self.oracle.rest({offset: json.loads(logged.data) for offset, logged in self._redis.log.items()})

    def _publish(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self._redis.publish(self._draw.choice(TOPICS), b"%d" % self._number)
        self._gateway.wait(0)

    def _fault(self) -> None:
        """Something happens to the log, or time passes."""
        draw, redis = self._draw, self._redis
        kind = draw.choices(["publish", "lose", "flush", "trim", "cut", "wait"], [6, 4, 1, 2, 2, 4])[0]
        self.trail.append(kind)
        if kind == "publish":
            self._publish(draw.randrange(1, 150))
        elif kind == "trim":
            redis.trim(draw.randrange(20))
        elif kind == "wait":
            self._gateway.wait(draw.choice([0.01, 0.3, 1.5, 12]))
        else:
            self._gateway.server.cut()
            if kind == "lose":
                redis.lose_tail(draw.randrange(6))
            elif kind == "flush":
                redis.flush()

    def _poll(self) -> None:
        wait = self._draw.choice("01")
        reading = Reading(self._gateway, self._cursor, query=f"{QUERY}&wait={wait}", HTTP_ACCEPT="application/json")
        while not reading.over:
            self._gateway.wait(0.1)
        answer = json.loads(reading.body)
        if "error" in answer:  # Redis is unreachable just now
            self.trail.append("refused")
            self._gateway.wait(0.5)
            return
        for place in range(len(answer["events"]) + 1):
            for notice in answer["notices"]:
                if notice["before"] == place:
                    self.oracle.take(notice["type"], notice["body"])
            if place < len(answer["events"]):
                self.oracle.take("message", answer["events"][place])
        self._over("poll", answer["cursor"])

    def _stream(self) -> None:
        """A stream with a reader that stops, perhaps reads on, and is cut."""
        reading = Reading(self._gateway, self._cursor, query=QUERY, room=self._draw.choice([1, 2, 3, 4, 1000]))
        for _ in range(self._draw.randrange(5)):
            self._fault()
            reading.read()
            if self._draw.random() < 0.4:
                reading.make_room()
        reader = reading.read()
        for name, body in reader.blocks:
            self.oracle.take(name, body)
        reading.cut()
        self._over("stream", reader.cursor or self._cursor)

    def _over(self, kind: str, cursor: str) -> None:
        self._cursor = cursor
        self.trail.append(f"{kind} {cursor[-12:]}")
        self.oracle.end(cursor)


def history(gateway: GatewayOnModel, seed: int) -> Oracle:
    """Live through one history; an error carries its seed and its steps."""
    world = World(gateway, seed)
    try:
        world.run()
    except Exception as error:
        error.add_note(f"HEADGATE_SEED={seed}: " + ", ".join(world.trail))
        raise
    if world.oracle.faults:
        print(f"HEADGATE_SEED={seed}: " + ", ".join(world.trail))
    return world.oracle


@pytest.mark.parametrize("seed", [int(os.environ["HEADGATE_SEED"])] if "HEADGATE_SEED" in os.environ else range(HISTORIES))
def test_whatever_happens_an_event_comes_once_and_in_order_or_is_told(gateway_on_model: StartGatewayOnModel, seed: int) -> None:
    """Readers that stop, polls, cut connections; logs that lose their end, are lost whole, or are trimmed."""
    gateway = gateway_on_model(read_per_s=100_000.0)
    assert history(gateway, seed).faults == []


# The oracle bites --------------------------------------------------------------------------------------------------------


def moves_one_too_far(patch: pytest.MonkeyPatch) -> None:
    """The cursor after a poll's last event passes over the next one."""
    answer = StreamText.answer

    def further(text: StreamText, *args: Any, **options: Any) -> bytes:
        body = json.loads(answer(text, *args, **options))
        epoch, _, offset = body["cursor"].partition(":")
        return json.dumps({**body, "cursor": f"{epoch}:{int(offset) + bool(body['events'])}"}).encode()

    patch.setattr(StreamText, "answer", further)


def forgets_what_was_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """The cursor stays where it was when the log has lost its end."""
    note = StreamText._note

    def forgetful(text: StreamText, name: str, body: dict[str, Any]) -> bool:
        return False if body.get("reason") == "rolled_back" else note(text, name, body)

    patch.setattr(StreamText, "_note", forgetful)


def loses_an_event_of_a_full_queue(patch: pytest.MonkeyPatch) -> None:
    """Of many frames at once the second is not written."""
    take = Stream.take
    patch.setattr(Stream, "take", lambda *args: (frames := take(*args)) and frames[:1] + frames[2:])


def repeats_the_last_event(patch: pytest.MonkeyPatch) -> None:
    """A stream writes its last event twice."""
    events = Streams._events

    def again(*args: Any) -> Any:
        for part in events(*args):
            yield part
            if b"data: {" in part and b"event:" not in part:
                yield part

    patch.setattr(Streams, "_events", again)


@pytest.mark.parametrize(
    "plant", [moves_one_too_far, forgets_what_was_rolled_back, loses_an_event_of_a_full_queue, repeats_the_last_event]
)
def test_the_oracle_finds_a_planted_fault(
    gateway_on_model: StartGatewayOnModel, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Within a few histories, each on a new gateway and log."""
    plant(monkeypatch)
    gateway = gateway_on_model(read_per_s=100_000.0)
    assert any(history(gateway, seed).faults for seed in range(FAULT_HISTORIES))
