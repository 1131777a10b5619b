"""The registry in a real Redis: the gateways of a namespace, when one was last seen, and when a stopping one is the last."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headgate.errors import BusRefused
from headgate.redis import registry
from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import NAMESPACES, gateways_key
from headgate.redis.registry import (
    FORGOTTEN_S,
    KEPT_S,
    LEASE_S,
    LEFT,
    MAX_NAMED,
    MAX_NAMESPACES,
    Served,
    asked_about,
    has_been_served,
    leave,
    living,
    name_of,
    note_served,
    read_served,
)
from headgate.redis.shared_table import SharedTable
from tests.support.gateway_process import StartGateway
from tests.support.redis_server import wait_until
from tests.support.registered import register

CHAT = gateways_key("chat")


def now_s(client: Client) -> int:
    return int(call(client, "TIME")[0])


def age(client: Client, key: str, member: str, seconds: int) -> None:
    """Move the report of each gateway to an earlier time."""
    call(client, "ZINCRBY", key, -seconds, member)


def members(client: Client, key: str) -> set[bytes]:
    return set(call(client, "ZRANGE", key, 0, -1))


# Registering ---------------------------------------------------------------------------------------------------------------


def test_a_gateway_is_live_for_a_lease_after_its_last_word(redis_client: Client) -> None:
    """And when that was is known for longer."""
    assert read_served(redis_client) == {}
    register(redis_client, "one", ["chat", "news"])
    register(redis_client, "two", ["chat"])
    served = read_served(redis_client)
    assert (served["chat"].live, served["news"].live) == (2, 1)
    assert all(each.seen_s_ago is not None and each.seen_s_ago < LEASE_S for each in served.values())

    age(redis_client, CHAT, "one", LEASE_S + 1)
    assert read_served(redis_client)["chat"].live == 1
    age(redis_client, CHAT, "two", LEASE_S + 30)
    dead = read_served(redis_client)["chat"]
    assert dead.live == 0
    assert dead.seen_s_ago is not None
    assert dead.seen_s_ago > LEASE_S
    assert has_been_served(redis_client, "chat") == (True, ["news", "chat"])


def test_killed_gateways_are_forgotten_and_nothing_stays_for_ever(redis_client: Client) -> None:
    """One that crashes and starts again for a day leaves a handful of ids. The clock of Redis may be set back after its end."""
    register(redis_client, "killed", ["chat"])
    age(redis_client, CHAT, "killed", FORGOTTEN_S + 5)
    register(redis_client, "of the future", ["chat"])
    age(redis_client, CHAT, "of the future", -3600)
    register(redis_client, "one", ["chat"])
    assert members(redis_client, CHAT) == {b"one"}
    for key in (CHAT, NAMESPACES):
        assert KEPT_S - 60 < call(redis_client, "TTL", key) <= KEPT_S
    leave(redis_client, "one", ["chat"])
    assert KEPT_S - 60 < call(redis_client, "TTL", CHAT) <= KEPT_S


def test_the_names_are_bounded_and_the_ones_that_were_seen_last_are_told(redis_client: Client) -> None:
    """However many have been started on this Redis."""
    seen_s = now_s(redis_client) - 100
    call(redis_client, "ZADD", NAMESPACES, *[part for n in range(MAX_NAMESPACES + 50) for part in (seen_s, f"old-{n}")])
    call(redis_client, "ZADD", NAMESPACES, seen_s - KEPT_S, "ancient")
    register(redis_client, "one", ["chat"])
    assert call(redis_client, "ZCARD", NAMESPACES) == MAX_NAMESPACES
    assert b"ancient" not in members(redis_client, NAMESPACES)
    _, names = has_been_served(redis_client, "chat")
    assert (names[0], len(names)) == ("chat", MAX_NAMED)
    assert len(read_served(redis_client)) == MAX_NAMED


# Leaving -------------------------------------------------------------------------------------------------------------------


def test_the_last_one_to_leave_is_alone(redis_client: Client) -> None:
    """The one before it is not; and a departed one is not there, but was seen."""
    register(redis_client, "one", ["chat", "news"])
    register(redis_client, "two", ["news", "chat"])
    assert not leave(redis_client, "one", ["chat", "news"])
    assert leave(redis_client, "two", ["chat", "news"])
    assert members(redis_client, CHAT) == {LEFT.encode()}
    served = read_served(redis_client)["chat"]
    assert served == Served(0, served.seen_s_ago)
    assert served.seen_s_ago is not None
    assert has_been_served(redis_client, "chat")[0]


def test_one_that_was_killed_counts_until_its_lease_is_over(redis_client: Client) -> None:
    """No process can know sooner that it is gone."""
    for over, alone in ((LEASE_S - 5, False), (LEASE_S + 1, True)):
        register(redis_client, "killed", ["chat"])
        age(redis_client, CHAT, "killed", over)
        register(redis_client, "one", ["chat"])
        assert leave(redis_client, "one", ["chat"]) is alone


def test_a_gateway_that_is_not_registered_knows_nothing_of_others(redis_client: Client) -> None:
    """Redis has been emptied, or its own word is too old, and the others' may be missing for the same reason."""
    assert not leave(redis_client, "one", ["chat"])
    register(redis_client, "one", ["chat"])
    age(redis_client, CHAT, "one", LEASE_S + 1)
    assert not leave(redis_client, "one", ["chat"])


# A gateway's registration --------------------------------------------------------------------------------------------------


def test_a_gateway_that_may_not_write_the_registry_says_so_once(redis_url: str, redis_client: Client) -> None:
    """A missing right costs a line, however often it is tried, and holds nothing up, because it counts as tried."""
    call(redis_client, "ACL", "SETUSER", "gateway", "on", ">secret", "~*", "&*", "+@all", "-zadd")
    limited = open_client(f"unix://gateway:secret@{redis_url.removeprefix('unix://')}")
    table = SharedTable(limited, ["chat"])
    with closing(limited), capture_logs() as lines:
        table.start()
        assert table.tried.wait(30)
        for _ in range(3):
            table.tried.clear()
            table.renew()
            assert table.tried.wait(30)
        table.retire()
    assert [(line["event"], "no permission" in line["error"]) for line in lines] == [("shared table out of reach", True)]


def test_a_gateway_is_registered_when_it_is_ready_renewed_after_a_flush_and_out_when_it_has_stopped(
    start_gateway: StartGateway, redis_url: str, redis_client: Client
) -> None:
    """As the process does it, without a line of trouble in its log."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url, "HEADGATE_NAMESPACES": "notifications,chat"})
    assert {name: served.live for name, served in read_served(redis_client).items()} == {"chat": 1, "notifications": 1}
    call(redis_client, "FLUSHALL")
    wait_until(lambda: read_served(redis_client).keys() == {"chat", "notifications"}, "to be registered again")
    assert gateway.stop() == 0
    assert {name: served.live for name, served in read_served(redis_client).items()} == {"chat": 0, "notifications": 0}
    assert "shared table out of reach" not in gateway.output


# The memory of a process ---------------------------------------------------------------------------------------------------


def test_the_memory_of_a_process_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names from outside do not fill the memory. Two clients of one database share it."""
    monkeypatch.setattr(registry, "MAX_REMEMBERED", 3)
    asked: dict[str, bool] = {}
    for number in range(10):
        note_served(asked, f"n{number}", is_served=True)
    assert asked == {"n9": True}
    clients = [open_client(f"redis://:hunter2@127.0.0.1:1/{number}") for number in (0, 0, 1)]
    found = [asked_about(client) for client in clients]
    assert found[0] is found[1] is not found[2]


def test_a_reader_without_the_right_is_told(redis_client: Client, redis_url: str, tmp_path: Path) -> None:
    """It is unknown then; names alone that may not be read are left out."""
    register(redis_client, "one", ["chat"])
    place = redis_url.removeprefix("unix://")
    rights: Callable[..., object] = lambda *rules: call(redis_client, "ACL", "SETUSER", "shop", "reset", "on", ">pw", *rules)  # noqa: E731
    rights("~hg:{chat}:*", "+zcard", "+zrange")
    reader = open_client(f"unix://shop:pw@{place}")
    assert has_been_served(reader, "chat") == (True, [])
    rights("~hg:{chat}:*", "+get")
    with pytest.raises(BusRefused, match="no permission"):
        has_been_served(reader, "chat")
    reader.close()


def test_the_gateways_that_live_are_listed_over_all_namespaces(redis_client: Client) -> None:
    """Each once; a departed one, or one silent for a lease, is not."""
    register(redis_client, "web1/7:aa", ["chat", "shop"])
    register(redis_client, "web2/9:bb", ["shop"])
    register(redis_client, "web3/1:cc", ["shop"])
    register(redis_client, "web4/1:dd", ["chat"])
    leave(redis_client, "web3/1:cc", ["shop"])
    call(redis_client, "ZINCRBY", CHAT, -LEASE_S - 1, "web4/1:dd")
    assert living(redis_client) == {"web1/7:aa", "web2/9:bb"}
    assert name_of("web1/7:aa") == "web1/7"
    assert name_of("0123") == "0123"  # of a gateway before names
