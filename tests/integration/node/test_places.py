"""The places of a user hold over two gateways on one Redis."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headgate.auth.tokens import Tokens
from headgate.settings.settings import Settings
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

SECRET = "a secret of the tests, 0123456789abcdef"


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
