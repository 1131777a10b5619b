"""The small Redis of the tests (tests/support/small_redis.py) answers as a real one does."""

from typing import Any

import pytest

from headgate.errors import HeadgateError
from headgate.redis.client import Client, call_many
from tests.support.small_redis import SmallRedis

COMMANDS: list[tuple[Any, ...]] = [
    ("ZADD", "set", 5, "b"),
    ("ZADD", "set", 5, "a"),
    ("ZADD", "set", "+inf", "z"),
    ("ZADD", "set", 7, "a"),
    ("ZADD", "set", "NX", "CH", "4.5", "b", "6", "c"),
    ("ZADD", "set", "GT", "CH", "4.5", "b", "6.25", "c", 2, "d"),
    ("ZREM", "set", "c"),
    ("ZREM", "set", "d"),
    ("ZRANGE", "set", 0, 9),
    ("ZRANGE", "set", 0, 1),
    ("ZSCORE", "set", "z"),
    ("ZSCORE", "set", "none"),
    ("ZCARD", "set"),
    ("ZREMRANGEBYSCORE", "set", "-inf", 5),
    ("ZREM", "set", "a"),
    ("ZREM", "set", "a"),
    ("ZCARD", "set"),
    ("ZRANGE", "none", 0, 9),
    ("ZADD", "times", 5, "a"),
    ("ZADD", "times", 6, "b"),
    ("ZADD", "times", 7, "c"),
    ("ZRANGE", "times", 0, 1, "REV"),
    ("ZREMRANGEBYRANK", "times", 0, -4),
    ("ZREMRANGEBYRANK", "times", 0, -5),
    ("ZRANGE", "times", 6, "+inf", "BYSCORE", "LIMIT", 0, 10),
    ("ZRANGE", "times", 5, "+inf", "BYSCORE", "LIMIT", 0, 2),
    ("ZRANGE", "times", "+inf", "(5", "BYSCORE", "REV", "LIMIT", 0, 2),
    ("PUBLISH", "nobody listens", b"a"),
    ("RPUSH", "list", b"a"),
    ("RPUSH", "list", b"b"),
    ("BLPOP", "list", "1.000"),
    ("EXPIRE", "list", 15),
    ("BLPOP", "list", "1.000"),
    ("EXPIRE", "list", 15),
    ("BLPOP", "list", "0.010"),
    ("HSET", "hash", "x", 1, "y", 2),
    ("HSET", "hash", "x", 3, "w", 4),
    ("HMGET", "hash", "x", "none", "y"),
    ("HGET", "hash", "y"),
    ("HGET", "hash", "none"),
    ("HGET", "none", "y"),
    ("HLEN", "hash"),
    ("HLEN", "none"),
    ("HVALS", "hash"),
    ("HVALS", "none"),
    ("HGETALL", "hash"),
    ("HLEN", "hash"),
    ("HGETALL", "none"),
    ("HLEN", "none"),
    ("HSETNX", "hash", "x", 5),
    ("HSETNX", "hash", "v", 5),
    ("HGETALL", "hash"),
    ("HDEL", "hash", "x", "none", "v"),
    ("HMGET", "none", "x"),
    ("HGETALL", "hash"),
    ("HGETALL", "none"),
    ("EXPIRE", "hash", 15),
    ("EXPIRE", "none", 15),
    ("UNLINK", "hash"),
    ("UNLINK", "hash"),
    ("HSET", "packed", "x", b"\x00\xff"),
    ("HGETALL", "packed"),
    ("EXISTS", "packed"),
    ("EXISTS", "string"),
    ("SET", "string", "1", "EX", 5),
    ("EXISTS", "string"),
]


@pytest.mark.parametrize("command", ["ZADD", "HSET"])
def test_it_refuses_what_a_real_one_refuses_and_runs_the_rest(command: str) -> None:
    server = SmallRedis()
    server.refuses = command
    replies = call_many(server.client(), [(command, "key", 1, "a"), ("ZCARD", "key")])
    assert isinstance(replies[0], HeadgateError)
    assert replies[1] == 0


def test_it_answers_as_a_real_one(redis_client: Client) -> None:
    """Every command that places, pauses and API keys send, and those that name nothing."""
    assert call_many(SmallRedis().client(), COMMANDS) == call_many(redis_client, COMMANDS)
