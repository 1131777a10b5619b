"""The watch on revocations: its answer to the replies and the faults of its link. No Redis: its port has no listener."""

from collections.abc import Iterator
from typing import Any, cast

import gevent
import pytest
from structlog.testing import capture_logs

from headgate.auth.identity import Identity
from headgate.auth.repair import WRITTEN_BACK
from headgate.auth.revocation import Decision
from headgate.auth.revocation_watch import PING_INTERVAL_S, SILENT_S, ExtraChannel, RevocationWatch
from headgate.errors import BusRefused, BusUnavailable, Unauthorized
from headgate.redis.keys import REVOKED
from headgate.redis.primary_switch import FORBIDDEN_S
from tests.support.small_redis import SmallRedis

URL = "redis://127.0.0.1:1"
CLIENT = SmallRedis().client()
DEADLINE_S = 30.0
CONFIRMED: Any = [b"subscribe", REVOKED.encode(), 1]


def message(text: bytes) -> list[bytes]:
    return [b"message", REVOKED.encode(), text]


class Watched:
    """A watch, the set that it reads, and the clients hit by each read of its link."""

    def __init__(self) -> None:
        self.stored: list[Decision] = []
        self.known: list[Decision] = []
        self.hit: list[list[str]] = []
        self.watch = RevocationWatch(URL, CLIENT, self.hit.append, self._read)

    def _read(self, _: object, known: list[Decision]) -> list[Decision]:
        self.known = known
        return self.stored

    def take(self, *replies: list[bytes]) -> None:
        self.watch._take(list(replies))


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.watch.close()


def test_nobody_is_let_in_before_it_is_known_what_is_revoked(watched: Watched) -> None:
    """A gateway that starts while Redis is unreachable must not let a revoked user in."""
    with pytest.raises(BusUnavailable):
        watched.watch.check(Identity("ana"))
    watched.take(CONFIRMED)
    watched.watch.check(Identity("ana"))


def test_the_whole_set_is_read_when_the_subscription_is_confirmed(watched: Watched) -> None:
    """Nothing can fall between; the connected clients that are hit are notified, after each reconnect again."""
    watched.stored = [Decision("user:ana", 60, 0)]
    watched.take(CONFIRMED)
    assert watched.hit == [["user:ana"]]
    with pytest.raises(Unauthorized):
        watched.watch.check(Identity("ana"))
    watched.stored = []
    watched.take(CONFIRMED)
    watched.watch.check(Identity("ana"))


def test_a_renewed_watch_lets_known_users_in_and_signals_the_next_read(watched: Watched) -> None:
    """Its link may hold messages that nobody has read yet."""
    watched.stored = [Decision("user:ana", 60, 0)]
    watched.take(CONFIRMED)
    watched.watch.renew()
    watched.watch.check(Identity("ben"))
    with pytest.raises(Unauthorized):
        watched.watch.check(Identity("ana"))
    assert not watched.watch.was_known.is_set()
    watched.take(CONFIRMED)
    assert watched.watch.was_known.is_set()


def test_each_read_of_the_set_is_given_what_is_known(watched: Watched) -> None:
    """So that a Redis that has lost it gets it again; after that every gateway reads the set."""
    watched.take(CONFIRMED)
    with capture_logs():
        watched.take(message(b"60 user:ana"))
    watched.stored = [Decision("user:ben", 60, 0)]
    watched.take(message(WRITTEN_BACK))
    assert [each.member for each in watched.known] == ["user:ana"]
    assert watched.hit[-1] == ["user:ben"]
    watched.take(CONFIRMED)
    assert [each.member for each in watched.known] == ["user:ben"]


def test_messages_of_one_read_are_one_call(watched: Watched) -> None:
    """A thousand revocations at once disconnect their clients in one pass; a lift, or an invalid message, hits no client."""
    watched.take(CONFIRMED)
    with capture_logs():
        watched.take(message(b"60 user:ana"), message(b"60 token:t"), message(b"0 user:ben"), message(b"rubbish"))
        watched.take(message(b"0 user:ana"), [b"pong", b""])
    assert watched.hit == [["user:ana", "token:t"]]
    watched.watch.check(Identity("ana"))


def test_each_revocation_that_is_heard_is_in_the_audit_log(watched: Watched) -> None:
    """Of the gateway that acts on it; an invalid message is not."""
    with capture_logs() as lines:
        watched.take(message(b"60 user:ana"), message(b"0 token:t"), message(b"rubbish"))
    assert [(line["event"], line["kind"], line["name"], line["by"]) for line in lines] == [
        ("revoked", "user", "ana", "heard from Redis"),
        ("revocation lifted", "token", "t", "heard from Redis"),
    ]


def test_messages_of_another_channel_go_to_those_who_want_them() -> None:
    """In between, and they are no revocations; the confirmation of that channel is not the moment to read these."""
    heard: list[bytes] = []
    read: list[object] = []
    begun: list[object] = []

    def read_all(client: Any, known: object) -> list[Decision]:
        read.append(client)
        return []

    watch = RevocationWatch(URL, CLIENT, lambda members: None, read_all, also=ExtraChannel("others", begun.append, heard.append))
    watch._take([[b"subscribe", b"others", 1]])  # type: ignore[list-item]
    assert (watch.known, read, len(begun)) == (False, [], 1)
    watch._take([CONFIRMED, [b"message", b"others", b"60 user:ana"]])
    watch.check(Identity("ana"))
    assert heard == [b"60 user:ana"]
    watch._take([message(WRITTEN_BACK)])  # Redis may have lost others' changes as well
    assert (len(read), len(begun)) == (2, 2)
    watch.close()


# The link ------------------------------------------------------------------------------------------------------------------


class Link:
    """A link whose reads bring a script: replies, or an error; without a script nothing answers. Records everything it sends."""

    def __init__(self, *script: list[list[bytes]] | Exception) -> None:
        self._script = list(script)
        self.sent: list[tuple[Any, ...]] = []
        self.silence_s: float | None = None
        self.closed = 0

    def connect(self) -> None:
        if not self._script:
            raise BusUnavailable("nothing answers")

    def settimeout(self, timeout_s: float) -> None:
        self.silence_s = timeout_s

    def send(self, *commands: tuple[Any, ...]) -> None:
        if self.closed:
            raise BusUnavailable("the connection is closed")
        self.sent += commands

    def read(self) -> list[list[bytes]]:
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed += 1


BROKEN = BusUnavailable("the connection broke")


class Linked:
    """A watch that opens one link of a script after the other, and is closed with the last. Its waits take no time."""

    def __init__(self, *links: Link, stored: list[Decision] | Exception | None = None, also: ExtraChannel | None = None) -> None:
        self._links = list(links)
        self.opened: list[Link] = []
        self.hit: list[list[str]] = []
        self.waits: list[float] = []
        self.stored = stored or []
        self.watch = RevocationWatch(
            URL, CLIENT, self.hit.append, self._read, open_link=cast(Any, self._open), wait=self.waits.append, also=also
        )

    def run(self) -> list[Any]:
        """Run the watch to the end of its script; return the lines of the log."""
        with capture_logs() as lines:
            self.watch._run()
        return lines

    def _open(self, url: str, timeout_s: float) -> Link:
        link = self._links.pop(0)
        self.opened.append(link)
        if not self._links:
            self.watch.close()
        return link

    def _read(self, client: object, known: object) -> list[Decision]:
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored


OTHERS = ExtraChannel("others", lambda _: None, lambda _: None)


def test_a_user_without_the_right_to_the_other_channel_still_hears_of_revocations() -> None:
    """A deploy must not lock out every client because Redis' rights are those of the version before.

    The right may come back, as when someone edits the user, so each new link asks for it.
    """
    forbidden = BusRefused("this user has no permissions to access one of the channels", redis_code="NOPERM")
    refused, link, later = Link(forbidden), Link([CONFIRMED], BROKEN), Link(BROKEN)
    linked = Linked(refused, link, later, stored=[Decision("user:ana", 60, 0)], also=OTHERS)
    lines = linked.run()
    assert refused.sent == later.sent == [("SUBSCRIBE", "others", REVOKED)]
    assert (refused.closed, link.sent) == (1, [("SUBSCRIBE", REVOKED)])
    assert linked.hit == [["user:ana"]]
    assert [line["channel"] for line in lines if line["event"] == "questions not heard"] == ["others"]


def test_a_watch_without_the_right_to_the_other_channel_asks_again_after_a_while() -> None:
    """Redis logs each refusal, so it does not ask often."""
    link, waited = Link(), 0.0
    watch = RevocationWatch(URL, CLIENT, lambda members: None, wait=lambda seconds: step(seconds), also=OTHERS)
    watch._listening, watch._link = None, cast(Any, link)

    def step(seconds: float) -> None:
        nonlocal waited
        if link.closed:
            watch.close()
        else:
            waited += seconds

    watch._run_pings()
    assert waited == FORBIDDEN_S


def test_a_watch_whose_link_breaks_reads_everything_anew() -> None:
    """It subscribes first and reads the set after the confirmation, so a message that was lost with the link is in it.

    Until then the known revocations stay active. A link that says nothing for too long counts as dead.
    """
    links = [Link([CONFIRMED], [message(b"60 user:ben")], BROKEN), Link([CONFIRMED], BROKEN), Link(BROKEN)]
    linked = Linked(*links, stored=[Decision("user:ana", 60, 0)])
    linked.run()
    assert linked.hit == [["user:ana"], ["user:ben"], ["user:ana"]]
    assert all(link.closed and (link.sent, link.silence_s) == ([("SUBSCRIBE", REVOKED)], SILENT_S) for link in links[:2])
    with pytest.raises(Unauthorized):
        linked.watch.check(Identity("ana"))


def test_while_redis_is_away_the_watch_tries_again_ever_more_slowly_and_says_so_once() -> None:
    """Up to a bound; after a link that brought something it starts from the first delay again."""
    away = [Link() for _ in range(6)]
    linked = Linked(*away, Link([CONFIRMED], BROKEN), Link(), Link(BROKEN))
    lines = linked.run()
    told = [(line["event"], line["error"]) for line in lines]
    assert told == [
        ("revocations out of reach", "the bus is unavailable: nothing answers"),
        ("revocations out of reach", "the bus is unavailable: the connection broke"),
        ("revocations out of reach", "the bus is unavailable: nothing answers"),
    ]
    bounds = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 0.05, 0.1]
    assert all(bound / 2 <= wait_s <= bound for wait_s, bound in zip(linked.waits, bounds, strict=True))


def test_a_redis_that_refuses_each_ping_is_one_line_in_the_log() -> None:
    """One with a full disk confirms the subscriptions; a PING that it answers shows that the trouble is over."""
    refusal = BusRefused("it cannot write to its disk", redis_code="MISCONF")
    refusing = [Link([CONFIRMED], refusal) for _ in range(3)]
    linked = Linked(*refusing, Link([CONFIRMED], [[b"pong", b""]], refusal), Link(refusal))
    assert [line["error"] for line in linked.run()] == [refusal.message] * 2


def test_a_fault_of_ours_does_not_end_the_watch() -> None:
    """It is logged, and the next link is tried."""
    linked = Linked(Link([CONFIRMED]), Link([CONFIRMED], BROKEN), stored=RuntimeError("a fault"))
    lines = linked.run()
    assert {line["event"] for line in lines} == {"revocation watch failed"}
    assert len(linked.opened) == 2


def test_a_set_that_cannot_be_read_leaves_the_watch_unknowing() -> None:
    """A confirmed subscription alone says nothing about earlier revocations."""
    linked = Linked(Link([CONFIRMED]), Link(BROKEN), stored=BusUnavailable("no answer"))
    linked.run()
    with pytest.raises(BusUnavailable):
        linked.watch.check(Identity("ana"))


def test_a_watch_pings_now_and_then_once_it_knows_the_set() -> None:
    """Redis answers each; a closed link is left to the watch's own read."""
    link = Link()
    pinged: list[int] = []
    watch = RevocationWatch(URL, CLIENT, lambda members: None, wait=lambda seconds: step(seconds))

    def step(seconds: float) -> None:
        assert seconds == PING_INTERVAL_S
        pinged.append(len(link.sent))
        if len(pinged) == 1:
            watch._link = cast(Any, link)
        elif len(pinged) == 2:
            watch.known = True
        elif len(pinged) == 4:
            link.closed = 1
        elif len(pinged) == 5:
            watch.close()

    watch._run_pings()
    assert pinged == [0, 0, 1, 2, 2]
    assert set(link.sent) == {("PING", b"")}


def test_a_watch_is_started_once_and_ends_when_it_is_closed() -> None:
    """Both of its greenlets end by themselves."""
    linked = Linked(Link(BROKEN))
    linked.watch.start()
    greenlet = linked.watch._greenlet
    linked.watch.start()
    assert linked.watch._greenlet is greenlet
    assert greenlet is not None
    greenlet.join(DEADLINE_S)
    gevent.idle(-2)
    assert len(linked.opened) == 1
