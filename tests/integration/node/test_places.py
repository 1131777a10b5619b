"""The places of a user hold over two gateways on one Redis; in Redis they end with the lease of their process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.auth.client_counts import ClientCounts
from headgate.auth.tokens import Tokens
from headgate.node.access.client_counts_watch import ClientCountsWatch
from headgate.node.cluster.telling import Telling
from headgate.redis.client import Client, call
from headgate.redis.client_counts import read_others
from headgate.redis.keys import PROCESSES, client_counts_key
from headgate.redis.leased import LEASE_S, leave, tell
from headgate.settings import Settings
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

SECRET = "a secret of the tests, 0123456789abcdef"


def look(
    client: Client, process: str, told: Mapping[str, int], asked: Sequence[str], *, anew: bool = False
) -> tuple[int, dict[str, int], bool]:
    """Tell counts and ask for others; return how many processes there are, these counts, and whether the lease was known."""
    counts = {user: count or None for user, count in told.items()}
    others, known = tell(client, process, {client_counts_key(process): counts}, anew=anew)
    return len(others) + 1, read_others(client, others, asked), known


@pytest.mark.timeout(600)
def test_a_user_has_so_many_clients_over_two_gateways(start_gateway: StartGateway, redis_url: str) -> None:
    """But for one at the gateway that meets the user last; a gateway that stops gives its places back."""
    settings = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_MAX_CLIENTS_PER_USER": "4"}
    settings["HEADGATE_DRAIN_S"] = "0"
    tokens = Tokens.configured(Settings(token_secret=SECRET))
    assert tokens is not None
    token = tokens.mint("ana", ["#"], [], 3600)
    first = start_gateway(settings)
    with ExitStack() as clients:

        def refusal(gateway: GatewayProcess) -> dict[str, object] | None:
            """Join; return the error if that was refused."""
            client = clients.enter_context(RawClient(gateway.url, {"token": token}))
            client.wait_for(lambda: client.refusal or client.named("welcome"), "an answer")
            return dict(client.refusal["data"]) if client.refusal else None

        assert [refusal(first) for _ in range(4)] == [None] * 4
        second = start_gateway(settings)
        wait_until(lambda: refusal(second) is not None, "the second gateway knows")
        refused = refusal(second)
        assert refused is not None
        assert (refused["code"], refused["name"], refused["limit"]) == ("limit_reached", "clients_per_user", 4)
        assert refused["retry"] is True
        first.stop()
        wait_until(lambda: refusal(second) is None, "the places of the first are free")


def test_a_process_is_told_what_the_others_have(redis_client: Client) -> None:
    """Of the users that it asks about; nothing of itself. A count of 0 takes no room."""
    assert look(redis_client, "a", {"ana": 3, "ben": 1}, []) == (1, {}, False)
    assert look(redis_client, "b", {"ana": 2}, ["ana", "ben", "cleo"]) == (2, {"ana": 3, "ben": 1, "cleo": 0}, False)
    assert look(redis_client, "a", {"ben": 0}, ["ana"]) == (2, {"ana": 2}, True)
    assert call(redis_client, "HKEYS", client_counts_key("a")) == [b"ana"]
    assert 0 < call(redis_client, "TTL", client_counts_key("a")) <= LEASE_S
    look(redis_client, "a", {"dora": 1}, [], anew=True)
    assert call(redis_client, "HKEYS", client_counts_key("a")) == [b"dora"]
    leave(redis_client, "a", [client_counts_key("a")])
    assert look(redis_client, "b", {}, ["ana", "dora"]) == (1, {"ana": 0, "dora": 0}, True)


def test_a_process_that_is_silent_for_a_lease_counts_no_more(redis_client: Client) -> None:
    """By Redis' clock: its last word is put back here."""
    look(redis_client, "a", {"ana": 3}, [])
    call(redis_client, "ZINCRBY", PROCESSES, -LEASE_S - 1, "a")
    assert look(redis_client, "b", {}, ["ana"]) == (1, {"ana": 0}, False)
    assert look(redis_client, "a", {}, [])[2] is False


def test_a_process_whose_counts_redis_has_lost_tells_them_anew(redis_client: Client) -> None:
    """All of them, at its next two looks; of what it has told before it tells the changes."""
    counts = {"ana": 2, "ben": 1}
    places = ClientCounts(5)
    with closing(Telling(redis_client)) as telling:
        counted = SimpleNamespace(places=places, addresses=ClientCounts(0), counts=lambda: counts, counts_at=dict)
        ClientCountsWatch(telling, cast(Any, counted))
        key = client_counts_key(telling.process_id)
        telling.look()
        assert call(redis_client, "HGETALL", key) == {b"ana": b"2", b"ben": b"1"}
        places.changed("ben", 0)
        telling.look()
        assert call(redis_client, "HGETALL", key) == {b"ana": b"2"}
        call(redis_client, "FLUSHALL")
        telling.look()
        telling.look()
        assert call(redis_client, "HGETALL", key) == {b"ana": b"2", b"ben": b"1"}
