"""Live events as they pass through Redis, on a link that a test plays."""

import pytest

from headgate.diagnosis import live_events
from headgate.diagnosis.live_events import ANSWER_S, LiveEvents
from headgate.errors import BusUnavailable
from headgate.redis import subscriber_link
from headgate.redis.connections import Command


class ScriptedLink:
    """Sends these replies, one read after the other, and then ends. Keeps what it is given."""

    def __init__(self, *replies: list[list[bytes]]) -> None:
        self._replies = list(replies)
        self.sent: list[Command] = []
        self.timeouts: list[float | None] = []

    def connect(self) -> None:
        """There is nothing to connect to."""

    def settimeout(self, timeout_s: float | None) -> None:
        self.timeouts.append(timeout_s)

    def send(self, *commands: Command) -> None:
        self.sent += commands

    def read(self) -> list[list[bytes]]:
        if not self._replies:
            raise BusUnavailable("it has ended")
        return self._replies.pop(0)

    def read_ready(self, within_s: float) -> list[list[bytes]]:
        return self.read() if self._replies else []


def live(
    monkeypatch: pytest.MonkeyPatch, *replies: list[list[bytes]], url: str = "redis://h", pattern: str = "orders.*"
) -> tuple[LiveEvents, ScriptedLink]:
    link = ScriptedLink(*replies)
    monkeypatch.setattr(subscriber_link, "SubscriberLink", lambda url, *, key: link)
    monkeypatch.setattr(live_events, "check_primary", lambda client: None)
    return LiveEvents(url, "n", pattern), link


def message(topic: bytes) -> list[bytes]:
    return [b"pmessage", b"hg:{n}:orders.*", b"hg:{n}:" + topic, b"1"]


SUBSCRIBED = [b"psubscribe", b"hg:{n}:orders.*", b"1"]


def test_what_came_with_the_answer_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the link, whatever it is; other replies are passed over."""
    found, link = live(
        monkeypatch, [SUBSCRIBED, message(b"orders.1")], [[b"pong", b""], message(b"orders.2")], [message(b"not a topic")]
    )
    found.listen(7.0)
    read = found.read()
    assert [next(read) for _ in range(3)] == [[(topic, b"1")] for topic in ("orders.1", "orders.2", "not a topic")]
    assert (link.timeouts, link.sent[1:]) == ([7.0, ANSWER_S], [])
    with pytest.raises(BusUnavailable, match="it has ended"):
        next(read)
    assert link.sent[1:] == [("PING",)]


def test_an_event_of_a_user_comes_with_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the channel of the user; and, while an older gateway listens, on that of the topic too."""
    own, users = b"hg:{n}:users.7.mail", b"hg:{n}/users.7"
    subscribed = [[b"subscribe", own, b"1"], [b"subscribe", users, b"2"]]
    logged, plain = [b"message", users, b"users.7.mail\nhg1 e 1 1 a\n1"], [b"message", own, b"1"]
    found, _ = live(monkeypatch, subscribed, [logged, plain, plain], pattern="users.7.mail")
    found.listen()
    assert next(filter(None, found.read())) == [("users.7.mail", text) for text in (b"hg1 e 1 1 a\n1", b"1", b"1")]


def test_a_slot_that_moves_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a Cluster messages come on one channel, with the topic before each."""
    feed = [[b"ssubscribe", b"hg:{n}/feed", b"1"], [b"smessage", b"hg:{n}/feed", b"orders.7\n1"]]
    found, link = live(monkeypatch, [SUBSCRIBED, *feed], [[b"sunsubscribe", b"hg:{n}/feed", b"0"]], url="redis+cluster://h")
    found.listen()
    assert link.sent == [(b"PSUBSCRIBE", b"hg:{n}:orders.*"), ("SSUBSCRIBE", "hg:{n}/feed")]
    read = filter(None, found.read())
    assert next(read) == [("orders.7", b"1")]
    with pytest.raises(BusUnavailable, match="has moved to another node of the Cluster"):
        next(read)
