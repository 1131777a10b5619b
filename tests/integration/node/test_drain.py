"""A gateway that is asked to stop: it lets its clients move first, if there is another gateway for them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from headgate.redis.client import Client, call
from headgate.redis.embedded import EmbeddedRedis
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

ROOT = str(Path(__file__).parents[3])
DEADLINE_S = 30
FOR_EVER = {"HEADGATE_DRAIN_S": "600", "HEADGATE_HANDSHAKE_DEADLINE_S": "600"}
MOVING = {"moving": {"reason": "restart", "within_s": 600.0}}
AT_ONCE = {"moving": {"reason": "restart", "within_s": 0}}


@pytest.fixture(scope="module")
def elsewhere(start_module_gateway: StartGateway) -> dict[str, str]:
    """Another gateway that serves the same namespace: the settings of one beside it that would drain for ever."""
    other = start_module_gateway({}, "--dev")
    return {**FOR_EVER, "HEADGATE_REDIS_URL": f"unix://{other.folder}/data/redis.sock"}


def test_it_tells_its_clients_lets_nobody_new_in_and_is_not_ready(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """Whoever is there stays served; asked a second time it ends at once."""
    gateway = start_gateway(elsewhere, "--dev")
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{gateway.url}/healthz", timeout=DEADLINE_S)
        assert client.subscribe("a.b")["ok"]
        with pytest.raises(InvalidStatus, match="503"), RawClient(gateway.url):
            pass
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(f"{gateway.url}/socket.io/?EIO=4&transport=polling", timeout=DEADLINE_S)
        error = json.load(refused.value)["error"]
        assert (error["code"], error["retry"], error["retry_after_s"]) == ("bus_unavailable", True, 1)
        assert refused.value.headers["Retry-After"] == "1"
        assert gateway.stop() == 0


def test_who_had_a_connection_but_had_not_joined_is_refused_in_words(
    start_gateway: StartGateway, elsewhere: dict[str, str]
) -> None:
    """That connection is served to its end, so it can be told why."""
    gateway = start_gateway(elsewhere, "--dev")
    address = f"{gateway.url}/socket.io/?EIO=4&transport=polling"
    opening = urllib.request.urlopen(address, timeout=DEADLINE_S).read().decode()
    session = f"{address}&sid={json.loads(opening[1:])['sid']}"
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
        urllib.request.urlopen(session, b"40/notifications,", timeout=DEADLINE_S)
        refusal = urllib.request.urlopen(session, timeout=DEADLINE_S).read().decode()
    assert refusal.startswith("44/notifications,")
    assert '"bus_unavailable"' in refusal


def test_who_was_still_being_looked_at_is_refused_too(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """An authenticator may take its time: who it lets in after the others were told would not be."""
    gateway = start_gateway({**elsewhere, "PYTHONPATH": ROOT}, "tests.integration.auth.guarded_app:app")
    with RawClient(gateway.url, {"token": "clerk"}) as client, RawClient(gateway.url, {"token": "slow"}) as late:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.wait_for_line("asked about slow")
        gateway.ask_to_stop()
        refusal = late.wait_for(lambda: late.refusal or late.named("welcome"), "an answer")
    assert not late.named("welcome")
    assert refusal["data"]["code"] == "bus_unavailable"


def test_it_ends_when_its_clients_have_left(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """However much time there would be."""
    gateway = start_gateway(elsewhere, "--dev")
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
    gateway.wait_until_ended()


def test_it_disconnects_who_stays(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """In turn, within the time; the last at its end."""
    gateway = start_gateway({**elsewhere, "HEADGATE_DRAIN_S": "0.5"}, "--dev")
    with RawClient(gateway.url) as first, RawClient(gateway.url) as second:
        for client in (first, second):
            client.wait_for(partial(client.named, "welcome"), "welcome")
        gateway.ask_to_stop()
        gateway.wait_for_line(r"moving 2 client\(s\) elsewhere within 0\.5 s")
        gateway.wait_until_ended()
        for client in (first, second):
            client.wait_for(partial(getattr, client, "closed"), "to be disconnected")


# Where clients have nowhere to go ------------------------------------------------------------------------------------------


def stop_alone(gateway: GatewayProcess) -> None:
    """Ask a gateway with one client to stop: that client is told that there is no time, and it ends by itself."""
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.ask_to_stop()
        client.wait_for(lambda: [AT_ONCE] in client.named("status"), "to be told")
        assert gateway.wait_until_ended() == 0
        client.wait_for(lambda: client.closed, "to be disconnected")
    gateway.wait_for_line("disconnecting 1 client.* at once: no other gateway serves them")


def test_the_only_gateway_stops_at_once(start_gateway: StartGateway) -> None:
    """Its clients are told, and that there is no time to wait for: nobody else could take them."""
    stop_alone(start_gateway(FOR_EVER, "--dev"))


def test_gateways_of_other_namespaces_and_those_that_have_stopped_are_no_others(
    start_gateway: StartGateway, redis_url: str
) -> None:
    """Neither would take the clients."""
    shared = {**FOR_EVER, "HEADGATE_REDIS_URL": redis_url}
    start_gateway({**shared, "HEADGATE_NAMESPACES": "chat"}, "--dev")
    start_gateway(shared, "--dev").stop()
    stop_alone(start_gateway(shared, "--dev"))


def test_a_gateway_that_drains_is_no_other(start_gateway: StartGateway, redis_url: str) -> None:
    """It lets nobody in: of two that are stopped one after the other, the second does not wait for it."""
    shared = {**FOR_EVER, "HEADGATE_REDIS_URL": redis_url}
    first, second = start_gateway(shared, "--dev"), start_gateway(shared, "--dev")
    with RawClient(first.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        first.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
        stop_alone(second)
        assert client.closed is None


def test_where_redis_does_not_say_whether_there_is_another_it_drains(
    start_gateway: StartGateway, start_redis: Callable[..., EmbeddedRedis]
) -> None:
    """Not known is not none. The log says in one line why."""
    redis = start_redis()
    gateway = start_gateway({**FOR_EVER, "HEADGATE_REDIS_URL": redis.url}, "--dev")
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        redis.close()
        client.wait_for(lambda: [{"bus": "down"}] in client.named("status"), "word that the bus is down")
        gateway.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
    assert gateway.wait_until_ended() == 0
    assert "registry out of reach" in gateway.output
    assert "Traceback" not in gateway.output


def test_just_after_redis_was_emptied_it_drains(start_gateway: StartGateway, redis_url: str, redis_client: Client) -> None:
    """Another gateway may not have registered again yet."""
    gateway = start_gateway({**FOR_EVER, "HEADGATE_REDIS_URL": redis_url}, "--dev")
    call(redis_client, "FLUSHALL")
    gateway.wait_for_line("registered again")
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
