"""The two ends of Redis that the bus holds. The model's in memory behave as the real ones do on a real Redis.

The tests of the listener run on the model (tests/support/model_links.py). Here both show each behaviour that those tests need.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any, TypeAlias

import gevent
import pytest

from headgate.errors import BusRefused, BusUnavailable, NotSerializable
from headgate.events.event import decode_message
from headgate.redis.client import call, is_forbidden, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.faults import NO_PERMISSION
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import channel, head_key, log_key, user_channel
from headgate.redis.log import EventLog
from headgate.redis.subscriber_link import SubscriberLink
from headgate.services.publisher import Publisher
from tests.support.model_links import ModelLink, ModelLog, ModelServer
from tests.support.model_redis import NAMESPACE
from tests.support.redis_server import wait_until

DEADLINE_S = 30.0
SOON_S = 0.05


class RealWorld:
    """The real ends on a real Redis of the test's own."""

    def __init__(self, server: EmbeddedRedis, open_ends: ExitStack) -> None:
        self._server, self._url, self._open = server, server.url, open_ends
        self._commands = open_ends.enter_context(closing(open_client(server.url, timeout_s=DEADLINE_S)))
        self._publisher = open_ends.enter_context(Publisher(server.url, namespace=NAMESPACE))

    def link(self, connect_timeout_s: float = DEADLINE_S) -> SubscriberLink:
        return self._open.enter_context(closing(SubscriberLink(self._url, connect_timeout_s)))

    def log(self, timeout_s: float = DEADLINE_S) -> EventLog:
        client = self._open.enter_context(closing(open_client(self._url, timeout_s=timeout_s)))
        return EventLog(NAMESPACE, client, 65536)

    def publish(self, topic: str, data: str) -> int:
        return self._publisher.publish(topic, data).offset

    def publish_raw(self, name: str, message: bytes) -> None:
        call(self._commands, "PUBLISH", name, message)

    def log_rubbish(self) -> int:
        ensure_loaded(self._commands)
        _, offset, _ = call(self._commands, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", "1.")
        return int(offset)

    def trim(self, keep: int) -> None:
        call(self._commands, "XTRIM", log_key(NAMESPACE), "MAXLEN", "=", keep)

    def flush(self) -> None:
        call(self._commands, "DEL", log_key(NAMESPACE), head_key(NAMESPACE))

    def cut(self) -> None:
        call(self._commands, "CLIENT", "KILL", "TYPE", "pubsub")

    def stop(self) -> None:
        self._open.callback(self.go_on)
        os.kill(self._server.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._server.pid, signal.SIGCONT)

    def leave(self) -> None:
        self._server.close()

    def forbid_globs(self) -> None:
        call(self._commands, "ACL", "SETUSER", "gate", "on", ">pass", "allkeys", "+@all", "resetchannels", f"&{named('a')}")
        self._url = self._url.replace("unix://", "unix://gate:pass@")

    def fill(self, link: SubscriberLink | ModelLink) -> None:
        self.stop()
        link.settimeout(SOON_S)
        with suppress(BusUnavailable):
            while True:
                link.send(("PING", b"x" * 1_000_000))

    def subscribed(self) -> int:
        channels = len(call(self._commands, "PUBSUB", "CHANNELS"))
        return channels + int(call(self._commands, "PUBSUB", "NUMPAT"))

    def later(self, act: Callable[[], object]) -> Callable[[], None]:
        thread = threading.Timer(SOON_S, act)
        thread.start()
        return thread.join


class ModelWorld:
    def __init__(self) -> None:
        self._server = ModelServer()
        self._redis = self._server.redis

        self.trim, self.flush = self._redis.trim, self._redis.flush
        self.cut, self.stop, self.go_on, self.leave = self._server.cut, self._server.stop, self._server.go_on, self._server.leave

    def link(self, connect_timeout_s: float = DEADLINE_S) -> ModelLink:
        return self._server.link()

    def log(self, timeout_s: float = DEADLINE_S) -> ModelLog:
        return self._server.log(timeout_s)

    def publish(self, topic: str, data: str) -> int:
        return self._redis.publish(topic, f'"{data}"'.encode())

    def publish_raw(self, name: str, message: bytes) -> None:
        self._redis.send(name.removeprefix(channel(NAMESPACE, "")), message)

    def log_rubbish(self) -> int:
        return self._redis.publish("orders.1", b"1.", good=False)

    def forbid_globs(self) -> None:
        self._server.refusal = lambda command: BusRefused("no", redis_code=NO_PERMISSION) if command[0] == b"PSUBSCRIBE" else None

    def fill(self, link: SubscriberLink | ModelLink) -> None:
        self._server.full = True

    def subscribed(self) -> int:
        return len(self._redis._channels) + len(self._redis._globs)

    def later(self, act: Callable[[], object]) -> Callable[[], None]:
        greenlet = gevent.spawn_later(SOON_S, act)
        return lambda: greenlet.get(timeout=DEADLINE_S)


# A Redis with its two ends, and the actions of publishers and operators.
World: TypeAlias = RealWorld | ModelWorld
Link: TypeAlias = SubscriberLink | ModelLink


@pytest.fixture(params=["real", "model"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Both, one after the other."""
    if request.param == "model":
        yield ModelWorld()
        return
    start: Callable[[], EmbeddedRedis] = request.getfixturevalue("start_redis")
    with ExitStack() as open_ends:
        yield RealWorld(start(), open_ends)


@pytest.fixture
def link(world: World) -> Link:
    link = world.link()
    link.connect()
    link.settimeout(DEADLINE_S)
    return link


def replies(link: Link, count: int) -> list[list[Any]]:
    """Read so many replies; without the number of subscriptions, which is unused."""
    found: list[Any] = []
    while len(found) < count:
        found += link.read()
    assert len(found) == count
    return [reply[:2] if reply[0].endswith(b"subscribe") else reply for reply in found]


def named(topic: str) -> str:
    return channel(NAMESPACE, topic)


# The subscriber connection ---------------------------------------------------------------------------------------------


def test_commands_are_answered_in_order_text_or_bytes(link: Link) -> None:
    """An acknowledgement for each name, and the token of each PING."""
    link.send((b"SUBSCRIBE", named("a").encode(), named("b").encode()), ("PSUBSCRIBE", named("*")))
    link.send(("PING", b"token"))
    link.send((b"UNSUBSCRIBE", named("a").encode()), (b"PUNSUBSCRIBE", named("*").encode()))
    assert replies(link, 6) == [
        [b"subscribe", named("a").encode()],
        [b"subscribe", named("b").encode()],
        [b"psubscribe", named("*").encode()],
        [b"pong", b"token"],
        [b"unsubscribe", named("a").encode()],
        [b"punsubscribe", named("*").encode()],
    ]


def test_a_publish_comes_once_through_each_source_back_to_back(world: World, link: Link) -> None:
    """A message on a channel, through a glob, and to no other subscriber."""
    link.send(("SUBSCRIBE", named("a.b")), ("PSUBSCRIBE", named("a.*")), ("PSUBSCRIBE", named("*.b")))
    replies(link, 3)
    world.publish_raw(named("a.b"), b"1")
    world.publish_raw(named("a.c"), b"2")
    world.publish_raw(named("z"), b"3")
    first, *more = replies(link, 4)
    assert first == [b"message", named("a.b").encode(), b"1"]
    assert sorted(more[:2]) == [
        [b"pmessage", named("*.b").encode(), named("a.b").encode(), b"1"],
        [b"pmessage", named("a.*").encode(), named("a.b").encode(), b"1"],
    ]
    assert more[2:] == [[b"pmessage", named("a.*").encode(), named("a.c").encode(), b"2"]]


def test_a_logged_event_comes_with_its_place_in_the_log(world: World, link: Link) -> None:
    """Epoch and offset in the header, as the log has them."""
    link.send(("PSUBSCRIBE", named("*")))
    replies(link, 1)
    offset = world.publish("orders.1", "x")
    ((kind, _, name, message),) = replies(link, 1)
    event = decode_message("orders.1", message, 65536, 0)
    assert (kind, name) == (b"pmessage", named("orders.1").encode())
    assert (event.epoch, event.offset, event.data) == (world.log().head().epoch, offset, b'"x"')


def test_an_event_below_a_user_comes_on_the_channel_of_the_user_with_its_topic(world: World, link: Link) -> None:
    """One channel for everything below the name."""
    link.send(("SUBSCRIBE", user_channel(NAMESPACE, "7")))
    replies(link, 1)
    world.publish("users.8.mail", "another's")
    world.publish("users.7.mail", "mine")
    ((kind, name, message),) = replies(link, 1)
    topic, _, rest = message.partition(b"\n")
    assert (kind, name, topic) == (b"message", user_channel(NAMESPACE, "7").encode(), b"users.7.mail")
    assert decode_message("users.7.mail", rest, 65536, 0).data == b'"mine"'


def test_after_an_unsubscribe_nothing_comes_any_more(world: World, link: Link) -> None:
    link.send(("SUBSCRIBE", named("a"), named("anchor")))
    link.send(("UNSUBSCRIBE", named("a")))
    replies(link, 3)
    world.publish_raw(named("a"), b"1")
    link.send(("PING", "x"))
    assert replies(link, 1) == [[b"pong", b"x"]]
    assert world.subscribed() == 1


def test_reading_without_waiting_returns_what_has_come(world: World, link: Link) -> None:
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    assert link.read_ready() == []
    world.publish_raw(named("a"), b"1")
    assert wait_until(link.read_ready, "the message") == [[b"message", named("a").encode(), b"1"]]


def test_a_read_waits_for_a_reply(world: World, link: Link) -> None:
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    link.settimeout(None)
    join = world.later(lambda: world.publish_raw(named("a"), b"1"))
    assert link.read() == [[b"message", named("a").encode(), b"1"]]
    join()


def test_a_read_that_timed_out_may_be_repeated(world: World, link: Link) -> None:
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    link.settimeout(SOON_S)
    with pytest.raises(BusUnavailable, match="did not answer in time"):
        link.read()
    world.publish_raw(named("a"), b"1")
    link.settimeout(DEADLINE_S)
    assert replies(link, 1) == [[b"message", named("a").encode(), b"1"]]


def test_a_connection_that_was_cut_says_so_and_is_never_replaced(world: World, link: Link) -> None:
    """To the reader and, sooner or later, to the writer; Redis has forgotten its subscriptions."""
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    world.cut()
    for _ in range(2):
        with pytest.raises(BusUnavailable):
            link.read()
    with pytest.raises(BusUnavailable):
        link.read_ready()
    wait_until(lambda: world.subscribed() == 0, "the subscriptions to be forgotten")
    link.settimeout(None)  # allowed while it has not been closed here
    link.close()


def test_a_close_wakes_the_reader_and_is_for_ever(world: World, link: Link) -> None:
    """Idempotent; nothing can be sent, read or set any more."""
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    join = world.later(link.close)
    with pytest.raises(BusUnavailable, match="closed"):
        link.read()
    join()
    link.close()
    for use in (link.read, link.read_ready, lambda: link.send(("PING", "x")), lambda: link.settimeout(1)):
        with pytest.raises(BusUnavailable, match="closed"):
            use()
    wait_until(lambda: world.subscribed() == 0, "the subscription to be forgotten")


def test_a_server_that_stands_still_takes_connections_and_commands_and_answers_when_it_goes_on(world: World, link: Link) -> None:
    """In the order in which they came; each wait for an answer has its timeout."""
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    world.stop()
    link.settimeout(SOON_S)
    link.send(("PING", "1"))
    assert link.read_ready() == []
    with pytest.raises(BusUnavailable, match="did not answer in time"):
        link.read()
    link.send(("SUBSCRIBE", named("b")), ("PING", "2"))
    another = world.log(SOON_S)
    with pytest.raises(BusUnavailable):
        another.head()
    world.go_on()
    link.settimeout(DEADLINE_S)
    assert replies(link, 3) == [[b"pong", b"1"], [b"subscribe", named("b").encode()], [b"pong", b"2"]]
    another = world.log()
    assert another.configure(100, 3600).offset == 0


def test_a_new_connection_to_a_server_that_stands_still_waits_for_its_first_answer(world: World) -> None:
    """The kernel takes the connection. A real link asks for its server as soon as it is connected."""
    world.stop()
    link = world.link(SOON_S)

    def subscribe() -> None:
        link.connect()
        link.settimeout(SOON_S)
        link.send(("SUBSCRIBE", named("a")))
        link.read()

    with pytest.raises(BusUnavailable, match="did not answer in time"):
        subscribe()
    link.close()


def test_a_connection_that_takes_no_more_bytes_makes_the_sender_wait(world: World, link: Link) -> None:
    """Until the timeout, or until it is closed."""
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    world.fill(link)
    link.settimeout(SOON_S)
    with pytest.raises(BusUnavailable, match="did not answer in time"):
        link.send(("PING", b"x" * 1_000_000))
    link.close()


def test_a_server_that_has_gone_breaks_connections_and_refuses_new_ones(world: World, link: Link) -> None:
    """With the error that says to try again."""
    log = world.log()
    log.configure(100, 3600)
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    world.leave()
    for use in (link.read, world.link().connect, log.head, lambda: log.configure(1, 1), lambda: log.page(0, 1)):
        with pytest.raises(BusUnavailable):
            use()


def test_a_command_without_the_right_to_it_is_a_refusal_with_its_code(world: World) -> None:
    """It is raised where the replies are read, and the link is done for."""
    world.forbid_globs()
    link = world.link()
    link.connect()
    link.settimeout(DEADLINE_S)
    link.send(("SUBSCRIBE", named("a")))
    replies(link, 1)
    link.send(("PSUBSCRIBE", named("*")))
    with pytest.raises(BusRefused) as refused:
        link.read()
    assert is_forbidden(refused.value)


def test_a_link_that_was_never_connected_is_closed(world: World) -> None:
    link = world.link()
    with pytest.raises(BusUnavailable, match="closed"):
        link.read()
    link.close()
    for use in (link.connect, link.read):
        with pytest.raises(BusUnavailable, match="closed"):
            use()


# The log -----------------------------------------------------------------------------------------------------------------


def test_configuring_begins_an_epoch_and_stores_the_retention(world: World) -> None:
    """Once, as the next one finds the same log."""
    log = world.log()
    head = log.configure(5, 3600)
    assert (bool(head.epoch), head.offset, head.first) == (True, 0, 1)
    assert head.library > 1
    assert log.configure(5, 3600).epoch == head.epoch
    for number in range(8):
        world.publish("orders.1", str(number))
    assert (log.head().offset, log.head().first, log.head().epoch) == (8, 4, head.epoch)


def test_an_offset_that_redis_does_not_remember_ends_its_epoch(world: World) -> None:
    """Of the epoch in the question, or of another one beside it; the next configuration begins another epoch."""
    log = world.log()
    first = log.configure(100, 3600).epoch
    world.publish("orders.1", "x")
    assert log.head(first, 1).epoch == log.configure(100, 3600).epoch == first
    assert (log.head(first, 2).offset, log.head().epoch) == (1, first)
    second = log.configure(100, 3600).epoch
    assert second != first
    head = log.head("f" * 16, 9, second, 2)
    assert head.lineage is not None
    assert head.lineage.end_of(first, 1) == 1
    assert log.configure(100, 3600).epoch not in (first, second)


def test_an_empty_redis_has_a_head_without_an_epoch(world: World) -> None:
    """There was no publish and no gateway."""
    log = world.log()
    log.configure(100, 3600)
    world.flush()
    assert (log.head().epoch, log.head().offset) == ("", 0)


def test_a_page_is_a_range_of_the_log_in_order(world: World) -> None:
    """After the first bound, up to the second, at most so many; no bound means to the end."""
    log = world.log()
    epoch = log.configure(100, 3600).epoch
    for number in range(1, 8):
        world.publish(f"orders.{number}", str(number))

    def read(*arguments: Any, **options: Any) -> list[tuple[int, str, bytes]]:
        return [(entry.offset, entry.event.topic, entry.event.data) for entry in log.page(*arguments, **options) if entry.event]

    assert read(2, 4, epoch=epoch) == [(3, "orders.3", b'"3"'), (4, "orders.4", b'"4"')]
    assert [offset for offset, *_ in read(2, None)] == [3, 4, 5, 6, 7]
    assert [offset for offset, *_ in read(0, 7, 2)] == [1, 2]
    assert read(7, 9, epoch=epoch) == []
    assert [(offset, topic) for offset, topic, _ in log.topics(4, 6)] == [(5, "orders.5"), (6, "orders.6")]
    world.trim(2)
    assert [offset for offset, *_ in read(0, 7)] == [6, 7]
    assert [offset for offset, *_ in log.topics(0, 7)] == [6, 7]
    assert log.head().first == 6


def test_a_page_of_another_epoch_is_refused(world: World) -> None:
    """Its offsets would be taken for those of this log."""
    log = world.log()
    epoch = log.configure(100, 3600).epoch
    world.publish("orders.1", "x")
    assert len(log.page(0, 1, epoch=epoch)) == 1
    world.flush()
    log.configure(100, 3600)
    with pytest.raises(BusUnavailable, match="replaced"):
        log.page(0, 1, epoch=epoch)


def test_an_entry_that_cannot_be_delivered_is_in_its_page_with_its_error(world: World, link: Link) -> None:
    """The function library is a little laxer than JSON in numbers. Such an event is logged, and sent."""
    log = world.log()
    log.configure(100, 3600)
    link.send(("SUBSCRIBE", named("orders.1")))
    replies(link, 1)
    offset = world.log_rubbish()
    (entry,) = log.page(0, 1)
    assert (entry.offset, entry.event) == (offset, None)
    assert isinstance(entry.error, NotSerializable)
    ((*_, message),) = replies(link, 1)
    with pytest.raises(NotSerializable):
        decode_message("orders.1", message, 65536, 0)
    log.drop_idle()
    assert log.head().offset == offset
