"""Events of users in a real Redis: on the channel of the user, and on that of the topic too while an older gateway listens."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from headgate.errors import BusRefused
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import VERSION
from headgate.redis.subscriber_link import SubscriberLink
from tests.support.redis_server import DEADLINE_S, PUBLISHER_RIGHTS
from tests.support.wall_clock import WallClock

N = "orders"
KEY, HEAD = keys.log_key(N), keys.head_key(N)
RETENTION = (1000, 600_000, 65536)


class Log:
    """The log of the test, its clock, and the expected events of listeners."""

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


@contextmanager
def heard(log: Log, *names: str) -> Iterator[list[tuple[bytes, bytes]]]:
    """Collect the messages of these channels while the block runs."""
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
