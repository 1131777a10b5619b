"""Heads name the Redis process that they are of, on every connection and to every user, and say whether it is a primary."""

from collections.abc import Callable

import pytest

from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import SOURCE, ensure_loaded
from headgate.redis.log import EventLog
from headgate.redis.subscriber_link import SubscriberLink


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of an empty Redis with the library."""
    ensure_loaded(redis_client)
    return redis_client


def log_of(client: Client, namespace: str = "orders") -> EventLog:
    return EventLog(namespace, client, 65536)


def test_all_answers_of_one_process_have_one_token(client: Client, redis_url: str) -> None:
    """Before there is a log, when it is configured, after an event, in another namespace, on a connection of another kind."""
    log = log_of(client)
    tokens = [log.head().server, log.configure(100, 600).server, log.head().server, log_of(client, "bills").head().server]
    link = SubscriberLink(redis_url)
    link.connect()
    link.send(log.head_command())
    tokens.append(log.read_head(link.read()[0]).server)
    link.close()

    assert len(tokens[0]) == 16
    assert set(tokens) == {tokens[0]}


def test_another_process_has_another_token(client: Client, start_redis: Callable[..., EmbeddedRedis]) -> None:
    """Another server, and a library that was loaded again."""
    tokens = {log_of(client).head().server}
    other = open_client(start_redis().url, timeout_s=30)
    ensure_loaded(other)
    tokens.add(log_of(other).head().server)
    other.close()
    call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)
    tokens.add(log_of(client).head().server)

    assert len(tokens) == 3


def test_a_replica_says_that_it_is_one(client: Client) -> None:
    """As soon as it becomes one, and not any more when it is a primary again."""
    log = log_of(client)
    log.configure(100, 600)
    assert not log.head().replica
    try:
        call(client, "REPLICAOF", "127.0.0.1", "1")
        assert log.head().replica
    finally:
        call(client, "REPLICAOF", "NO", "ONE")
    assert not log.head().replica


@pytest.mark.parametrize("missing", ["info", "time"])
def test_a_user_with_few_rights_still_reads_heads(client: Client, as_user: Callable[..., Client], missing: str) -> None:
    """Without INFO it does not learn of replicas; without TIME it makes no token, and gets the one there is."""
    limited = as_user("+@all", f"-{missing}")
    before = log_of(limited).head()
    server = log_of(client).head().server
    after = log_of(limited).head()

    assert before.server == ("" if missing == "time" else server)
    assert after.server == server
    assert not after.replica
