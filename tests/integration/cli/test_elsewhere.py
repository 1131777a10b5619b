"""Processes on another Redis server than the log: `check`, `status` and `doctor` name each, and so does the console.

A reloaded library makes of a Redis another server with the same data, like a promoted replica.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.consumers.work.groups import Groups
from headgate.consumers.work.store import Store
from headgate.diagnosis.redis_state import check_gateways
from headgate.redis import loads
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import start_private_redis
from headgate.redis.functions import LOG_LIBRARY, server_token
from headgate.redis.keys import LOADS, group_key
from headgate.redis.registry import MISSED_S, count_elsewhere, give_word, take_out
from headgate.services.publisher import Publisher
from tests.integration.cli.conftest import Run
from tests.support.registered import register, write_row

NAMESPACE = "notifications"
GROUP = group_key(NAMESPACE, "mail")
COMMANDS = [("check",), ("status",), ("doctor", "--url", "http://127.0.0.1:1", "--idle", "0", "--timeout", "1")]
GATEWAY, CONSUMER = "gateway web-1/7: ", "consumer mail: on another Redis server, unless they have ended: mail-1/9"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with start_private_redis(tmp_path / "data") as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A client of it, while a gateway and a consumer are at work."""
    with open_client(url) as client, Publisher(url) as publisher:
        publisher.publish("orders.1", 1)
        register(client, "web-1/7:a", [NAMESPACE])
        write_row(client, "a", loads.Load(3, 0, NAMESPACE, name="web-1/7", server=server_token(client, LOADS)))
        Store(client, url, NAMESPACE, "mail", 65536).open("new")
        give_word(client, GROUP, "mail-1/9")
        yield client


def become_another_server(client: Client) -> None:
    call(client, "FUNCTION", "FLUSH")
    LOG_LIBRARY.ensure_loaded(client)


def age(client: Client, seconds: float) -> None:
    """Have the last words of all processes be so old."""
    server, at_s = call(client, "HGET", GROUP, "at:mail-1/9").split(b" ")
    call(client, "HSET", GROUP, "at:mail-1/9", f"{server.decode()} {int(at_s) - int(seconds)}")
    load: list[Any] = msgspec.json.decode(call(client, "HGET", LOADS, "a"))
    load[3] -= int(seconds)
    call(client, "HSET", LOADS, "a", msgspec.json.encode(load).decode())


def test_each_command_names_the_processes_that_have_not_followed(run: Run, url: str, client: Client) -> None:
    """A gateway at once, as it says where its events come from; a consumer when it has missed three words here."""
    for command in COMMANDS:
        assert "another Redis server" not in run(*command, "--redis", url).stdout
    become_another_server(client)
    assert GATEWAY + "its events come from another Redis server" in run("check", "--redis", url).stdout
    age(client, MISSED_S + 1)
    for command in COMMANDS:
        ended = run(*command, "--redis", url)
        assert re.search(GATEWAY + r"on another Redis server than this one \d+ s ago", ended.stdout)
        assert CONSUMER in ended.stdout
    assert count_elsewhere(client, NAMESPACE) == 1
    assert "mail-1/9" in run("consumers", "list", "--redis", url).stdout


def test_a_process_that_has_followed_is_named_no_more(run: Run, url: str, client: Client) -> None:
    """Its next word says so."""
    become_another_server(client)
    age(client, MISSED_S + 1)
    write_row(client, "a", loads.Load(3, 0, NAMESPACE, name="web-1/7", server=server_token(client, LOADS)))
    give_word(client, GROUP, "mail-1/9")
    for command in COMMANDS:
        assert "another Redis server" not in run(*command, "--redis", url).stdout


def test_a_gateway_whose_feed_is_elsewhere_is_named_though_its_word_is_here(run: Run, url: str, client: Client) -> None:
    """Some of its connections have followed, and the one that it listens on has not."""
    write_row(client, "a", loads.Load(3, 0, NAMESPACE, name="web-1/7", server="the old primary"))
    ended = run("check", "--redis", url)
    assert ended.returncode == 1
    assert GATEWAY + "its events come from another Redis server" in ended.stdout
    [found] = check_gateways(client)
    assert found.fix is not None


def test_an_instance_that_ends_takes_its_word_with_it(client: Client) -> None:
    """And those that were killed long ago. The rest of the group's hash stays."""
    before = call(client, "HGET", GROUP, "epoch")
    give_word(client, GROUP, "mail-1/10")
    give_word(client, GROUP, "mail-1/11")
    age(client, loads.LEFT_S + 1)
    take_out(client, GROUP, "mail-1/10")
    assert {name for name in call(client, "HGETALL", GROUP) if name.startswith(b"at:")} == {b"at:mail-1/11"}
    assert call(client, "HGET", GROUP, "epoch") == before


def test_what_is_no_word_names_nobody(client: Client) -> None:
    """A hash that was written by hand."""
    for value in ("", "server", "server x", "é 1"):
        call(client, "HSET", GROUP, f"at:{value}", value)
    call(client, "HSET", GROUP, "at:old", f"server {int(time.time()) - loads.LEFT_S - 1}")
    become_another_server(client)
    [status] = Groups(client, NAMESPACE).statuses()
    assert status.elsewhere == ()
