"""Redis with real Sentinels, where both kinds of client find the primary, before and after a failover."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate import BusRefused, BusUnavailable, Publisher
from headgate.redis.bounded import NewestReceipts
from headgate.redis.client import call, check_primary, describe_server, open_client
from headgate.redis.primary_switch import ASK_EVERY_SENTINEL_S, switch_of
from headgate.redis.registry import need_known
from headgate.redis.sentinel import LEAST_SILENCE_S, discovery_of
from headgate.settings.addresses.redis_url import read_url
from tests.support.redis_process import Server
from tests.support.sentinels import PRIMARY, start_sentinels


def test_a_new_connection_to_the_primary_reports_the_newest_receipts(tmp_path: Path) -> None:
    """A primary that does not remember one was put back with its memory, and begins another epoch."""
    with start_sentinels(tmp_path / "site") as site, Publisher(site.url) as publisher:
        before, newest = publisher.publish("a", 1), NewestReceipts()
        newest.note(before.epoch, before.offset + 1)
        with open_client(site.url, timeout_s=5, newest=newest) as client:
            call(client, "PING")
        after = publisher.publish("a", 2)

    assert (after.offset, after.epoch == before.epoch) == (2, False)


def test_passwords_of_redis_and_of_sentinels_are_two(tmp_path: Path) -> None:
    """With both, everything works; without either, the error names the fault and the server, and shows no password."""
    with start_sentinels(tmp_path / "site", requirepass="redis-secret", sentinel_password="sentinel-secret") as site:
        with Publisher(site.url) as publisher:
            assert publisher.publish("a", 1).offset == 1
        without_sentinels = site.url.partition("?")[0]
        without_redis = site.url.replace(":redis-secret@", "")
        for url, kind, says in (
            (without_sentinels, BusUnavailable, "none of them answers and .*wrong sentinel_username or sentinel_password"),
            (without_redis, BusRefused, rf"Sentinels .* \(primary 127\.0\.0\.1:{site.servers[0].port}\): it wants a password"),
        ):
            with pytest.raises(kind, match=says) as told:
                describe_server(url)
            assert "secret" not in str(told.value)


def test_a_primary_that_no_sentinel_knows_is_one_clear_error(tmp_path: Path) -> None:
    """The error names the primary, the Sentinels that were asked, and what each of them answered."""
    with start_sentinels(tmp_path / "site") as site:
        sentinel, redis = site.sentinels[0].port, site.servers[0].port
        for hosts, answers in (
            (f"127.0.0.1:{sentinel}", r"\(No such master with that name\)"),
            (f"127.0.0.1:{redis},127.0.0.1:1", rf"\(127\.0\.0\.1:{redis}: not a Sentinel, 127\.0\.0\.1:1: connection refused\)"),
        ):
            with pytest.raises(
                BusUnavailable, match=rf"^.*: othermaster of the Sentinels .*: none of them .* {answers}$"
            ) as told:
                describe_server(f"redis+sentinel://{hosts}/othermaster")
            assert hosts.replace(",", ", ") in str(told.value)


def test_a_sentinel_in_place_of_the_primary_is_refused_by_name(tmp_path: Path) -> None:
    """It is a server of the same program without its commands. A listener there would wait for events for ever."""
    with Server(tmp_path / "sentinel", sentinel=True) as server:
        with pytest.raises(BusRefused, match=rf"127\.0\.0\.1:{server.port} is a Sentinel: begin the URL with redis\+sentinel://"):
            describe_server(server.url)
        with open_client(server.url) as client, pytest.raises(BusRefused, match="does not know the command") as refused:
            need_known(client, "chat")
        assert "redis+sentinel://HOST:PORT/PRIMARY/0" in refused.value.__notes__[0]


def test_one_sentinel_that_answers_is_enough(tmp_path: Path) -> None:
    """Dead ones are passed over."""
    with start_sentinels(tmp_path / "site") as site:
        site.sentinels[0].kill()
        site.sentinels[1].kill()
        assert "mymaster" in describe_server(site.url)


def test_a_sentinel_that_stalls_puts_no_question_off(tmp_path: Path) -> None:
    """In a failover Sentinels write to the disk. A silent one is left out, and another one asked soon."""
    with start_sentinels(tmp_path / "site") as site:
        stalled, *others = site.sentinels
        with open_client(site.url, timeout_s=5, max_connections=1) as client:
            call(client, "PING")
            stalled.pause()
            switch = switch_of(read_url(site.url))
            for _ in site.sentinels:
                switch.doubt()
                check_primary(client)
                assert switch.is_due(time.monotonic() + ASK_EVERY_SENTINEL_S), "a silent Sentinel holds the others up"
            discovery = discovery_of(read_url(site.url))
            assert discovery.awake()
            assert [discovery.newer_primary(5) for _ in others] == [("127.0.0.1", site.servers[0].port)] * 2
            for each in others:
                each.pause()
            for _ in others:
                assert discovery.newer_primary(0.3) is None
            assert not discovery.awake()
            switch.doubt()
            check_primary(client)
            assert not switch.is_due(time.monotonic() + ASK_EVERY_SENTINEL_S), "none answers, so calls wait seldom"


def test_who_waits_for_a_moment_only_has_learned_nothing_of_a_sentinel(tmp_path: Path) -> None:
    """A call with little time left, or a question to a second one, must not leave out the Sentinel that leads the failover."""
    with start_sentinels(tmp_path / "site") as site:
        discovery = discovery_of(read_url(site.url))
        for each in site.sentinels:
            each.pause()
        for _ in site.sentinels:
            assert discovery.newer_primary(LEAST_SILENCE_S / 2) is None
        assert discovery.awake()


@contextlib.contextmanager
def servers_in(folder: Path) -> Iterator[Callable[..., Server]]:
    """Give a function that starts a server by name, with lines of configuration, until the end of the block."""
    with contextlib.ExitStack() as started:

        def begin(name: str, *lines: str, sentinel: bool = False) -> Server:
            return started.enter_context(Server(folder / name, *lines, sentinel=sentinel))

        yield begin


def test_a_sentinel_that_is_behind_leads_nobody_back(tmp_path: Path) -> None:
    """After a failover each Sentinel hears of it in its turn, and the old primary may be up again before the last one has.

    Two Sentinels that do not know each other stay as they are for good, where one knows of no failover, the other of several.
    """
    with servers_in(tmp_path) as begin:
        old, new = begin("old"), begin("new")
        behind = begin("behind", f"sentinel monitor {PRIMARY} 127.0.0.1 {old.port} 1", sentinel=True)
        ahead = begin(
            "ahead", f"sentinel monitor {PRIMARY} 127.0.0.1 {new.port} 1", f"sentinel config-epoch {PRIMARY} 7", sentinel=True
        )
        url = f"redis+sentinel://127.0.0.1:{behind.port},127.0.0.1:{ahead.port}/{PRIMARY}"

        def primary() -> int:
            with open_client(url, timeout_s=5) as client:
                found: int = call(client, "INFO", "server")["tcp_port"]
                return found

        assert primary() == new.port  # most of them are asked by a process that knows nothing yet
        behind.pause()
        assert primary() == new.port
        behind.go_on()
        assert primary() == new.port
        ahead.kill()
        assert primary() == new.port  # its answer is known to be old


def test_sentinels_that_disagree_for_good_lead_nobody_to_and_fro(tmp_path: Path) -> None:
    """One of three watches another server under the same name. Most of them count, for each process and all the time."""
    with servers_in(tmp_path) as begin:
        right, wrong = begin("right"), begin("wrong")
        sentinels = [
            begin(f"sentinel{number}", f"sentinel monitor {PRIMARY} 127.0.0.1 {server.port} 1", sentinel=True)
            for number, server in enumerate((wrong, right, right))
        ]
        url = f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in sentinels)}/{PRIMARY}"
        discovery = discovery_of(read_url(url))
        assert discovery.primary() == ("127.0.0.1", wrong.port)  # one to one so far
        for _ in range(2 * len(sentinels)):
            discovery.newer_primary(5)
        assert {discovery.newer_primary(5) for _ in sentinels} == {("127.0.0.1", right.port)}
        assert discovery.primary() == ("127.0.0.1", right.port)
        with Publisher(url) as publisher, open_client(right.url) as client:
            switch = switch_of(read_url(url))
            for number in range(2 * len(sentinels)):
                publisher.publish("a", number)
                switch.doubt()
            assert call(client, "XLEN", "hg:{notifications}:log") == 2 * len(sentinels)
