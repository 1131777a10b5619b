"""Revocations in a real Redis: stored, ended, bounded, and heard by the watch of a gateway. In the test's own process."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from headgate.auth import regrants
from headgate.auth.repair import KeptKeys, read_regrants, read_revoked
from headgate.auth.revocation import KEPT_S, revoke
from headgate.auth.revocation_watch import RevocationWatch
from headgate.cli.main import main
from headgate.redis.client import Client, call, open_client
from headgate.redis.cluster import slot_of
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import REGRANTED, REVOKED
from headgate.runtime import logging
from headgate.services.publisher import Publisher
from tests.support.clusters import start_cluster
from tests.support.redis_server import DEADLINE_S, full_memory, wait_until


class Watching:
    """The watch of a gateway, in a separate thread. `heard` waits for the next members that it names."""

    def __init__(self, redis_url: str) -> None:
        self._named: queue.Queue[list[str]] = queue.Queue()
        self._closing = threading.Event()
        self.watch = RevocationWatch(redis_url, open_client(redis_url), self._named.put, wait=self._wait)
        self._threads = [threading.Thread(target=run) for run in (self.watch._run, self.watch._run_pings)]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.watch.known, "the watch has read the set")

    def heard(self) -> list[str]:
        return self._named.get(timeout=DEADLINE_S)

    def _wait(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def close(self) -> None:
        self.watch.close()
        self._closing.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@pytest.fixture
def watching(redis_url: str) -> Iterator[Watching]:
    with closing(Watching(redis_url)) as watching:
        yield watching


def test_a_revocation_is_stored_until_its_end_and_then_takes_no_room(publisher: Publisher, redis_client: Client) -> None:
    """By Redis' clock. An ended one is not read, and an hour later the next one removes it."""
    publisher.revoke(user="ana", for_s=60)
    now_s = int(call(redis_client, "TIME")[0])
    call(redis_client, "ZADD", REVOKED, now_s - 1, "user:ended", now_s - KEPT_S - 1, "user:brief")
    assert [member for member, *_ in read_revoked(redis_client)] == ["user:ana"]
    publisher.revoke(user="next", for_s=0)
    assert set(call(redis_client, "ZRANGE", REVOKED, 0, 9)) == {b"user:ana", b"user:ended", b"user:next"}
    assert call(redis_client, "TTL", REVOKED) > 0


def test_the_command_line_revokes_and_lifts(redis_client: Client, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line names the user or the token, and the time; the audit log names the account that ran it."""
    monkeypatch.setattr(logging, "configure", lambda level: None)  # of the test's own process

    def revoke(*words: str) -> str:
        done = CliRunner().invoke(main, ["revoke", "--redis", redis_url, *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    with capture_logs() as lines:
        assert revoke("--user", "fred", "--for", "15m") == "revoked user 'fred' for 900 s\n"
        assert revoke("--token-id", "t-1", "--for", "90") == "revoked token 't-1' for 90 s\n"
        assert [member for member, *_ in read_revoked(redis_client)] == ["user:fred", "token:t-1"]
        assert revoke("--user", "fred", "--for", "0") == "lifted the revocation of user 'fred'\n"
        assert [member for member, *_ in read_revoked(redis_client)] == ["token:t-1"]
    by = f"uid {os.getuid()} on the command line"
    assert [(line["event"], line["kind"], line["name"], line["for_s"], line["by"]) for line in lines] == [
        ("revoked", "user", "fred", 900, by),
        ("revoked", "token", "t-1", 90, by),
        ("revocation lifted", "user", "fred", 0, by),
    ]


def test_a_full_redis_takes_access_away(publisher: Publisher, redis_client: Client, watching: Watching) -> None:
    """Revocations and explicit grants are stored until their end, and are lifted."""
    ensure_loaded(redis_client)
    with full_memory(redis_client):
        publisher.revoke(user="ana")
        assert watching.heard() == ["user:ana"]
        regrants.store(redis_client, "ben", (), (), 60)
        assert [member for member, *_ in read_revoked(redis_client)] == ["user:ana"]
        assert list(read_regrants(redis_client)) == ["ben"]
        assert min(call(redis_client, "TTL", key) for key in (REVOKED, REGRANTED)) > 0
        publisher.revoke(user="ana", for_s=0)
        regrants.lift(redis_client, "ben")
        assert read_revoked(redis_client) == []
        assert read_regrants(redis_client) == {}


def test_what_redis_has_lost_is_written_back_by_a_gateway(publisher: Publisher, redis_client: Client, redis_url: str) -> None:
    """After its link broke, and also into a full memory. Another gateway, which has never heard of it, refuses the user too."""
    ensure_loaded(redis_client)
    with closing(Watching(redis_url)) as watching, closing(Watching(redis_url)) as other:
        assert publisher.revoke(user="ana") == 2
        assert [watching.heard(), other.heard()] == [["user:ana"], ["user:ana"]]
        other.watch.revocations.replace([])
        call(redis_client, "DEL", REVOKED)
        with full_memory(redis_client):
            watching.watch.renew()
            assert other.heard() == ["user:ana"]
    assert [member for member, *_ in read_revoked(redis_client)] == ["user:ana"]
    assert call(redis_client, "TTL", REVOKED) > 0


@pytest.mark.parametrize("key", [REVOKED, REGRANTED])
def test_a_key_that_redis_loses_alone_is_noticed(redis_client: Client, key: str) -> None:
    """It was evicted, or deleted by hand. No connection breaks, and no other key shows it."""
    kept = KeptKeys()
    regrants.store(redis_client, "ana", ("a",), (), 60)
    revoke(redis_client, user="ben")
    assert [kept.has_lost(redis_client), kept.has_lost(redis_client)] == [False, False]
    call(redis_client, "DEL", key)
    assert [kept.has_lost(redis_client), kept.has_lost(redis_client)] == [True, False]


def test_a_user_who_may_not_read_a_key_is_not_asked_about_it_again(as_user: Callable[..., Client], redis_client: Client) -> None:
    """Redis logs each refusal."""
    call(redis_client, "ACL", "LOG", "RESET")
    kept, limited = KeptKeys(), as_user("+zrange")
    assert [kept.has_lost(limited) for _ in range(3)] == [False] * 3
    refused = [dict(zip(line[::2], line[1::2], strict=True)) for line in call(redis_client, "ACL", "LOG")]
    assert [line[b"count"] for line in refused if line[b"object"] == b"hlen"] == [1]


def test_what_was_lifted_while_a_gateway_heard_nothing_stays_lifted(publisher: Publisher, redis_client: Client) -> None:
    """Its copy is older than the lift."""
    publisher.revoke(user="ana", for_s=900)
    publisher.revoke(user="ben", for_s=900)
    known = read_revoked(redis_client)
    publisher.revoke(user="ana", for_s=0)
    assert [member for member, *_ in read_revoked(redis_client, known)] == ["user:ben"]


def test_in_a_cluster_a_gateway_follows_the_set_to_another_node(tmp_path: Path) -> None:
    """The former owner answers its pings, but Redis counts receivers at the new one, which may lack the last revocations."""
    with start_cluster(tmp_path / "cluster", 2) as cluster, open_client(cluster.url, timeout_s=DEADLINE_S) as client:
        with closing(Watching(cluster.url)) as watching, Publisher(cluster.url, timeout_s=DEADLINE_S) as publisher:
            assert publisher.revoke(user="ana") == 1
            assert watching.heard() == ["user:ana"]
            cluster.move(slot_of(REVOKED), cluster.another(cluster.owner(REVOKED)))
            call(client, "DEL", REVOKED)
            assert watching.heard() == ["user:ana"]
            assert publisher.revoke(user="ben") == 1
        assert [member for member, *_ in read_revoked(client)] == ["user:ben", "user:ana"]
