"""Replies of something that is like Redis but is not, and connections while the interpreter ends: errors of our tree."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from headgate import BusRefused, BusUnavailable, Clients, Inbox, Publisher, Subscriber
from headgate.redis.client import call_many, open_client
from headgate.redis.faults import CURES
from tests.support.answering import answering_each

# Texts, numbers, nothing, and lists of another shape.
REPLIES = [b"+OK\r\n", b"$2\r\n\xff\xfe\r\n", b":-5\r\n", b"$-1\r\n", b"*1\r\n:1\r\n", b"*2\r\n*1\r\n+x\r\n$3\r\nabc\r\n"]
CALLS: dict[str, Callable[[str], object]] = {
    "publish": lambda url: Publisher(url).publish("a", 1),
    "publish_many": lambda url: Publisher(url).publish_many([("a", 1), ("b", 2)]),
    "durable": lambda url: Publisher(url).publish("a", 1, durable="all"),
    "position": lambda url: Publisher(url).position(),
    "inbox": lambda url: Inbox(Publisher(url)).page("ana"),
    "revoke": lambda url: Publisher(url).revoke(user="ana"),
    "regrant": lambda url: Clients(url, within_s=0.1).regrant("ana", subscribe=["a"]),
    "subscriber": lambda url: next(iter(Subscriber(url, "a"))),
}
AT_EXIT = """
import sys
from headgate import HeadgateError, Publisher

class Job:
    def __init__(self):
        self.publisher, self.me = Publisher("redis://127.0.0.1:1"), self
    def __del__(self):
        try:
            self.publisher.publish("a", 1)
        except HeadgateError as error:
            print(error.message)

job = Job()
"""


@pytest.fixture(scope="module", params=REPLIES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with answering_each(request.param) as url:
        yield url


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_reply_of_another_form_is_a_refusal_that_names_the_server(url: str, call: Callable[[str], object]) -> None:
    """TypeError and the like came from inside."""
    with pytest.raises(BusRefused, match=r"127\.0\.0\.1:\d+.* Redis|did not answer for"):
        call(url)


@pytest.mark.parametrize(
    "call",
    [
        lambda url: Publisher(url).presence("a"),
        lambda url: Publisher(url).publish_many([("a", 1), ("b", 2)]),
        lambda url: Clients(url, within_s=0.1).page(),
        lambda url: Clients(url, within_s=0.1).regrant("ana", subscribe=["a"]),
    ],
)
def test_a_refusal_names_the_server(call: Callable[[str], object]) -> None:
    """Also where it is the reply to one of several commands: a service may use more than one Redis."""
    with answering_each(b"-NOPERM no\r\n") as url, pytest.raises(BusRefused, match=r": 127\.0\.0\.1:\d+: no permission"):
        call(url)


@pytest.mark.parametrize("call", ["publish", "publish_many"])
def test_a_refusal_after_an_attempt_without_an_answer_claims_nothing(call: str) -> None:
    """The first attempt may have published the event. Since then the memory is full, or the password another one."""
    refusal = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    with (
        answering_each(b":99\r\n", lost=b"headgate_append", then=refusal) as url,
        pytest.raises(BusUnavailable, match=r"out of memory.*; an earlier attempt may have succeeded") as told,
    ):
        CALLS[call](url)
    assert told.value.__notes__ == [CURES["OOM"]]


def test_all_replicas_are_not_counted_at_a_replica() -> None:
    """The former primary of a Cluster has none left, so that one replica of the new primary would do for the receipt."""
    info = b"role:slave\r\nmaster_replid:abc\r\n"
    reply = b"$%d\r\n%b\r\n" % (len(info), info)
    with answering_each(reply) as url, pytest.raises(BusUnavailable):
        CALLS["durable"](url)


def test_each_refusal_of_a_round_trip_names_the_remedy() -> None:
    """As that of a single command, so that `headgate revoke` at a full Redis says what to do."""
    with (
        answering_each(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n") as url,
        closing(open_client(url)) as client,
    ):
        assert [refused.__notes__ for refused in call_many(client, [("PING",), ("PING",)])] == [[CURES["OOM"]]] * 2


def test_a_publish_while_the_interpreter_ends_raises_an_error_of_ours() -> None:
    """In `__del__`, redis-py can import nothing any more, and so cannot connect."""
    ended = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True)
    assert "127.0.0.1:1: sys.meta_path is None" in ended.stdout
    assert not ended.stderr


@pytest.mark.parametrize("url", [0, False, [], b"", 7])
@pytest.mark.parametrize("of", [Publisher, lambda url: Subscriber(url, "#"), Clients])
def test_a_url_that_is_no_text_is_refused(of: Callable[[Any], object], url: Any) -> None:
    """It is a mistake, and does not stand for the Redis of the environment."""
    with pytest.raises(BusRefused, match="URL"):
        of(url)
