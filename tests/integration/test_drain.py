"""A gateway that is asked to stop: it lets its clients move first."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tests.gateway_process import StartGateway
from tests.raw_client import RawClient

ROOT = str(Path(__file__).parents[2])
DEADLINE_S = 30
FOR_EVER = {"HEADGATE_DRAIN_S": "600", "HEADGATE_HANDSHAKE_DEADLINE_S": "600"}
MOVING = {"moving": {"reason": "restart", "within_s": 600.0}}


def test_it_tells_its_clients_lets_nobody_new_in_and_is_not_ready(start_gateway: StartGateway) -> None:
    """Whoever is there stays served; asked a second time it ends at once."""
    gateway = start_gateway(FOR_EVER, "--dev")
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


def test_who_had_a_connection_but_had_not_joined_is_refused_in_words(start_gateway: StartGateway) -> None:
    """That connection is served to its end, so it can be told why."""
    gateway = start_gateway(FOR_EVER, "--dev")
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


def test_who_was_still_being_looked_at_is_refused_too(start_gateway: StartGateway) -> None:
    """An authenticator may take its time: who it lets in after the others were told would not be."""
    gateway = start_gateway({**FOR_EVER, "PYTHONPATH": ROOT}, "tests.integration.guarded_app:app")
    with RawClient(gateway.url, {"token": "clerk"}) as client, RawClient(gateway.url, {"token": "slow"}) as late:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.wait_for_line("asked about slow")
        gateway.ask_to_stop()
        refusal = late.wait_for(lambda: late.refusal or late.named("welcome"), "an answer")
    assert not late.named("welcome")
    assert refusal["data"]["code"] == "bus_unavailable"


def test_it_ends_when_its_clients_have_left(start_gateway: StartGateway) -> None:
    """However much time there would be."""
    gateway = start_gateway(FOR_EVER, "--dev")
    with RawClient(gateway.url) as client:
        client.wait_for(lambda: client.named("welcome"), "welcome")
        gateway.ask_to_stop()
        client.wait_for(lambda: [MOVING] in client.named("status"), "to be told")
    gateway.wait_until_ended()


def test_it_disconnects_who_stays(start_gateway: StartGateway) -> None:
    """In turn, within the time; the last at its end."""
    gateway = start_gateway({"HEADGATE_DRAIN_S": "0.5"}, "--dev")
    with RawClient(gateway.url) as first, RawClient(gateway.url) as second:
        for client in (first, second):
            client.wait_for(partial(client.named, "welcome"), "welcome")
        gateway.ask_to_stop()
        gateway.wait_until_ended()
        for client in (first, second):
            client.wait_for(partial(getattr, client, "closed"), "to be disconnected")
