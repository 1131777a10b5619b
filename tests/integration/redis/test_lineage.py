"""Epochs in a real Redis: the writer of each, and that an epoch and an offset name one event for ever."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.redis import keys
from headgate.redis.bounded import NewestReceipts
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.redis.lineage import Lineage
from headgate.redis.log import EventLog
from tests.support.redis_server import copy_keys, put_back, write_at_once

NAMESPACE = "orders"
KEY, HEAD, EPOCHS = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE), keys.epochs_key(NAMESPACE)
RETENTION = (1000, 600)
Report = tuple[str | int, ...]


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of an empty Redis with the library."""
    ensure_loaded(redis_client)
    return redis_client


def publish(client: Client, *more: str) -> tuple[str, int]:
    epoch, offset, _ = call(client, "FCALL", "headgate_publish", 1, KEY, "a", "1", *more)
    return epoch.decode(), offset


def append(client: Client, key: str) -> tuple[str, int]:
    epoch, offset, _ = call(client, "FCALL", "headgate_append", 1, key, "a", "1").split()
    return epoch.decode(), int(offset)


def forget(client: Client) -> None:
    """Make the process forget its writes, like another process."""
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)


def log_of(client: Client) -> EventLog:
    return EventLog(NAMESPACE, client, 65536)


def lineage_of(client: Client) -> Lineage:
    found = log_of(client).head("0" * 16).lineage
    assert found is not None
    return found


@pytest.mark.parametrize("by", ["publish", "configure"])
def test_another_process_begins_another_epoch_of_the_same_log(client: Client, by: str) -> None:
    """Offsets go on, no entry goes, and the lineage says where the old epoch ends."""
    old, _ = publish(client)
    publish(client)
    forget(client)

    if by == "publish":
        new, offset = publish(client)
        assert offset == 3
    else:
        new = log_of(client).configure(*RETENTION).epoch
        assert publish(client) == (new, 3)

    assert new != old
    assert call(client, "XLEN", KEY) == 3
    assert lineage_of(client).end_of(old, 3) == 2
    assert lineage_of(client).end_of(new, 3) == 3


def test_a_head_is_read_before_another_process_has_begun_its_epoch(client: Client) -> None:
    """The end of the head's epoch is the head."""
    old, _ = publish(client)
    forget(client)

    assert lineage_of(client).end_of(old, 1) == 1
    assert log_of(client).head(old).lineage is None


HEAD_QUESTION: Report = ("FCALL_RO", "headgate_head", 1, KEY)
VERSION_QUESTION: Report = ("FCALL_RO", "headgate_version", 0, "server")
EITHER_QUESTION = pytest.mark.parametrize("question", [HEAD_QUESTION, VERSION_QUESTION], ids=["head", "version"])


@EITHER_QUESTION
@pytest.mark.parametrize("then", ["publish", "usual append", "batch", "configure"])
def test_an_offset_that_the_process_does_not_remember_ends_its_epoch(client: Client, question: Report, then: str) -> None:
    """Its whole machine was put back. Data and memory agree, and a client has had an event that is in neither."""
    log_of(client).configure(*RETENTION)
    old, offset = publish(client, "an-id")

    call(client, *question, old, offset + 5)

    if then == "configure":
        log_of(client).configure(*RETENTION)
    elif then == "batch":
        call(client, "FCALL", "headgate_append_batch", 1, KEY, "a", "1", "other", "")
    else:
        publish(client, *(["other"] if then == "usual append" else []))
    lineage = lineage_of(client)
    assert lineage.epoch != old
    assert lineage.end_of(old, 9) == offset
    assert publish(client, "an-id") == (old, offset)  # the process knows its ids still
    call(client, *question, old, offset + 5)
    assert lineage_of(client).epoch == lineage.epoch


@EITHER_QUESTION
@pytest.mark.parametrize("reported", ["0", "1", "2", "-5", "", "3.5", "3e5", "0x9", "nan", str(2**53), "9" * 400, "\0", None])
def test_what_proves_nothing_ends_no_epoch(client: Client, question: Report, reported: str | None) -> None:
    """An offset that the process remembers, and an invalid offset."""
    publish(client)
    old, _ = publish(client)

    call(client, *question, old, *([] if reported is None else [reported]))
    call(client, *question, "f" * 16, 9)
    call(client, *question, "", 9)

    assert publish(client) == (old, 3)


def test_one_question_reports_several_logs_and_ends_only_those_that_lack_something(client: Client) -> None:
    """By their epochs, which distinguish namespaces and databases."""
    logs = [keys.log_key(name) for name in ("orders", "bills", "stock")]
    before = [append(client, log) for log in logs]

    words = [word for (epoch, offset), lacking in zip(before, (0, 1, 5), strict=True) for word in (epoch, offset + lacking)]
    call(client, *VERSION_QUESTION, *words)

    after = [append(client, log) for log in logs]
    assert [offset for _, offset in after] == [2, 2, 2]
    assert [epoch == old for (epoch, _), (old, _) in zip(after, before, strict=True)] == [True, False, False]


def test_a_caller_that_reports_nonsense_ends_few_epochs(client: Client) -> None:
    """128 at once, of each log, and then one in three seconds, so half of the lineage stays for resumes."""
    epochs = set()
    for _ in range(200):
        epoch, offset = publish(client)
        epochs.add(epoch)
        call(client, *HEAD_QUESTION, epoch, offset + 10**6)
    other = keys.log_key("bills")
    epoch, offset = append(client, other)
    call(client, *VERSION_QUESTION, epoch, offset + 1)

    assert 129 <= len(epochs) <= 140  # some more on a machine that stood still
    assert append(client, other)[0] != epoch


@EITHER_QUESTION
@pytest.mark.parametrize("right", ["hset", "time"])
def test_a_user_who_may_not_write_the_head_ends_no_epoch(
    client: Client, as_user: Callable[..., Client], question: Report, right: str
) -> None:
    """As one of a consumer, or of a monitor, with the usual answer."""
    old, offset = publish(client)
    log_of(client).head()  # the token is made
    call(as_user("+@all", f"-{right}"), *question, old, offset + 1)

    assert publish(client) == (old, offset + 1)


@EITHER_QUESTION
def test_a_primary_that_was_made_a_replica_answers_as_usual(client: Client, question: Report) -> None:
    """It takes no writes, and needs none. When it is a primary again, it writes no more of that epoch."""
    old, offset = publish(client)
    try:
        call(client, "REPLICAOF", "127.0.0.1", "1")
        call(client, *question, old, offset + 1)
    finally:
        call(client, "REPLICAOF", "NO", "ONE")

    assert publish(client)[0] != old
    assert lineage_of(client).end_of(old, 9) == offset


def test_a_new_connection_reports_the_newest_receipts_before_its_first_command(client: Client, redis_url: str) -> None:
    """So that no event can take the place of one that its publisher knows of."""
    old, offset = publish(client)
    newest = NewestReceipts()
    newest.note(old, offset)
    with open_client(redis_url, newest=newest) as publisher:
        assert publish(publisher) == (old, offset + 1)

    newest.note(old, offset + 4)

    with open_client(redis_url, newest=newest) as publisher:
        new, again = publish(publisher)
    assert (new == old, again) == (False, offset + 2)
    assert lineage_of(client).end_of(old, 9) == offset + 1


@pytest.mark.parametrize("right", ["-fcall_ro", "-hset"])
def test_a_user_who_may_not_report_is_refused_nothing_else(
    client: Client, as_user: Callable[..., Client], limited_url: str, right: str
) -> None:
    """Each refusal is a line in the log of Redis (ACL LOG), so it is not asked again with each connection."""
    old, offset = publish(client)
    newest = NewestReceipts()
    newest.note(old, offset + 4)
    as_user("+@all", right)
    call(client, "ACL", "LOG", "RESET")

    for _ in range(3):
        with open_client(limited_url, newest=newest) as limited:
            assert call(limited, "PING")

    assert sum(entry[b"count"] for entry in map(pairs, call(client, "ACL", "LOG"))) == (right == "-fcall_ro")
    assert publish(client) == (old, offset + 1)


def test_a_server_without_functions_takes_the_connection(client: Client, redis_url: str) -> None:
    """Like an empty one after its return."""
    newest = NewestReceipts()
    newest.note("e" * 16, 4)
    call(client, "FUNCTION", "FLUSH")

    with open_client(redis_url, newest=newest) as publisher:
        ensure_loaded(publisher)
        assert publish(publisher)[1] == 1


def test_the_databases_of_one_server_do_not_end_each_others_epochs(client: Client) -> None:
    """Two logs of one name, as two applications have them in two databases, are written in turn, with one epoch each."""
    copies: list[dict[bytes, bytes]] = []
    epochs: list[set[str]] = [set(), set()]
    for turn in range(10):
        if turn > 1:
            put_back(client, copies[turn % 2])
        else:
            call(client, "DEL", KEY, HEAD, EPOCHS)
        epochs[turn % 2].add(publish(client)[0])
        copies[turn % 2 : turn % 2 + 1] = [copy_keys(client)]

    assert [len(found) for found in epochs] == [1, 1]


def test_an_id_is_lost_with_its_event(client: Client) -> None:
    """A publisher that tries again after the end of the log was lost publishes the event again."""
    publish(client)
    copied = copy_keys(client)
    old = publish(client, "same")
    put_back(client, copied)

    epoch, offset = publish(client, "same")

    assert offset == old[1]
    assert epoch != old[0]


def test_a_new_log_has_no_ancestors(client: Client) -> None:
    """When the log itself is gone, no position of the old one is on the line."""
    old, _ = publish(client)
    forget(client)
    publish(client)
    call(client, "FLUSHALL")

    new, offset = publish(client)

    assert offset == 1
    assert lineage_of(client).end_of(old, 1) is None
    assert call(client, "HGETALL", EPOCHS) == {new.encode(): b"1 0"}


def test_a_log_of_an_older_library_is_the_first_epoch(client: Client) -> None:
    """The library that brought epochs finds a head without a number, and all earlier events count as one epoch."""
    old, _ = publish(client)
    publish(client)
    call(client, "HDEL", HEAD, "nth")
    call(client, "DEL", EPOCHS)
    forget(client)

    publish(client)

    assert lineage_of(client).end_of(old, 3) == 2


def test_a_log_that_an_older_library_has_begun_has_no_ancestors(client: Client) -> None:
    """It knows nothing of the lineage, so that of the log before is dropped, and no position of that is on the line."""
    old, _ = publish(client)
    forget(client)
    newer, _ = publish(client)
    call(client, "DEL", KEY)
    call(client, "HSET", HEAD, "epoch", "0123456789abcdef", "offset", 7)
    forget(client)

    publish(client)

    lineage = lineage_of(client)
    assert [lineage.end_of(epoch, 8) for epoch in (old, newer, "0123456789abcdef")] == [None, None, 7]


def test_old_epochs_are_forgotten_in_the_end(client: Client) -> None:
    """The lineage is bounded. After many restarts the oldest epochs are unknown, the newest are not."""
    epochs = []
    for _ in range(270):
        forget(client)
        epochs.append(publish(client)[0])

    lineage = lineage_of(client)

    assert call(client, "HLEN", EPOCHS) <= 257
    assert lineage.end_of(epochs[0], 270) is None
    assert lineage.end_of(epochs[-2], 270) == 269


def test_a_killed_server_never_repeats_a_position(start_redis: Callable[..., EmbeddedRedis], tmp_path: Path) -> None:
    """The data of a moment ago come back, as after a machine's crash; every receipt is another position."""
    receipts: list[tuple[str, int]] = []
    kept: Path | None = None
    for turn in range(4):
        folder = tmp_path / f"turn{turn}"
        if kept is not None:
            shutil.copytree(kept, folder)
        with start_private_redis(folder) as server:
            client = open_client(server.url, timeout_s=30)
            ensure_loaded(client)
            write_at_once(client)
            receipts += [publish(client) for _ in range(5)]
            kept = tmp_path / f"kept{turn}"
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.sock", "*.pid"))
            receipts += [publish(client) for _ in range(5)]
            client.close()

    assert len(receipts) == len(set(receipts)) == 40
    assert [offset for _, offset in receipts[10:15]] == [6, 7, 8, 9, 10]


def pairs(reply: Any) -> dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def test_a_page_of_a_server_that_lacks_known_events_is_refused(client: Client) -> None:
    """A replica that lags has the epoch, and says nothing of its missing events, so the range would seem to end there."""
    epoch, _ = publish(client)
    known = [(epoch, 2)]
    log = EventLog(NAMESPACE, client, 65536, lambda: known[-1])

    with pytest.raises(BusUnavailable):
        log.page(0, 2, epoch=epoch)

    publish(client)
    assert [entry.offset for entry in log.page(0, 2, epoch=epoch)] == [1, 2]
    known.append(("another", 9))
    assert [entry.offset for entry in log.page(0, 2, epoch=epoch)] == [1, 2]
