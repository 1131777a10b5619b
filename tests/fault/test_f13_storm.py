"""F13: all clients are cut off and come back at once, each with a token, subscriptions and a position to resume from."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from headgate.auth.tokens import Tokens
from headgate.settings.settings import Settings
from tests.fault.checker import Welcomed
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm, all_up
from tests.fault.site import DEADLINE_S, FULL, SHORT, Load, Site
from tests.fault.witness import Witnesses
from tests.support.redis_process import RedisProcess

SECRET = "secret-of-the-storm-0123456789abcdef"
WITNESSES = 10
# One gateway, as the storm of a site with several is shared by them.
STORMS = {SHORT.name: replace(SHORT, gateways=1, clients=300), FULL.name: replace(FULL, gateways=1, clients=5000, per_s=4)}


@pytest.fixture
def storm(load: Load) -> Load:
    """How many come back."""
    return STORMS[load.name]


@pytest.fixture
def stormy_site(storm: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, RedisProcess]]:
    """A gateway that knows tokens, without a limit for this machine's address."""
    limits: dict[str, Any] = {"max_clients_per_address": 0, "token_secret": SECRET}
    folder = tmp_path_factory.mktemp("storm")
    # Without a proxy, because it would be in the busy process of the clients.
    with RedisProcess(folder / "redis") as redis, Site(folder, storm, behind=redis, **limits) as site:
        site.wait_until_ready()
        yield site, redis


def test_everybody_comes_back_at_once_and_those_who_stayed_notice_nothing(
    stormy_site: tuple[Site, RedisProcess], storm: Load, figures: Figures
) -> None:
    """No client is refused, each has every event, also those of the outage; no other connection is lost."""
    site, redis = stormy_site
    swarm = with_tokens(site.swarm()).open(at_once=200)
    with closing(swarm), Witnesses(site.urls[0], redis.url, WITNESSES) as witnesses, site.publishing() as publishing:
        publishing.wait_for(10)
        witnesses.report()
        publishing.wait_for(10)
        calm = witnesses.report()
        swarm.leave(hard=True)
        swarm.wait(lambda: not any(client.connected for client in swarm.clients), "everybody to be away")
        publishing.wait_for(10)
        witnesses.report()
        swarm.reopen()
        back_s = swarm.wait(lambda: all_up(swarm.clients), "everybody to be back", 2 * DEADLINE_S)
        publishing.wait_for(10)
        during = witnesses.report()
        history = publishing.stop()
        site.come_to_rest(swarm, history)
        resumed = [[entry.resumed for entry in record.entries if isinstance(entry, Welcomed)] for record in swarm.records]
    assert calm.closed == during.closed == 0
    assert all(sessions == [None, True] for sessions in resumed)
    figures("F13", f"{storm.clients:,} clients back at once with tokens, until the last was welcomed", back_s, "s", "≤ 15 s")
    figures("F13", "p99 of clients that stayed, in that time", 1000 * during.p99_s(), "ms", "≤ 500 ms")
    figures("F13", "p99 of clients that stayed, before it", 1000 * calm.p99_s(), "ms", "")


def with_tokens(swarm: Swarm) -> Swarm:
    """Give each client a token for a separate user."""
    tokens = Tokens.configured(Settings.read({"HEADGATE_TOKEN_SECRET": SECRET}))
    assert tokens is not None
    for number, client in enumerate(swarm.clients):
        client.token = tokens.mint(f"user-{number}", ["load.#"], [], 3600)
    return swarm
