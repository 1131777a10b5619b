"""A Redis that takes no events: `check`, `status` and `doctor` say so with the cure, and end with 1."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.diagnosis.redis_state import check_writes
from headgate.errors import HeadgateError
from headgate.redis import loads
from headgate.redis.client import Client, call, open_client
from headgate.redis.data_folder import url_of, wait_for_private_redis
from headgate.redis.embedded import EmbeddedRedis, find_server, start_private_redis
from headgate.redis.keys import gateways_key, head_key, log_key
from headgate.redis.registry import LEASE_S
from headgate.runtime.check_result import Verdict
from headgate.services.publisher import Publisher
from headgate.settings.settings import redis_program
from tests.integration.cli.conftest import Run
from tests.support.redis_server import DEADLINE_S, record_private_redis, wait_until
from tests.support.registered import register, write_row

COMMANDS = [("check",), ("status",), ("doctor", "--url", "http://127.0.0.1:1", "--idle", "0", "--timeout", "1")]
LOG, HEAD, GATEWAYS = log_key("notifications"), head_key("notifications"), gateways_key("notifications")
Said = Callable[[Run, str], list[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A server with settings that these tests change."""
    with start_private_redis(tmp_path_factory.mktemp("refusing") / "data") as server:
        yield server


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[Client]:
    """A client of it, with a gateway at work that has reported its state, and a log."""
    client = open_client(server.url, timeout_s=DEADLINE_S)
    call(client, "FLUSHALL")
    register(client, "web-1/7:a", ["notifications"])
    write_row(client, "a", loads.Load(0, 1, "notifications", name="web-1/7"))
    with Publisher(server.url) as publisher:
        publisher.publish("orders.1", 1)
    yield client
    client.close()


def said_by_each(run: Run, url: str) -> list[str]:
    """Return the output of each of the three commands; each must end with 1."""
    said = []
    for command in COMMANDS:
        ended = run(*command, "--redis", url)
        said.append(ended.stdout + ended.stderr)
        assert ended.returncode == 1, said[-1]
        assert "nothing is wrong" not in said[-1]
        assert "Traceback" not in said[-1]
    return said


def test_a_server_that_takes_events_is_well(run: Run, server: EmbeddedRedis, client: Client) -> None:
    """And the trial has left no trace."""
    before = sorted(call(client, "KEYS", "*"))
    assert [run(*command, "--redis", server.url).returncode for command in COMMANDS[:2]] == [0, 0]
    assert sorted(call(client, "KEYS", "*")) == before


# How the server comes to be so, how it is well again, the user of the commands, and what they say.
REFUSING: dict[str, tuple[str, str, str, str, str]] = {
    "OOM": (
        *("CONFIG SET maxmemory 1000000", "CONFIG SET maxmemory 0", ""),
        *("it is out of memory (maxmemory)", "raise maxmemory"),
    ),
    "NOREPLICAS": (
        *("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", ""),
        *("it has too few replicas", "bring its replicas back, or lower min-replicas-to-write"),
    ),
    "READONLY": (
        *("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", ""),
        *("is a replica of 127.0.0.1:1", "name the primary in HEADGATE_REDIS_URL"),
    ),
    "NOAUTH": (
        *("ACL SETUSER default >secret", "ACL SETUSER default nopass", ""),
        *("it wants a password", "check user and password in the URL"),
    ),
    "WRONGPASS": (
        *("ACL SETUSER reader on >pass ~* &* +@read", "ACL DELUSER reader", "reader:wrong@"),
        *("wrong user name or password", "check user and password in the URL"),
    ),
    "a user who may only read": (
        *("ACL SETUSER reader on >pass ~* &* +@read +info +time +function|list", "ACL DELUSER reader", "reader:pass@"),
        *("no permission", "give this Redis user the rights"),
    ),
    "a user without a right": (
        *("ACL SETUSER blind on >pass ~* &*", "ACL DELUSER blind", "blind:pass@"),
        *("no permission", "give this Redis user the rights"),
    ),
}


@pytest.mark.parametrize(("wrong", "right", "user", "says", "cure"), REFUSING.values(), ids=REFUSING)
def test_a_server_that_refuses_events_is_told(
    run: Run, server: EmbeddedRedis, client: Client, wrong: str, right: str, user: str, says: str, cure: str
) -> None:
    """By the write that each command tries, with what to do."""
    call(client, *wrong.split())
    try:
        for said in said_by_each(run, server.url.replace("unix://", f"unix://{user}")):
            assert says in said
            assert cure in said
    finally:
        call(client, *right.split())


def test_a_server_whose_writes_are_paused_is_told(server: EmbeddedRedis, client: Client) -> None:
    """As in a planned failover. It answers everything else, so it runs, and the overview goes on."""
    call(client, "CLIENT", "PAUSE", int(DEADLINE_S * 1000), "WRITE")
    try:
        with open_client(server.url, timeout_s=0.5) as brief:
            result = check_writes(brief, ["notifications"])
            assert (result.verdict, result.text) == (Verdict.FAULT, "it answers reads, but no write")
            assert "CLIENT UNPAUSE" in (result.fix or "")
    finally:
        call(client, "CLIENT", "UNPAUSE")


def test_a_server_that_cannot_save_is_told_and_its_gateways_are_not_taken_for_gone(
    run: Run, server: EmbeddedRedis, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """MISCONF, where it answers every read, and refuses every write, also those of gateways that report their state."""
    folder = Path(server.url.removeprefix("unix://")).parent
    (folder / "dump.rdb" / "in the way").mkdir(parents=True)
    call(client, "CONFIG", "SET", "save", "3600 1")
    try:
        call(client, "BGSAVE")
        wait_until(lambda: call(client, "INFO")["rdb_last_bgsave_status"] == "err", "the snapshot has failed")
        for said in said_by_each(run, server.url):
            assert "it cannot write to its disk" in said
            assert "run BGSAVE" in said
        # None can have reported its state again.
        with pytest.raises(HeadgateError):
            write_row(client, "a", loads.Load(0, 1, "notifications", name="web-1/7"))
        call(client, "CONFIG", "SET", "save", "")
        call(client, "DEL", "hg:loads", gateways_key("notifications"))
        call(client, "CONFIG", "SET", "save", "3600 1")
        status = run("status", "--redis", server.url)
        assert status.returncode == 1
        assert "start one" not in status.stdout
        assert "some may be running" in status.stdout
    finally:
        call(client, "CONFIG", "SET", "save", "")


def test_a_server_that_loads_its_data_is_told(run: Run, tmp_path: Path) -> None:
    """LOADING, where it answers INFO, and little else."""
    with start_private_redis(tmp_path / "data") as filled:
        client = open_client(filled.url)
        for number in range(500):  # it checks its connections after each
            call(client, "SET", f"key{number}", os.urandom(1024))
        call(client, "SAVE")
        client.close()
    socket = str(tmp_path / "s")
    command = [find_server(redis_program())[0], "--port", "0", "--unixsocket", socket, "--dir", str(tmp_path / "data")]
    process = subprocess.Popen([*command, "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"])
    try:
        wait_until(lambda: Path(socket).exists(), "it listens")
        # A command that finds its server by the folder waits a little, and then says so, too.
        record_private_redis(tmp_path / "data", url_of(socket))
        assert wait_for_private_redis(tmp_path / "data", 0.0) == url_of(socket)
        for said in said_by_each(run, url_of(socket)):
            assert "it is loading its data" in said
            assert "wait until it has loaded its data" in said
    finally:
        process.kill()
        process.wait()


FOREIGN = [
    ("hg:api-keys", "SET", ("x",), ("keys", "list"), "wrong type of key for HVALS hg:api-keys"),
    ("hg:api-keys", "SET", ("x",), ("keys", "list", "--json"), "wrong type of key for HVALS hg:api-keys"),
    ("hg:paused", "SET", ("x",), ("pause",), "hg:paused"),
    (LOG, "SET", ("x",), ("publish", "a", "1"), f"wrong type of key for headgate_append {LOG}"),
    (LOG, "SET", ("x",), ("replay", "#"), LOG),
    (HEAD, "HSET", ("offset", "ten"), ("replay", "#"), f"{HEAD} has a value that Headgate does not write"),
    (HEAD, "HSET", ("epoch", b"\xff"), ("publish", "--file", "events"), f"{HEAD} has a value that Headgate does not write"),
    (GATEWAYS, "ZADD", ("inf", "a"), ("status",), f"{GATEWAYS} has a value that Headgate does not write"),
]


@pytest.mark.parametrize(("key", "write", "value", "command", "says"), FOREIGN)
def test_a_key_of_another_program_is_named_with_the_cure(
    run: Run, server: EmbeddedRedis, client: Client, tmp_path: Path, key: str, write: str,
    value: tuple[str | bytes, ...], command: tuple[str, ...], says: str,
) -> None:  # fmt: skip
    """One of another type, or with a value that is none of ours: a line with the key, a line with the cure, no traceback."""
    (tmp_path / "events").write_text('{"topic": "a", "data": 1}\n')
    call(client, write, key, *value)

    ended = run(*command, "--redis", server.url, cwd=tmp_path)

    assert ended.returncode == 1
    assert says in ended.stderr
    assert "another program writes keys named hg:… here" in ended.stderr


def test_a_right_that_is_missing_is_told_with_the_command_and_its_key(run: Run, server: EmbeddedRedis, client: Client) -> None:
    """Redis names neither if it is the key that the user may not read."""
    call(client, "ACL", "SETUSER", "other", "reset", "on", ">pass", "~mine:*", "&*", "+@all")
    ended = run("keys", "list", "--redis", server.url.replace("unix://", "unix://other:pass@"))
    assert ended.returncode == 1
    assert "no permission for HVALS hg:api-keys (" in ended.stderr


def test_a_gateway_that_died_is_told(run: Run, server: EmbeddedRedis, client: Client) -> None:
    """It has not stopped in an orderly way, and says nothing any more. A deploy may begin so: `check --load` ends with 0."""
    call(client, "ZADD", gateways_key("notifications"), int(time.time()) - 3 * LEASE_S, "web-1/7:a")
    call(client, "DEL", "hg:loads")
    for said in said_by_each(run, server.url):
        assert "headgate serve" in said
    assert "1 did not stop in an orderly way" in run("check", "--redis", server.url).stdout
    assert run("check", "--load", "--redis", server.url).returncode == 0
