"""Random histories of one log in a real Redis: what a process remembers of it never contradicts the data."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from headgate.errors import HeadgateError
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import ensure_loaded
from tests.support.wall_clock import WallClock

NAMESPACE = "orders"
KEY, HEAD = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE)
STEPS = 250
MIB = 2**20
ENTRY_BYTES = 128


class History:
    """A log, what was told of it, and what may befall it: events by both entries, another process, older data, lost keys."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.random = client, random.Random(seed)
        self.clock = WallClock(client)
        self.told: dict[tuple[str, int], bytes] = {}
        self.ids: dict[str, tuple[str, int]] = {}
        self.copies: list[list[tuple[bytes, bytes]]] = []
        self.max_events = self.number = 0
        self.configure()

    def step(self) -> None:
        """Let one thing happen, mostly an event, and look at the log after each."""
        happen, *_ = self.random.choices(
            [
                self.publish,
                self.again,
                self.forget,
                self.copy,
                self.put_back,
                self.lose,
                self.upkeep,
                self.configure,
                self.refuse,
            ],
            [60, 10, 3, 3, 3, 1, 8, 3, 4],
        )
        happen()

    def publish(self, event_id: str | None = None) -> None:
        self.number += 1
        self.clock.advance(self.random.choice((0, 1, 700)))
        payload = b'"%d%s"' % (self.number, b"x" * self.random.choice((0, 100, 90_000)))
        event_id = event_id or self.random.choice((None, f"id-{self.number}"))
        said = call(self.client, "FCALL", self.entry(), 1, KEY, "a", payload, *([event_id] if event_id else []))
        epoch, offset, duplicate = said.split() if isinstance(said, bytes) else said
        position = (epoch.decode(), int(offset))
        if int(duplicate):
            assert event_id is not None
            assert self.ids[event_id] == position
            return
        assert position not in self.told
        self.told[position] = payload
        if event_id:
            self.ids[event_id] = position
        self.look(position, payload)

    def again(self) -> None:
        """Publish under an id that may be known."""
        if self.ids:
            self.publish(self.random.choice(list(self.ids)))

    def look(self, position: tuple[str, int], payload: bytes) -> None:
        """The newest entry is that event, offsets are contiguous, the sums add up, and the retention holds."""
        entries = [(int(entry_id.partition(b"-")[0]), fields) for entry_id, fields in call(self.client, "XRANGE", KEY, "-", "+")]
        weights = [len(fields[b"topic"]) + len(fields[b"data"]) + ENTRY_BYTES for _, fields in entries]
        assert (entries[-1][0], entries[-1][1][b"data"]) == (position[1], payload)
        assert [offset for offset, _ in entries] == list(range(entries[0][0], position[1] + 1))
        sums = [int(fields[b"sum"]) for _, fields in entries]
        assert [after - before for before, after in pairwise(sums)] == weights[1:]
        assert len(entries) <= self.max_events
        assert sum(weights) <= MIB
        epoch, offset = call(self.client, "HMGET", HEAD, "epoch", "offset")
        assert (epoch.decode(), int(offset)) == position

    def forget(self) -> None:
        """Another process of Redis goes on."""
        self.clock.restart()

    def copy(self) -> None:
        """Keep the data of this moment."""
        found = call(self.client, "KEYS", "hg:*")
        self.copies.append([(key, call(self.client, "DUMP", key)) for key in sorted(found)])

    def put_back(self) -> None:
        """Bring data of an earlier moment back."""
        if self.copies:
            for key in call(self.client, "KEYS", "hg:*"):
                call(self.client, "DEL", key)
            for key, dump in self.random.choice(self.copies):
                call(self.client, "RESTORE", key, 0, dump, "REPLACE")
            # An id counts if its receipt came back as well; which did is Redis' to know.
            self.ids = {}
            self.configure()

    def lose(self) -> None:
        """Lose the log or its head."""
        call(self.client, "DEL", self.random.choice((KEY, HEAD)))
        self.ids = {}
        self.configure()

    def upkeep(self) -> None:
        """A gateway calls."""
        call(self.client, "FCALL", self.random.choice(("headgate_tick", "headgate_trim")), 1, KEY)

    def configure(self) -> None:
        """A gateway stores another retention. It is reached within one event, as the log is short."""
        self.max_events = self.random.choice((5, 20, 40))
        call(self.client, "FCALL", "headgate_configure", 1, KEY, self.max_events, 600_000, 100_000, MIB)

    def refuse(self) -> None:
        """An event is refused."""
        before = [(key, call(self.client, "DUMP", key)) for key in sorted(call(self.client, "KEYS", "hg:*"))]
        with pytest.raises(HeadgateError):
            call(
                self.client,
                "FCALL",
                self.entry(),
                1,
                KEY,
                *self.random.choice((("a.", "1"), ("a", "1", "b/"), ("a", "1" * 100_001))),
            )
        assert [(key, call(self.client, "DUMP", key)) for key in sorted(call(self.client, "KEYS", "hg:*"))] == before

    def entry(self) -> str:
        return self.random.choice(("headgate_append", "headgate_publish"))


@pytest.mark.parametrize("seed", range(4))
def test_no_history_breaks_a_log(redis_client: Client, seed: int) -> None:
    """Each receipt names one event for ever, the log holds what it should, and a refused call has written nothing."""
    ensure_loaded(redis_client)
    history = History(redis_client, seed)

    for _ in range(STEPS):
        history.step()

    assert len(history.told) > STEPS // 4
