"""The trusted entry of the function library in a real Redis: the strict one's step without its look at the payload."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.errors import BusRefused, InvalidEvent, NotSerializable
from headgate.events.event import decode_message
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.redis.log import read_entry
from tests.support.redis_server import PUBLISHER_RIGHTS, Listen

NAMESPACE = "orders"
KEY, HEAD = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE)


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of a Redis with the library, and no log."""
    ensure_loaded(redis_client)
    call(redis_client, "HSET", keys.head_key(NAMESPACE), "database", 0)  # as every publisher and gateway says
    return redis_client


def append(client: Client, topic: str | bytes = "a.b", payload: str | bytes = "1", *more: str) -> tuple[str, int, int]:
    epoch, offset, duplicate = call(client, "FCALL", "headgate_append", 1, KEY, topic, payload, *more).split()
    return epoch.decode(), int(offset), int(duplicate)


def publish(client: Client, topic: str | bytes = "a.b", payload: str | bytes = "1", *more: str) -> tuple[str, int, int]:
    epoch, offset, duplicate = call(client, "FCALL", "headgate_publish", 1, KEY, topic, payload, *more)
    return epoch.decode(), offset, duplicate


def entries(client: Client) -> list[tuple[int, dict[bytes, bytes]]]:
    return [(int(entry_id.partition(b"-")[0]), fields) for entry_id, fields in call(client, "XRANGE", KEY, "-", "+")]


def forget(client: Client) -> None:
    """Make the process forget its writes, like another process."""
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)


def test_an_event_is_heard_on_the_channel_of_its_topic_or_of_its_user(client: Client, listen: Listen) -> None:
    """The message is the one that gateways read; the user's channel has the topic in front."""
    topics = ["orders.mail", "users.ada.mail"]
    link = listen(*(keys.channel(NAMESPACE, topic) for topic in topics), keys.user_channel(NAMESPACE, "ada"))
    heard: list[Any] = []
    receipts = [append(client, topic, b'{"a":"\xc3\xa9"}', "x:1") for topic in topics]
    while len(heard) < 2:
        heard += link.read()

    messages = [heard[0][2], heard[1][2].removeprefix(b"users.ada.mail\n")]
    assert heard[1][1].decode() == keys.user_channel(NAMESPACE, "ada")
    for topic, message, (epoch, offset, _) in zip(topics, messages, receipts, strict=True):
        event = decode_message(topic, message, 65536, 0)
        assert (event.data, event.id, event.epoch, event.offset) == (b'{"a":"\xc3\xa9"}', "x:1", epoch, offset)


@pytest.mark.parametrize(
    "payload", [b"", b"nope", b'{"a":', b'"\xff"', b"1\n2", b"hg1 0 1 2 3\n4", b"[" * 70 + b"]" * 70], ids=ascii
)
def test_a_payload_that_is_no_json_is_set_aside_by_every_reader(client: Client, listen: Listen, payload: bytes) -> None:
    """It is one entry at one offset. Those who read the log, and those who listen, find an error there and go on after it."""
    link = listen(keys.channel(NAMESPACE, "a.b"))

    assert [append(client, "a.b", text)[1] for text in (b"1", payload, b"3")] == [1, 2, 3]
    messages: list[bytes] = []
    while len(messages) < 3:
        messages += [message for _, _, message in link.read()]

    found = [read_entry(offset, fields, 65536) for offset, fields in entries(client)]
    assert [(entry.offset, entry.event is None) for entry in found] == [(1, False), (2, True), (3, False)]
    assert isinstance(found[1].error, NotSerializable)
    with pytest.raises(NotSerializable):
        decode_message("a.b", messages[1], 65536, 0)
    assert decode_message("a.b", messages[2], 65536, 0).offset == 3


# Rights ------------------------------------------------------------------------------------------------------------------


def test_the_two_entries_are_allowed_apart(client: Client, as_user: Callable[..., Client]) -> None:
    """A right on FCALL may name the function (Redis 7.0), and this user may publish only checked events."""
    rights = [right for right in PUBLISHER_RIGHTS if right != "+fcall"]
    limited = as_user(*rights, "+fcall|headgate_publish")
    assert publish(limited, "a", "1", "id")[1:] == (1, 0)
    for function in ("headgate_append", "headgate_configure", "headgate_trim"):
        with pytest.raises(BusRefused, match="no permission"):
            call(limited, "FCALL", function, 1, KEY, "a", "rubbish")

    trusted = as_user(*rights, "+fcall|headgate_append")
    assert append(trusted, "a", "1", "id")[1:] == (1, 1)
    with pytest.raises(BusRefused, match="no permission"):
        publish(trusted)
    assert len(entries(client)) == 1


@pytest.mark.parametrize("missing", ["+xinfo", "+unlink", "+xrange", "+xadd"])
def test_a_right_for_a_new_epoch_is_missed_before_it_begins(client: Client, as_user: Callable[..., Client], missing: str) -> None:
    """Most events need only the last. The one that would begin an epoch is refused, and has written nothing."""
    first = append(client)
    limited = as_user(*[right for right in PUBLISHER_RIGHTS if right != missing])
    assert missing == "+xadd" or append(limited)[0] == first[0]
    forget(client)
    before = call(client, "HGETALL", HEAD), call(client, "HGETALL", keys.epochs_key(NAMESPACE))

    with pytest.raises(BusRefused):
        append(limited)

    assert (call(client, "HGETALL", HEAD), call(client, "HGETALL", keys.epochs_key(NAMESPACE))) == before


def test_a_right_to_read_the_trimmed_is_missed_before_the_id_is_kept(client: Client, as_user: Callable[..., Client]) -> None:
    """Once the log is full by bytes, entries are read. A user without that right is refused, and the id is still free."""
    call(client, "FCALL", "headgate_configure", 1, KEY, 100, 600_000, 2**20, 2**20)
    large = '"' + "x" * 600_000 + '"'
    append(client, "a", large, "first")
    limited = as_user(*[right for right in PUBLISHER_RIGHTS if right != "+xrange"])
    assert append(limited, "a", "1", "small")[1:] == (2, 0)

    with pytest.raises(BusRefused):
        append(limited, "a", large, "an-id")

    assert append(client, "a", large, "an-id")[1:] == (3, 0)
    assert [offset for offset, _ in entries(client)] == [2, 3]


def test_a_user_who_may_not_append_ends_no_log(client: Client, as_user: Callable[..., Client]) -> None:
    """Where the stream is ahead of its head another log must begin; without the right to append a user leaves the old one
    alone."""
    append(client, "a", "1", "first")
    call(client, "XADD", KEY, "7-0", "topic", "by hand")
    limited = as_user(*[right for right in PUBLISHER_RIGHTS if right != "+xadd"])

    for known_id in ((), ("an-id",)):
        with pytest.raises(BusRefused):
            append(limited, "a", "2", *known_id)

    assert [offset for offset, _ in entries(client)] == [1, 7]


def test_without_the_right_to_claim_an_id_ids_count_as_well(client: Client, as_user: Callable[..., Client]) -> None:
    """Users made for an older library have no right to HSETNX; the steps are then taken one by one."""
    limited = as_user(*[right for right in PUBLISHER_RIGHTS if right != "+hsetnx"])
    first = append(client, "a", "1", "zero")[0]

    assert [append(limited, "a", "1", event_id)[1:] for event_id in ("one", "one", "zero", "two")] == [
        (2, 0),
        (2, 1),
        (1, 1),
        (3, 0),
    ]
    assert append(client, "a", "1", "two") == (first, 3, 1)


# Ids, epochs and the head --------------------------------------------------------------------------------------------------


def test_a_trim_and_the_event_are_one_command(client: Client) -> None:
    """A full log costs no second command for each event."""
    call(client, "FCALL", "headgate_configure", 1, KEY, 10, 600_000, 1000)
    call(client, "CONFIG", "RESETSTAT")
    for _ in range(50):
        append(client)

    assert [offset for offset, _ in entries(client)] == list(range(41, 51))
    assert "cmdstat_xtrim" not in call(client, "INFO", "commandstats")


PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
FURTHER = {
    f"ana {PARENT} Ana%20B": {b"traceparent": PARENT.encode(), b"publisher": b"Ana%20B"},
    f"ana {PARENT}": {b"traceparent": PARENT.encode()},
    f"ana {PARENT} ": {b"traceparent": PARENT.encode()},
    "ana - Ana": {b"publisher": b"Ana"},
    "ana  Ana": {b"publisher": b"Ana"},
    "ana": {},
    f"ana {PARENT.upper()} {'x' * 129}": {},
    f"ana {PARENT}0 \N{LATIN SMALL LETTER E WITH ACUTE}": {},
    "ana - \0": {},
    "ana - ": {},
}


@pytest.mark.parametrize("by", FURTHER, ids=ascii)
def test_the_trace_and_the_publisher_are_further_fields(client: Client, by: str) -> None:
    """By each entry to the log. They count for no id, and a malformed one is left out, but its event is not refused."""
    assert append(client, "a.b", "1", "x", by)[1:] == (1, 0)
    assert publish(client, "a.b", "2", "x", "ana")[1:] == (1, 1)
    assert publish(client, "a.b", "2", "y", by)[1:] == (2, 0)
    batch = ("a.b", "1", "x", by, "a.b", "3", "z", by, "a.b", "4", "", f" {PARENT}")
    assert call(client, "FCALL", "headgate_append_batch", 1, KEY, *batch).split(b"\n")[0].endswith(b" 1 0")
    found = entries(client)
    plain = {b"topic", b"id", b"time", b"data", b"sum", b"clock"}
    more = [{name: value for name, value in fields.items() if name not in plain} for _, fields in found]
    assert more == [FURTHER[by]] * 3 + [{b"traceparent": PARENT.encode()}]
    assert all(read_entry(offset, fields, 65536).event for offset, fields in found)


@pytest.mark.parametrize("by", ["ana b - c d", "a/b - Ana", "\t", "a" * 65 + " - Ana"], ids=ascii)
def test_a_malformed_name_is_refused_with_all_that_is_behind_it(client: Client, by: str) -> None:
    """It decides about ids."""
    with pytest.raises(InvalidEvent):
        append(client, "a.b", "1", "x", by)
    assert entries(client) == []
