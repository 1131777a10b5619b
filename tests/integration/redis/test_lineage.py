"""Epochs in a real Redis: which process writes which, and that an epoch and an offset name one event for ever."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.redis import keys
from headgate.redis.client import Client, at, call, open_client
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.redis.lineage import Lineage
from headgate.redis.log import EventLog
from tests.support.redis_server import write_at_once

NAMESPACE = "orders"
KEY, HEAD, EPOCHS = keys.log_key(NAMESPACE), keys.head_key(NAMESPACE), keys.epochs_key(NAMESPACE)
RETENTION = (1000, 600)


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of an empty Redis that has the library."""
    ensure_loaded(redis_client)
    return redis_client


def publish(client: Client, *more: str) -> tuple[str, int]:
    epoch, offset, _ = call(client, "FCALL", "headgate_publish", 1, KEY, "a", "1", *more)
    return epoch.decode(), offset


def forget(client: Client) -> None:
    """Make the process forget what it has written, as another process has never known it."""
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)


def log_of(client: Client) -> EventLog:
    return EventLog(NAMESPACE, client, 65536)


def lineage_of(client: Client) -> Lineage:
    found = log_of(client).head("0" * 16).lineage
    assert found is not None
    return found


def copy(client: Client) -> list[tuple[str, Any]]:
    return [(key, call(client, "DUMP", key)) for key in (KEY, HEAD, EPOCHS)]


def put_back(client: Client, copied: list[tuple[str, Any]]) -> None:
    for key, dump in copied:
        call(client, "RESTORE", key, 0, dump, "REPLACE")


def test_a_process_goes_on_in_the_epoch_that_it_began(client: Client) -> None:
    """Neither publishes nor gateways that start begin another one."""
    first, _ = publish(client)

    head = log_of(client).configure(*RETENTION)

    assert (head.epoch, head.offset) == (first, 1)
    assert publish(client) == (first, 2)


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


@pytest.mark.parametrize("by", ["publish", "configure"])
def test_a_head_is_read_before_another_process_has_begun_its_epoch(client: Client, by: str) -> None:
    """The end of an epoch that is still the head's is the head."""
    old, _ = publish(client)
    forget(client)

    assert lineage_of(client).end_of(old, 1) == 1
    assert log_of(client).head(old).lineage is None


def test_data_that_was_put_back_is_never_continued_under_the_same_epoch(client: Client) -> None:
    """The same process, with an older copy of the log: the offsets come again, the epoch does not."""
    old, _ = publish(client)
    copied = copy(client)
    lost = [publish(client) for _ in range(3)]
    put_back(client, copied)

    again = [publish(client) for _ in range(5)]

    assert not {*lost} & {*again}
    assert [offset for _, offset in again] == [2, 3, 4, 5, 6]
    assert lineage_of(client).end_of(old, 6) == 1


def test_data_that_was_put_back_twice_over_is_never_continued(client: Client) -> None:
    """Each time that a newer or an older copy comes, all positions are new ones."""
    seen = [publish(client)]
    copied = [copy(client)]
    for turn in range(12):
        put_back(client, copied[turn * 5 % len(copied)])
        seen += [publish(client) for _ in range(turn % 3 + 1)]
        copied.append(copy(client))

    assert len(seen) == len(set(seen))


def test_the_databases_of_one_server_do_not_end_each_others_epochs(client: Client) -> None:
    """Two logs of one name, as two applications have them in two databases, are written in turn: one epoch each."""
    copies: list[list[tuple[str, Any]]] = []
    epochs: list[set[str]] = [set(), set()]
    for turn in range(10):
        if turn > 1:
            put_back(client, copies[turn % 2])
        else:
            call(client, "DEL", KEY, HEAD, EPOCHS)
        epochs[turn % 2].add(publish(client)[0])
        copies[turn % 2 : turn % 2 + 1] = [copy(client)]

    assert [len(found) for found in epochs] == [1, 1]


def test_an_id_is_remembered_across_epochs(client: Client) -> None:
    """A publisher that tries again after a restart gets the receipt of its event, which is still in the log."""
    receipt = publish(client, "same")
    forget(client)
    publish(client)

    assert publish(client, "same") == receipt


def test_an_id_is_lost_with_its_event(client: Client) -> None:
    """A publisher that tries again after the end of the log was lost publishes the event again."""
    publish(client)
    copied = copy(client)
    old = publish(client, "same")
    id_key = next(key for key in call(client, "KEYS", "*") if b":id:" in key)
    call(client, "DEL", id_key)
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
    """The library that brought epochs finds a head without a number: all that is there counts as one epoch."""
    old, _ = publish(client)
    publish(client)
    call(client, "HDEL", HEAD, "nth")
    call(client, "DEL", EPOCHS)
    forget(client)

    publish(client)

    assert lineage_of(client).end_of(old, 3) == 2


def test_a_log_that_an_older_library_has_begun_has_no_ancestors(client: Client) -> None:
    """It knows nothing of the lineage, so that of the log before is left behind: no position of that is on the line."""
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
    """The lineage is bounded: after many restarts the oldest epochs are unknown, the newest are not."""
    epochs = []
    for _ in range(270):
        forget(client)
        epochs.append(publish(client)[0])

    lineage = lineage_of(client)

    assert call(client, "HLEN", EPOCHS) <= 257
    assert lineage.end_of(epochs[0], 270) is None
    assert lineage.end_of(epochs[-2], 270) == 269


def test_a_refused_publish_begins_no_epoch(client: Client) -> None:
    """An event that is not accepted leaves the lineage as it is."""
    old, _ = publish(client)
    forget(client)
    call(client, "ACL", "SETUSER", "half", "on", "nopass", "~*", "&*", "+@all", "-xadd")
    limited = open_client(_as_user(client, "half"), timeout_s=30)
    try:
        with pytest.raises(Exception, match="may not"):
            publish(limited)
    finally:
        limited.close()

    assert call(client, "HGET", HEAD, "epoch").decode() == old
    assert call(client, "HGETALL", EPOCHS) == {old.encode(): b"1 0"}


def test_a_killed_server_that_has_lost_its_end_never_repeats_a_position(
    start_redis: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
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


def _as_user(client: Client, user: str) -> str:
    path = at(client, "").connection_pool.connection_kwargs["path"]
    return f"unix://{user}:none@{path}"


def test_a_page_of_a_server_that_lacks_known_events_is_refused(client: Client) -> None:
    """A replica that is behind has the epoch, and says nothing of the events that it lacks: the range would seem to end there."""
    epoch, _ = publish(client)
    known = [(epoch, 2)]
    log = EventLog(NAMESPACE, client, 65536, lambda: known[-1])

    with pytest.raises(BusUnavailable):
        log.page(0, 2, epoch=epoch)

    publish(client)
    assert [entry.offset for entry in log.page(0, 2, epoch=epoch)] == [1, 2]
    known.append(("another", 9))
    assert [entry.offset for entry in log.page(0, 2, epoch=epoch)] == [1, 2]
