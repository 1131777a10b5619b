"""Events of users in a real Redis: on the channel of the user, and on that of the topic too while an older gateway listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.delivery.bus.interest import Interest, Source, by_command, sources
from headgate.errors import BusRefused
from headgate.events.topic import is_wildcard, matches
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import VERSION
from headgate.redis.log import EventLog
from headgate.redis.subscriber_link import SubscriberLink
from tests.support.redis_server import DEADLINE_S, PUBLISHER_RIGHTS
from tests.support.wall_clock import WallClock

N = "orders"
KEY, HEAD = keys.log_key(N), keys.head_key(N)
RETENTION = (1000, 600_000, 65536)
TOPICS = ["users", "users.7", "users.7.mail", "users.8.mail.new", "orders.7", "orders.7.mail"]
PATTERNS = [
    *("users.7.mail", "users.7.#", "users.7.*", "users.7", "users.*", "users.#", "users.*.mail", "users.#.new", "users"),
    *("#", "*", "*.7", "*.7.*", "*.*.mail", "#.mail", "orders.#", "orders.7.mail", "#.7.#"),
]
EXAMPLES = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


class Log:
    """The log of the test, its clock, and what listeners are to get."""

    def __init__(self, client: Client, url: str) -> None:
        self.client, self.url = client, url
        call(client, "DEL", KEY, HEAD, keys.epochs_key(N), keys.ids_key(N, 0), keys.ids_key(N, 1))
        self.clock = WallClock(client)
        self.events: list[str] = []  # topics, by offset

    def append(self, topic: str) -> None:
        """By each entry in turn; most take the usual way."""
        number = len(self.events)
        if number % 4 == 2:
            call(self.client, "FCALL", "headgate_append_batch", 1, KEY, topic, "1", "", "")
        elif number % 4 == 3:
            call(self.client, "FCALL", "headgate_publish", 1, KEY, topic, "1", f"id{number}", "ana")
        else:
            call(self.client, "FCALL", "headgate_append", 1, KEY, topic, "1", f"id{number}")
        self.events.append(topic)

    def configure(self, *, is_older: bool) -> None:
        """As a gateway does when it connects, and one before version 14 of the library."""
        call(self.client, "FCALL", "headgate_configure", 1, KEY, *RETENTION, "", "", 0, *(() if is_older else ("users",)))

    def head(self, *, is_older: bool) -> tuple[int, int]:
        """Return the offset and the library, as a gateway reads them for a fence."""
        epoch = call(self.client, "HGET", HEAD, "epoch")
        reply = call(self.client, "FCALL_RO", "headgate_head", 1, KEY, epoch, 0, *(() if is_older else ("users",)))
        return reply[1], reply[4]

    def pass_time(self, seconds: int, fences: bool = False) -> None:
        """Let gateways keep the clock of the log, as they do every five seconds; an older one has its fences, if there is one."""
        for _ in range(0, seconds, 5):
            self.clock.advance(5000)
            call(self.client, "FCALL", "headgate_tick", 1, KEY)
            if fences:
                self.head(is_older=True)

    @property
    def is_alone(self) -> bool:
        """Whether events of users are published on their channels alone."""
        return bool(call(self.client, "HGET", HEAD, "alone") == b"1")


class Gateway:
    """A gateway that listens to patterns on a connection of its own, and drops the copies of an event, as a feed does."""

    def __init__(self, log: Log, patterns: list[str], *, is_older: bool) -> None:
        self.log, self.patterns, self.is_older = log, patterns, is_older
        self.had: list[int] = []
        self.repaired: set[int] = set()
        self.copies = 0
        self.is_asleep = self.has_slept = False
        self._connect()

    def _connect(self) -> None:
        self.log.configure(is_older=self.is_older)
        self._link = SubscriberLink(self.log.url)
        self._link.connect()
        self._link.settimeout(DEADLINE_S)
        self._link.send(*by_command(self._sources()))
        self._drain(count=False)
        self.began = self.verified = len(self.log.events)

    def _sources(self) -> set[Source]:
        if not self.is_older:
            interest = Interest(N)
            for pattern in self.patterns:
                interest.acquire(pattern)
            return set(interest.attach())
        return {self._older_source(pattern) for pattern in self.patterns}

    @staticmethod
    def _older_source(pattern: str) -> Source:
        """Return the one source of a pattern that a gateway before version 14 of the library has."""
        words = pattern.split(".", 2)
        if words[0] == "users" and len(words) == 3 and is_wildcard(words[2]) and not is_wildcard(words[1]):
            return b"subscribe", keys.user_channel(N, words[1]).encode()
        return sources(N, pattern)[0]

    def _drain(self, *, count: bool = True) -> None:
        """Take all that Redis has sent by now."""
        self._link.send(("PING", "now"))
        while True:
            for reply in self._link.read():
                if reply[0] == b"pong":
                    return
                if reply[0] in (b"message", b"pmessage") and count:
                    self._take(reply[-2], reply[-1])

    def _take(self, name: bytes, message: bytes) -> None:
        topic = name.partition(b"}:")[2]
        if b"/users." in name:
            topic, _, message = message.partition(b"\n")
        offset = int(message.split(b" ")[2])
        assert self.log.events[offset - 1] == topic.decode()
        if offset > max(self.had, default=0):
            self.had.append(offset)
        else:
            self.copies += 1

    def fence(self) -> None:
        """Read the head, then all that has come. An older gateway that hears of another library begins anew, from the log."""
        if self.is_asleep:
            return
        offset, library = self.log.head(is_older=self.is_older)
        self._drain()
        if library < 2:
            self.repaired.update(range(self.verified + 1, offset + 1))
            began = self.began
            self._link.close()
            self._connect()
            self.began = began
        self.verified = offset

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    def check(self) -> None:
        """Every event that a pattern matches has come exactly once, or the gateway has reported that it may be missing."""
        self.is_asleep = False
        self.fence()
        assert len(set(self.had)) == len(self.had)
        wanted = {
            number
            for number, topic in enumerate(self.log.events, 1)
            if number > self.began and any(matches(pattern, topic) for pattern in self.patterns)
        }
        assert wanted <= {*self.had, *self.repaired}
        assert self.has_slept or not self.repaired


@contextmanager
def heard(log: Log, *names: str) -> Iterator[list[tuple[bytes, bytes]]]:
    """Collect what comes on these channels while the block runs."""
    found: list[tuple[bytes, bytes]] = []
    with closing(SubscriberLink(log.url)) as link:
        link.connect()
        link.settimeout(DEADLINE_S)
        link.send(("SUBSCRIBE", *names))
        yield found
        link.send(("PING", "end"))
        while True:
            for reply in link.read():
                if reply[0] == b"pong":
                    return
                if reply[0] == b"message":
                    found.append((reply[1].rpartition(b"}")[2], reply[2]))


@pytest.fixture
def log(redis_client: Client, redis_url: str) -> Log:
    """A log that no gateway has configured."""
    return Log(redis_client, redis_url)


USERS_CHANNELS = (keys.channel(N, "users.7.mail"), keys.user_channel(N, "7"))


@pytest.mark.parametrize("is_older", [False, True])
def test_every_entry_publishes_an_event_of_a_user_alike(log: Log, is_older: bool) -> None:
    """Once, the topic in front; or, with an older gateway, on the channel of the topic first."""
    log.configure(is_older=is_older)
    with heard(log, *USERS_CHANNELS) as found:
        for _ in range(8):
            log.append("users.7.mail")
    channels, messages = zip(*found, strict=True)
    assert channels == ((b":users.7.mail", b"/users.7") if is_older else (b"/users.7",)) * 8
    own = [message for name, message in found if name == b"/users.7"]
    assert [int(message.split(b" ")[2]) for message in own] == list(range(1, 9))
    assert all(message.startswith(b"users.7.mail\nhg1 ") and message.endswith(b"\n1") for message in own)
    assert {message.removeprefix(b"users.7.mail\n") for message in messages} == {message.partition(b"\n")[2] for message in own}


def test_an_older_gateway_counts_for_a_while_after_its_last_fence(log: Log) -> None:
    """It reads the head at least once a minute for as long as it listens."""
    log.configure(is_older=False)
    log.append("orders.7")
    assert log.is_alone
    log.configure(is_older=True)
    log.configure(is_older=False)
    assert not log.is_alone
    log.pass_time(300, fences=True)
    log.configure(is_older=False)
    assert not log.is_alone
    log.pass_time(140)
    assert not log.is_alone
    log.pass_time(20)
    assert log.is_alone
    assert log.head(is_older=False)[1] == log.head(is_older=True)[1] + VERSION - 1 == VERSION


def test_a_log_of_an_older_library_is_published_on_both_until_its_gateways_have_gone(log: Log) -> None:
    """Its head says nothing about it."""
    log.configure(is_older=False)
    log.append("orders.7")
    call(log.client, "HDEL", HEAD, "alone")
    log.clock.restart()
    log.configure(is_older=False)
    assert not log.is_alone
    log.pass_time(160)
    assert log.is_alone


def test_a_gateway_says_what_it_knows_to_any_library(log: Log, redis_client: Client) -> None:
    """An older one takes what it knows of the words of `configure`, and none of it is lost with ours."""
    events = EventLog(N, redis_client, 65536)
    assert events.configure(1000, 600).library == VERSION
    assert (log.is_alone, events.head("").library, events.head().library) == (True, VERSION, VERSION)


def test_a_publisher_needs_no_right_to_a_channel_on_which_nothing_is_published(log: Log, as_user: Callable[..., Client]) -> None:
    """That of the topic; with an older gateway it does, and a refused event leaves no trace."""
    log.configure(is_older=False)
    limited = as_user(*PUBLISHER_RIGHTS, "~test:*", "resetchannels", f"&{keys.user_channel(N, '*')}")
    for number in range(2):
        call(limited, "FCALL", "headgate_append", 1, KEY, "users.7.mail", "1", f"id{number}")
    log.configure(is_older=True)
    for number in range(2, 4):
        with pytest.raises(BusRefused):
            call(limited, "FCALL", "headgate_append", 1, KEY, "users.7.mail", "1", f"id{number}")
    assert call(log.client, "XLEN", KEY) == 2


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["old", "new"]), st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4)),
        st.tuples(st.just("append"), st.sampled_from(TOPICS)),
        st.tuples(st.sampled_from(["fences", "leave", "sleep", "wake", "time"]), st.integers(0, 5)),
    ),
    max_size=30,
)


@EXAMPLES
@given(STEPS)
@example([("old", ["users.7.mail"]), ("new", ["#"]), ("sleep", 0), ("time", 0), ("append", "users.7.mail")])
@example(
    [("new", ["users.7.mail", "*.7.*"]), ("old", ["users.*"]), ("time", 0), ("append", "users.7"), ("leave", 1), ("time", 0)]
)
def test_an_event_arrives_once_for_any_patterns_and_any_mixture_of_gateways(
    redis_client: Client, redis_url: str, steps: list[tuple[str, str | int | list[str]]]
) -> None:
    """They come and go in any order. An older one that was stopped for longer than it counts reports what it may have missed."""
    log = Log(redis_client, redis_url)
    gateways: list[Gateway] = []
    seen: list[Gateway] = []
    has_older = False
    try:
        for step, argument in [*steps, *(("append", topic) for topic in TOPICS)]:
            awake = [gateway for gateway in gateways if not gateway.is_asleep]
            if step in ("old", "new") and isinstance(argument, list):
                has_older |= step == "old"
                gateways.append(Gateway(log, argument, is_older=step == "old"))
                seen.append(gateways[-1])
            elif step == "append":
                log.append(str(argument))
            elif step == "fences":
                for gateway in gateways:
                    gateway.fence()
            elif step == "time":
                for _ in range(3):
                    for gateway in awake:
                        gateway.fence()
                    log.pass_time(55)
            elif gateways:
                gateway = gateways[int(str(argument)) % len(gateways)]
                if step == "leave":
                    gateway.check()
                    gateways.remove(gateway)
                else:
                    gateway.is_asleep = step == "sleep"
                    gateway.has_slept |= step == "sleep"
        for gateway in gateways:
            gateway.check()
            of_users = [pattern for pattern in gateway.patterns if pattern.startswith("users.")]
            assert has_older or gateway.copies == 0 or len(of_users) < len(gateway.patterns)
    finally:
        for gateway in seen:
            gateway.close()
