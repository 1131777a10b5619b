"""The Redis users that the pages recommend: the acts of each, and its refusals, with the rights as the pages have them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.errors import BusRefused
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from tests.support.redis_recipes import additions, blocks, make_user, says_no_right, users

LOG = "hg:{notifications}:log"
WORKING, PUBLISHING, PEOPLE = blocks("consumers.md")
USERS = {
    **users("operations/redis-users.md"),
    "consumer": WORKING,
    "consumer and people": WORKING + PEOPLE,
    "consumer that publishes": WORKING + PUBLISHING,
}
HUGE_ID = "18446744073709551615-0"


def commands(text: str) -> list[tuple[str, ...]]:
    """Return the commands of a text, one a line."""
    return [tuple(line.split()) for line in text.replace("LOG", LOG).replace("HUGE", HUGE_ID).strip().splitlines()]


# The forbidden acts of an application's user: configure or stop the server, look at or erase all of it, leave our keys.
ON_THE_SERVER = commands("""
    FLUSHALL
    FLUSHDB
    SWAPDB 0 1
    CONFIG GET *
    CONFIG SET maxmemory 1
    SHUTDOWN NOSAVE
    ACL LIST
    ACL SETUSER x on nopass ~* +@all
    KEYS *
    MONITOR
    REPLICAOF 127.0.0.1 1
    SAVE
    CLIENT KILL TYPE normal
    RESTORE hg:x 0 x
    GET somebody:else
    SET somebody:else 1
    UNLINK somebody:else
""")
# Besides that for all but a gateway, which has the keys of every namespace.
BEYOND_ITS_NAMESPACE = commands("""
    XADD hg:{other}:log * a 1
    XRANGE hg:{other}:log - +
    UNLINK hg:{other}:log
    HGETALL hg:{other}:head
    FCALL headgate_append 1 hg:{other}:log a 1
    FCALL headgate_group_open 1 hg:{other}:log mail new
    PUBLISH hg:{other}:a 1
    ZADD hg:revoked 1 ana
    PUBLISH hg:revoked ana
    HGETALL hg:api-keys
    SET hg:{notifications}:presence 1
    HSET hg:{notifications}:schemas version 1
    FUNCTION LOAD REPLACE #!lua
    FUNCTION FLUSH
    FUNCTION DELETE headgate_log
    EVAL return(redis.call('FLUSHALL')) 0
    XTRIM LOG MAXLEN 0
    XSETID LOG HUGE
    RENAME LOG hg:{notifications}:id:1
    DEL LOG
""")
# A user who does not publish can neither erase the log nor write to it, by hand or through a function.
ON_THE_LOG = commands("""
    XADD LOG HUGE topic a
    XADD LOG MAXLEN 0 * a 1
    XADD LOG * topic a data 1
    XDEL LOG 1-0
    UNLINK LOG
    SET LOG 1
    PEXPIRE LOG 1
    XGROUP SETID LOG mail 0
    HSET hg:{notifications}:head offset 9
    HDEL hg:{notifications}:head epoch
    HDEL hg:{notifications}:epochs x
    ZADD hg:{notifications}:seen:ana 1 x
    PUBLISH hg:{notifications}:a 1
    FCALL headgate_append 1 LOG a 1
    FCALL headgate_append_batch 1 LOG a 1 id by
    FCALL headgate_publish 1 LOG a 1
    FCALL headgate_trim 1 LOG
    FCALL headgate_configure 1 LOG 1 1 1024
""")
# A publisher has nothing to do with the tasks and dead letters of consumers.
ON_GROUPS = commands("""
    HGETALL hg:{notifications}:group:mail
    UNLINK hg:{notifications}:group:mail:dead
    XADD hg:{notifications}:group:mail:dead * a 1
    XREADGROUP GROUP mail x STREAMS LOG >
    FCALL headgate_group_open 1 LOG mail new
    FCALL headgate_group_drop 1 LOG mail 1-0
""")
REFUSED = {
    "gateway": ON_THE_SERVER,
    "shop": ON_THE_SERVER + BEYOND_ITS_NAMESPACE + ON_GROUPS,
    "script": ON_THE_SERVER + BEYOND_ITS_NAMESPACE + ON_GROUPS + commands("FCALL headgate_append 1 LOG a 1"),
    "consumer": ON_THE_SERVER + BEYOND_ITS_NAMESPACE + ON_THE_LOG,
    "consumer and people": ON_THE_SERVER + BEYOND_ITS_NAMESPACE + ON_THE_LOG,
    "consumer that publishes": ON_THE_SERVER + BEYOND_ITS_NAMESPACE + commands("XDEL LOG 1-0\nSET LOG 1\nPEXPIRE LOG 1"),
}


@pytest.fixture
def as_documented(redis_client: Client, redis_server: EmbeddedRedis) -> Iterator[Callable[[str], str]]:
    """Make a documented user, and return the URL with its name. There is a log of three events, and all functions are loaded."""
    for library in (LOG_LIBRARY, GROUP_LIBRARY):
        library.ensure_loaded(redis_client)
    EventLog("notifications", redis_client, 65536).configure(10000, 86400)
    with Publisher(redis_server.url) as publisher:
        publisher.publish_many([("a", number) for number in range(3)])

    def make(name: str) -> str:
        make_user(redis_client, "documented", USERS[name])
        return f"unix://documented:pass@{redis_server.url.removeprefix('unix://')}"

    yield make
    call(redis_client, "ACL", "DELUSER", "documented")


def test_every_documented_user_is_tried() -> None:
    """One that a page adds has to have its list."""
    assert set(USERS) == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_a_documented_user_is_refused_the_rest(as_documented: Callable[[str], str], redis_client: Client, name: str) -> None:
    """Each command really runs; the log, its head and the dead letters are as they were."""
    client = open_client(as_documented(name))
    before = call(redis_client, "XRANGE", LOG, "-", "+"), call(redis_client, "HGETALL", "hg:{notifications}:head")
    try:
        for command in REFUSED[name]:
            assert says_no_right(answer_to(client, command)), f"{name} may {command}"
    finally:
        client.close()
    assert (call(redis_client, "XRANGE", LOG, "-", "+"), call(redis_client, "HGETALL", "hg:{notifications}:head")) == before


def test_no_page_adds_a_right_over_the_server_or_the_log(
    as_documented: Callable[[str], str], redis_client: Client, redis_server: EmbeddedRedis
) -> None:
    """The additional rights in paragraphs on limited users: presence, the console, traces, revocations, the Cluster."""
    found = additions()
    assert len(found) > 10
    client = open_client(as_documented("gateway"))
    erasing = commands("XADD LOG HUGE topic a\nXDEL LOG 1-0\nUNLINK LOG\nXTRIM LOG MAXLEN 0\nHDEL hg:{notifications}:head epoch")
    try:
        for place, rights in found.items():
            make_user(redis_client, "documented", rights)
            for command in ON_THE_SERVER + erasing:
                assert says_no_right(answer_to(client, command)), f"{place} allows {command}"
    finally:
        client.close()


@pytest.mark.parametrize("name", ["gateway", "shop"])
def test_a_documented_publisher_publishes_a_file_and_goes_on_with_it(
    as_documented: Callable[[str], str], redis_client: Client, tmp_path: Path, name: str
) -> None:
    """If its last batch may be there after a failover: the receipts, the index, the log and earlier epochs are read."""
    path = tmp_path / "events.ndjson"
    command = ["publish", "--file", str(path), "--redis", as_documented(name)]
    path.write_text('{"topic": "a", "data": 1}\n')
    assert CliRunner().invoke(main, command).stdout == "published 1 event; offsets 4 to 4\n"
    receipts = Path(f"{path}.receipts")
    receipts.write_bytes(receipts.read_bytes().partition(b'{"step":"sent"')[0])
    call(redis_client, "FUNCTION", "LOAD", "REPLACE", LOG_LIBRARY.source)
    call(redis_client, "HINCRBY", "hg:{notifications}:head", "ids", 9)
    call(redis_client, "FCALL", "headgate_append", 1, LOG, "a", "1")

    assert CliRunner().invoke(main, command).stdout == "published 1 event, 1 of them were there already\n"


@pytest.mark.parametrize("name", ["gateway", "shop", "consumer that publishes"])
def test_a_documented_publisher_publishes(as_documented: Callable[[str], str], name: str) -> None:
    """One event, several, one with an id, one for a user; also in a new epoch, after Redis has lost its head."""
    with Publisher(as_documented(name)) as publisher:
        assert publisher.publish("a", 1, "an-id").offset == 4
        assert publisher.publish("a", 1, "an-id").offset == 4
        assert publisher.publish("a", 1, user="ana").offset == 5
        assert [receipt.offset for receipt in publisher.publish_many([("a", 1), ("b", 2)])] == [6, 7]


def test_a_documented_script_publishes_by_the_strict_function(as_documented: Callable[[str], str]) -> None:
    """Without a publisher of ours."""
    client = open_client(as_documented("script"))
    try:
        assert call(client, "FCALL", "headgate_publish", 1, LOG, "a", "1", "an-id")[1] == 4
        assert call(client, "FCALL", "headgate_publish", 1, LOG, "a", "1", "an-id")[1] == 4
    finally:
        client.close()


def answer_to(client: Client, command: tuple[str, ...]) -> str:
    """Return Redis' answer; a batch of events has an answer for each of them."""
    try:
        return repr(call(client, *command))
    except BusRefused as error:
        return str(error)
