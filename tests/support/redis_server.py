"""A real Redis for tests: one private server for the run, emptied for each test that asks for it, and more on demand.

`redis_url` serves most tests. A test that stops, starves or kills its server asks `start_redis` for a private one.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate.redis.client import Client, call, open_client
from headgate.redis.data_folder import LOCK_NAME
from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.redis.subscriber_link import SubscriberLink
from headgate.services.publisher import Publisher

DEADLINE_S = 30.0
# Of a condition; a busy machine takes its time.
WAIT_S = 60.0
# Most conditions ask a process over HTTP, and a hundred times a second would take from it the processor that it needs.
POLL_S, LATER_POLL_S = 0.01, 0.05
SOON_S = 0.2
# All the needs of a publisher before library 12, and later savings of steps, as docs/operations/redis-users.md has it.
OLDER_RIGHTS = ("-@all", "+fcall", "+time", "+hmget", "+hset", "+hsetnx", "+unlink", "+xadd", "+xinfo", "+xrange", "+publish")
PUBLISHER_RIGHTS = (*OLDER_RIGHTS, "+hget", "+hincrby")

# Lua: the keys, and how older data come back into a running server, with the flat copy as arguments.
COPY_EVERY_KEY = """
local copied = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  copied[#copied + 1] = {key, redis.call('DUMP', key), math.max(redis.call('PTTL', key), 0)}
end
return copied"""
PUT_BACK = """
redis.call('FLUSHALL')
for at = 1, #ARGV, 3 do redis.call('RESTORE', ARGV[at], ARGV[at + 2], ARGV[at + 1]) end"""


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """The private server of this test run."""
    with start_private_redis(tmp_path_factory.mktemp("redis") / "data") as server:
        yield server


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The URL of a Redis without keys, functions and users of other tests."""
    client = open_client(redis_server.url, timeout_s=DEADLINE_S)
    call(client, "FLUSHALL")
    call(client, "FUNCTION", "FLUSH")
    for user in call(client, "ACL", "USERS"):
        if user != b"default":
            call(client, "ACL", "DELUSER", user)
    client.close()
    return redis_server.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[Client]:
    """A client of that Redis, for looking at the effects of the code under test."""
    client = open_client(redis_url, timeout_s=DEADLINE_S)
    yield client
    client.close()


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher into that Redis."""
    with Publisher(redis_url) as publisher:
        yield publisher


@pytest.fixture
def limited_url(redis_server: EmbeddedRedis) -> str:
    """The URL of that Redis for the user whom `as_user` makes."""
    return f"unix://limited:pass@{redis_server.url.removeprefix('unix://')}"


@pytest.fixture
def as_user(redis_client: Client, limited_url: str) -> Iterator[Callable[..., Client]]:
    """Return a client of a user with these rights only, on the keys and channels of logs."""
    clients: list[Client] = []

    def open_as(*rights: str) -> Client:
        call(redis_client, "ACL", "SETUSER", "limited", "reset", "on", ">pass", "~hg:*", "resetchannels", "&hg:*", *rights)
        clients.append(open_client(limited_url))
        return clients[-1]

    yield open_as
    for each in clients:
        each.close()


@contextlib.contextmanager
def full_memory(client: Client) -> Iterator[None]:
    """Keep Redis at its `maxmemory`, where it evicts nothing."""
    call(client, "CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        call(client, "CONFIG", "SET", "maxmemory", "1gb")


def copy_keys(client: Client) -> dict[bytes, bytes]:
    """Return all keys of ours as they are now, as a replica or a snapshot has them."""
    return {key: call(client, "DUMP", key) for key in call(client, "KEYS", "hg:*")}


def put_back(client: Client, copied: Mapping[bytes, bytes]) -> None:
    """Replace all keys of ours by those of an earlier moment."""
    for key in call(client, "KEYS", "hg:*"):
        call(client, "DEL", key)
    for key, dump in copied.items():
        call(client, "RESTORE", key, 0, dump)


Listen = Callable[..., SubscriberLink]


@pytest.fixture
def listen(redis_url: str) -> Iterator[Listen]:
    """Return a link to that Redis that hears later publishes on some channels."""
    with contextlib.ExitStack() as opened:

        def listen(*channels: str) -> SubscriberLink:
            link = opened.enter_context(contextlib.closing(SubscriberLink(redis_url)))
            link.connect()
            link.settimeout(DEADLINE_S)
            link.send(("SUBSCRIBE", *channels))
            confirmed = 0
            while confirmed < len(channels):
                confirmed += len(link.read())
            return link

        yield listen


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., EmbeddedRedis]]:
    """Start further private servers, `start_redis(name)`, each in a separate folder; they end with the test."""
    with contextlib.ExitStack() as started:
        yield lambda name="own": started.enter_context(start_private_redis(tmp_path / name))


def record_private_redis(folder: Path, url: str) -> None:
    """Write the record of a private server into a data folder of ours, as if the one at `url` had been started there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    record = folder / LOCK_NAME
    record.write_text(json.dumps({"socket": url.removeprefix("unix://")}))
    record.chmod(0o600)


def write_at_once(client: Client) -> None:
    """Have the server write and sync everything before it answers, so that it can be killed and has forgotten nothing.

    With `appendfsync everysec` it keeps later writes back, for up to two seconds, while an earlier sync runs.
    """
    call(client, "CONFIG", "SET", "appendfsync", "always")


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = WAIT_S) -> Any:
    """Wait until `condition()` is true and return it; fail the test, naming `what`, after `deadline_s` seconds."""
    began_s = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - began_s
        if waited_s > deadline_s:
            pytest.fail(f"not within {deadline_s:g} s: {what}")
        time.sleep(POLL_S if waited_s < SOON_S else LATER_POLL_S)
    return found
