"""Random histories of one log in a real Redis: the process's memory of it never contradicts the data."""

import random
from itertools import pairwise

import pytest

from headgate.errors import HeadgateError
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import LOG_LIBRARY, ensure_loaded
from tests.support.redis_server import copy_keys, put_back
from tests.support.wall_clock import WallClock

NAMESPACE = "orders"
KEY, HEAD = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE)
STEPS = 250
MIB = 2**20
ENTRY_BYTES = 128
# Of a log that no gateway has configured.
DEFAULT_MAX_EVENTS, DEFAULT_MAX_BYTES = 10_000, 256 * MIB


class History:
    """A log, its reports, and its accidents: events by both entries, another process, older data, lost keys."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.random = client, random.Random(seed)
        self.clock = WallClock(client)
        self.told: dict[tuple[str, int], bytes] = {}
        self.ids: dict[str, tuple[str, int]] = {}
        self.doubted: set[str] = set()
        self.copies: list[tuple[int, int, dict[bytes, bytes]]] = []
        self.max_events = self.max_bytes = self.number = 0
        self.configure()

    def step(self) -> None:
        """Let one thing happen, mostly an event, and look at the log after each."""
        happen, *_ = self.random.choices(
            [
                self.publish,
                self.batch,
                self.again,
                self.forget,
                self.copy,
                self.put_back,
                self.lose,
                self.upkeep,
                self.configure,
                self.refuse,
            ],
            [50, 14, 10, 3, 3, 3, 1, 8, 3, 4],
        )
        happen()

    def payload(self) -> bytes:
        self.number += 1
        return b'"%d%s"' % (self.number, b"x" * self.random.choice((0, 100, 60_000)))

    def publish(self, event_id: str | None = None) -> None:
        self.clock.advance(self.random.choice((0, 1, 700)))
        payload = self.payload()
        event_id = event_id or self.random.choice((None, f"id-{self.number}"))
        said = call(self.client, "FCALL", self.entry(), 1, KEY, "a", payload, *([event_id] if event_id else []))
        epoch, offset, duplicate = said.split() if isinstance(said, bytes) else said
        position = (epoch.decode(), int(offset))
        if int(duplicate):
            self.look_at_known(event_id or "", position)
            return
        assert position not in self.told
        self.told[position] = payload
        if event_id:
            self.ids[event_id] = position
        self.look(position, payload)

    def batch(self) -> None:
        """Publish several at once: new ones, known ids, an id twice, and some refused ones, which keep no other out."""
        self.clock.advance(self.random.choice((0, 1, 700)))
        words: list[str | bytes] = []
        expected: list[tuple[str, bytes]] = []
        for _ in range(self.random.randrange(1, 12)):
            payload = self.payload()
            event_id = self.random.choice(("", f"id-{self.number}", f"id-{self.number - 1}", *list(self.ids)[-2:]))
            fault = self.random.choice(("", "", "", "", "topic", "id", "size"))
            words += ("a." if fault == "topic" else "a", b"1" * 100_001 if fault == "size" else payload)
            words += ("b/" if fault == "id" else event_id, "")
            expected.append((fault or event_id, payload))
        said = call(self.client, "FCALL", "headgate_append_batch", 1, KEY, *words)
        newest: tuple[tuple[str, int], bytes] | None = None
        answers: list[tuple[str, int, bool] | None] = []
        for line in said.decode().split("\n"):
            epoch, _, numbers = line.partition(" ")
            if line.startswith("-HEADGATE "):
                answers.append(None)
                continue
            first, count = (int(number) for number in numbers.split())
            answers += [(epoch, first + index, True) for index in range(count)] or [(epoch, first, False)]
        for (wanted, payload), answer in zip(expected, answers, strict=True):
            assert (answer is None) == (wanted in ("topic", "id", "size"))
            if answer is None:
                continue
            position = answer[:2]
            if wanted in self.ids or not answer[2]:
                assert not answer[2]
                self.look_at_known(wanted, position)
                continue
            assert position not in self.told
            self.told[position] = payload
            newest = (position, payload)
            if wanted:
                self.ids[wanted] = position
        if newest:
            self.look(*newest)

    def again(self) -> None:
        """Publish under an id that may be known."""
        if self.ids:
            self.publish(self.random.choice(list(self.ids)))

    def look(self, position: tuple[str, int], payload: bytes) -> None:
        """The newest entry is that event, the others are as reported, offsets have no hole, sums and retention are right."""
        entries = [(int(entry_id.partition(b"-")[0]), fields) for entry_id, fields in call(self.client, "XRANGE", KEY, "-", "+")]
        weights = [len(fields[b"topic"]) + len(fields[b"data"]) + ENTRY_BYTES for _, fields in entries]
        assert (entries[-1][0], entries[-1][1][b"data"]) == (position[1], payload)
        assert [offset for offset, _ in entries] == list(range(entries[0][0], position[1] + 1))
        sums = [int(fields[b"sum"]) for _, fields in entries]
        assert [after - before for before, after in pairwise(sums)] == weights[1:]
        assert all(self.told.get((position[0], offset), fields[b"data"]) == fields[b"data"] for offset, fields in entries)
        assert len(entries) <= self.max_events
        assert sum(weights) <= self.max_bytes
        epoch, offset = call(self.client, "HMGET", HEAD, "epoch", "offset")
        assert (epoch.decode(), int(offset)) == position

    def forget(self) -> None:
        """Another process of Redis goes on."""
        self.clock.restart()

    def copy(self) -> None:
        """Keep the data of this moment."""
        self.copies.append((self.max_events, self.max_bytes, copy_keys(self.client)))

    def put_back(self) -> None:
        """Bring data of an earlier moment back."""
        if self.copies:
            max_events, max_bytes, copied = self.random.choice(self.copies)
            put_back(self.client, copied)
            self.doubt_ids()
            # The process may have the retention in memory, or read the returned one.
            self.max_events, self.max_bytes = max(self.max_events, max_events), max(self.max_bytes, max_bytes)
            self.perhaps_configure()

    def lose(self) -> None:
        """Lose the log or its head."""
        call(self.client, "DEL", self.random.choice((KEY, HEAD)))
        self.doubt_ids()
        self.max_events, self.max_bytes = DEFAULT_MAX_EVENTS, DEFAULT_MAX_BYTES
        self.perhaps_configure()

    def doubt_ids(self) -> None:
        """From now on an id counts only if its receipt is there, too; which are is Redis' to know."""
        self.doubted |= self.ids.keys()
        self.ids = {}

    def look_at_known(self, event_id: str, position: tuple[str, int]) -> None:
        """An event with a known id is the one that was reported under it."""
        if event_id in self.ids or event_id not in self.doubted:
            assert self.ids.get(event_id) == position
        assert position in self.told

    def perhaps_configure(self) -> None:
        """A gateway sees the change at once, or a publisher is the first."""
        if self.random.random() < 0.5:
            self.configure()

    def upkeep(self) -> None:
        """A gateway calls."""
        call(self.client, "FCALL", self.random.choice(("headgate_tick", "headgate_trim")), 1, KEY)

    def configure(self) -> None:
        """A gateway stores another retention. It is reached within one event, as the log is short."""
        self.max_events, self.max_bytes = self.random.choice((5, 20, 40)), MIB
        call(self.client, "FCALL", "headgate_configure", 1, KEY, self.max_events, 600_000, 100_000, MIB)

    def refuse(self) -> None:
        """An event is refused."""
        before = copy_keys(self.client)
        with pytest.raises(HeadgateError):
            call(
                self.client,
                "FCALL",
                self.entry(),
                1,
                KEY,
                *self.random.choice((("a.", "1"), ("a", "1", "b/"), ("a", "1" * 100_001), ("a", "1" * 100_001, "new"))),
            )
        assert copy_keys(self.client) == before

    def entry(self) -> str:
        return self.random.choice(("headgate_append", "headgate_publish"))


@pytest.mark.parametrize("seed", range(4))
def test_no_history_breaks_a_log(redis_client: Client, seed: int) -> None:
    """Each receipt names one event for ever, the log holds its events, and a refused call has written nothing."""
    ensure_loaded(redis_client)
    history = History(redis_client, seed)
    call(redis_client, "CONFIG", "RESETSTAT")

    for _ in range(STEPS):
        history.step()

    assert len(history.told) > STEPS // 4
    # Both ways of an event were gone, as only a usual one moves the head by HINCRBY.
    assert len(history.told) // 8 < calls_of(redis_client, "hincrby") < len(history.told) * 3 // 4


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # A batch that forgets its writes, its ids, known ids, an id twice, or to trim.
        ("if #added > 0 then\n    write_head(name, head)", "if #added > 0 then"),
        ("if #ids > 0 then remember_ids(name, head, ids_bytes, unpack(ids)) end", ""),
        ("event.epoch, event.offset = epoch, offset\n", ""),
        ("event.same = seen[event.own_id]", ""),
        ("event.origin, event ~= last)", "event.origin, true)"),
        # A batch in which a refused event takes an offset, or ends the batch.
        ("if event.same then", "if event.fault then head.offset = head.offset + 1 end if event.same then"),
        ("local topic, user, payload = event.topic", "if event.fault then break end local topic, user, payload = event.topic"),
        ("fault = fault or size_fault(head, payload)\n", ""),
        # A batch that goes on in an epoch that another process has written.
        ("or not head.exists or needs_epoch(head)) do", "or not head.exists) do"),
        # A usual event that forgets its bytes, or takes too large a payload.
        (
            "offset, offset_text, time, time_text, sum\n  head.clock",
            "offset, offset_text, time, time_text, head.sum\n  head.clock",
        ),
        ("if #payload > limit or limit", "if limit"),
    ],
)
def test_a_fault_in_an_append_is_found(redis_client: Client, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    """A missing rule breaks a history, so the test above would not miss it."""
    assert LOG_LIBRARY.source.count(right) == 1
    monkeypatch.setattr(LOG_LIBRARY, "source", LOG_LIBRARY.source.replace(right, wrong))

    with pytest.raises((AssertionError, HeadgateError, ValueError, pytest.fail.Exception)):
        _try_histories(redis_client)


def calls_of(client: Client, command: str) -> int:
    """Return how often a command was called since the statistics were reset."""
    return int(call(client, "INFO", "commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def _try_histories(client: Client) -> None:
    for seed in range(4):
        call(client, "FLUSHALL")
        history = History(client, seed)
        for _ in range(STEPS):
            history.step()
