"""Receipts with the reach of an event, and the fate of events when Redis loses the end of its log."""

from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import pytest

from headgate import BusRefused, BusUnavailable, InvalidRequest, NotDurable, Publisher
from headgate.redis.client import Client, call, drop_idle, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import SOURCE
from headgate.redis.keys import epochs_key, head_key, log_key
from headgate.redis.lineage import Fate
from headgate.services import log_writer
from headgate.services.publisher import PublishManyError
from tests.support.held_port import HeldPort
from tests.support.redis_server import wait_until

NAMESPACE = "notifications"
# Of a call that waits in vain for replicas: it takes as long, and on a busy machine the publish before has time too.
BUDGET_S = 3


@pytest.fixture
def primary(start_redis: Callable[..., EmbeddedRedis]) -> EmbeddedRedis:
    return start_redis("primary")


@pytest.fixture
def replica(primary: EmbeddedRedis, start_redis: Callable[..., EmbeddedRedis]) -> Iterator[Client]:
    """A client of a replica with all data of the primary."""
    on_primary = open_client(primary.url, timeout_s=30)
    held = HeldPort()
    call(on_primary, "CONFIG", "SET", "port", held.port, "repl-diskless-sync-delay", 0)
    client = open_client(start_redis("replica").url, timeout_s=30)
    call(client, "REPLICAOF", "127.0.0.1", held.port)
    wait_until(lambda: call(client, "INFO", "replication")["master_link_status"] == "up", "the replica follows")
    yield client
    held.close()
    client.close()
    on_primary.close()


def test_an_event_that_a_replica_has_says_so(primary: EmbeddedRedis, replica: Client) -> None:
    """One replica is the meaning of "replica"; the receipt has the known number."""
    with Publisher(primary.url, timeout_s=30) as publisher:
        receipt = publisher.publish("a", 1, durable="replica")
        many = publisher.publish_many([("a", 2), ("a", 3)], durable=1)

    assert (receipt.replicas, receipt.fsynced) == (1, None)
    assert [each.replicas for each in many] == [1, 1]
    assert call(replica, "XLEN", log_key(NAMESPACE)) == 3


def test_all_replicas_are_those_that_are_online_and_one_that_has_just_gone(primary: EmbeddedRedis, replica: Client) -> None:
    """A departed replica may have been promoted, and until that is out of the question, its confirmation is missed."""
    with Publisher(primary.url, timeout_s=BUDGET_S, durable="all") as publisher:
        assert publisher.publish("a", 1).replicas == 1
        assert [each.replicas for each in publisher.publish_many([("a", 2), ("a", 3)])] == [1, 1]
        call(replica, "REPLICAOF", "NO", "ONE")
        with pytest.raises(NotDurable, match="0 of 1 replicas"):
            publisher.publish("a", 4)


def test_a_user_who_may_not_ask_for_the_replicas_publishes_nothing(redis_url: str, redis_client: Client) -> None:
    """It is unknown how many all are."""
    call(redis_client, "ACL", "SETUSER", "shop", "on", ">one", "~*", "&*", "+@all", "-info")
    url = f"unix://shop:one@{redis_url.removeprefix('unix://')}"
    with Publisher(url, timeout_s=30) as publisher, pytest.raises(BusRefused, match="info"):
        publisher.publish("a", 1, durable="all")
    assert call(redis_client, "XLEN", log_key(NAMESPACE)) == 0


def test_without_the_wish_nothing_is_waited_for(redis_url: str) -> None:
    """The receipt does not claim unchecked replicas."""
    with Publisher(redis_url, timeout_s=30) as publisher:
        receipt = publisher.publish("a", 1)

    assert (receipt.replicas, receipt.fsynced) == (None, None)


def test_the_wait_of_a_large_batch_may_take_longer_than_an_attempt(redis_url: str) -> None:
    """Several calls and then WAIT in one round trip, where an attempt has half of the time, and the wait has more."""
    with Publisher(redis_url, timeout_s=BUDGET_S) as publisher:
        publisher.publish("a", 0)
        with pytest.raises(NotDurable, match="0 of 2 replicas"):
            publisher.publish_many([("a", number) for number in range(250)], durable=2)


def test_an_event_that_too_few_replicas_have_is_told_with_its_receipt(redis_url: str, redis_client: Client) -> None:
    """It is published all the same; once more with its id waits again, and adds nothing."""
    with Publisher(redis_url, timeout_s=BUDGET_S, durable=2) as publisher:
        with pytest.raises(NotDurable, match=r"0 of 2 replicas have it after \d\.\d+ s") as told:
            publisher.publish("a", 1, id="once")
        with pytest.raises(NotDurable) as again:
            publisher.publish("a", 1, id="once")

    assert told.value.receipt.offset == again.value.receipt.offset == 1
    assert told.value.receipt.replicas == 0
    assert again.value.receipt.duplicate
    assert told.value.retry
    assert call(redis_client, "XLEN", log_key(NAMESPACE)) == 1


def test_a_repeated_publish_waits_for_the_event_itself(primary: EmbeddedRedis, replica: Client) -> None:
    """Over a connection that has written nothing, Redis would answer at once; the replica is stopped, so that would be a lie."""
    with Publisher(primary.url, timeout_s=30) as first:
        first.publish("a", 1, id="once")
    wait_until(lambda: call(replica, "XLEN", log_key(NAMESPACE)) == 1, "the replica has it")
    call(replica, "REPLICAOF", "NO", "ONE")

    with Publisher(primary.url, timeout_s=BUDGET_S) as second, pytest.raises(NotDurable):
        second.publish("a", 1, id="once", durable="replica")


def test_an_event_on_the_disk_says_so(start_redis: Callable[..., EmbeddedRedis]) -> None:
    """With an append-only file Redis waits for its sync; without one, or before 7.2, it cannot, and the error says that."""
    server = start_redis("own")
    with Publisher(server.url, timeout_s=30, durable="disk") as publisher:
        try:
            receipt = publisher.publish("a", 1)
        except NotDurable as error:
            assert "did not wait" in error.message  # noqa: PT017 - an old server: it says why
            return
        assert (receipt.fsynced, receipt.replicas) == (True, 0)
        call(open_client(server.url), "CONFIG", "SET", "appendonly", "no")
        with pytest.raises(NotDurable, match="appendonly"):
            publisher.publish("a", 2)


@pytest.mark.parametrize("durable", ["replicas", "", 0, 17, True, 1.5])
def test_other_wishes_are_refused_before_anything_is_sent(redis_url: str, redis_client: Client, durable: object) -> None:
    """The error names the allowed values."""
    with Publisher(redis_url) as publisher, pytest.raises(InvalidRequest, match="'replica', 'all', 'disk' or a number"):
        publisher.publish("a", 1, durable=durable)  # type: ignore[arg-type]

    assert call(redis_client, "KEYS", "*") == []


def test_a_batch_with_refused_events_says_so_first(redis_url: str, redis_client: Client) -> None:
    """A refused event matters more than how far the others have come."""
    with Publisher(redis_url, timeout_s=BUDGET_S) as publisher:
        publisher.publish("a", 1)
        call(redis_client, "FCALL", "headgate_configure", 1, log_key(NAMESPACE), 100, 60000, 10)
        with pytest.raises(PublishManyError):
            publisher.publish_many([("a", 1), ("a", "x" * 20)], durable=1)


def test_the_first_publish_after_a_failover_is_retried(
    primary: EmbeddedRedis, replica: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new replica refuses the first attempt; by the second it is the primary again."""
    on_primary = open_client(primary.url, timeout_s=30)
    with Publisher(primary.url, timeout_s=30) as publisher:
        publisher.publish("a", 1)
        call(on_primary, "REPLICAOF", "127.0.0.1", "1")
        promoted: list[bool] = []

        def promote_in_between(client: Client) -> None:
            call(on_primary, "REPLICAOF", "NO", "ONE")
            promoted.append(True)
            drop_idle(client)

        monkeypatch.setattr(log_writer, "drop_idle", promote_in_between)
        receipt = publisher.publish("a", 2)
        many = publisher.publish_many([("a", 3)])

    assert (receipt.offset, many[0].offset) == (2, 3)
    assert promoted == [True]
    on_primary.close()


# The fate of an event ------------------------------------------------------------------------------------------------------


def test_a_replica_does_not_say_what_has_become_of_an_event(start_redis: Callable[..., EmbeddedRedis]) -> None:
    """It may lag, and an event that it does not have yet would look rolled back, as at an old primary after a failover."""
    server = start_redis("demoted")
    with Publisher(server.url, timeout_s=30) as publisher, closing(open_client(server.url, timeout_s=30)) as client:
        receipt = publisher.publish("a", 1)
        assert publisher.check(receipt) is Fate.IN_LOG
        call(client, "REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(BusUnavailable, match="a replica"):
            publisher.check(receipt)


def test_the_fate_of_an_event_can_be_asked(redis_url: str, redis_client: Client) -> None:
    """In the log, trimmed from it, rolled back with its end, or of a lost log. A place may have been given twice."""
    keys = [log_key(NAMESPACE), head_key(NAMESPACE), epochs_key(NAMESPACE)]
    with Publisher(redis_url, timeout_s=30) as publisher:
        first, kept = publisher.publish("a", 1), publisher.publish("a", 2)
        dumps = [call(redis_client, "DUMP", key) for key in keys]
        lost = publisher.publish("a", 3)
        assert publisher.check(lost) is Fate.IN_LOG
        for key, dump in zip(keys, dumps, strict=True):
            call(redis_client, "RESTORE", key, 0, dump, "REPLACE")
        assert publisher.check(lost) is Fate.ROLLED_BACK
        instead = publisher.publish("a", 4)

        assert instead.offset == lost.offset
        assert publisher.check(lost) is Fate.ROLLED_BACK
        assert publisher.check(instead) is Fate.IN_LOG
        assert publisher.check(kept) is Fate.IN_LOG
        call(redis_client, "XTRIM", keys[0], "MINID", "2")
        assert publisher.check(first) is Fate.TRIMMED
        call(redis_client, "FUNCTION", "LOAD", "REPLACE", SOURCE)
        publisher.publish("a", 5)
        assert publisher.check(kept) is Fate.IN_LOG
        assert publisher.check(msgspec.structs.replace(kept, id="another")) is Fate.ROLLED_BACK
        assert publisher.check(msgspec.structs.replace(kept, id="")) is Fate.IN_LOG
        call(redis_client, "FLUSHALL")
        assert publisher.check(kept) is Fate.UNKNOWN
        publisher.publish("a", 6)
        assert publisher.check(kept) is Fate.UNKNOWN
