"""A pause in Redis holds on every gateway, and ends by itself. Two gateways as processes on one Redis."""

import json
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.redis.client import Client
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import DEADLINE_S, full_memory, wait_until

HANDSHAKE = "/socket.io/?EIO=4&transport=polling"


def ask(gateway: GatewayProcess, path: str, body: object = None) -> tuple[int, dict[str, object], str | None]:
    """Return status, JSON and Retry-After of a request, which is a POST if it has a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(gateway.url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] == b"{" else {}, None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), error.headers["Retry-After"]


def publish(gateway: GatewayProcess) -> tuple[int, dict[str, object], str | None]:
    return ask(gateway, "/api/v1/events", {"topic": "orders.1", "data": 1})


def headgate(redis_url: str, *arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--redis", redis_url], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.timeout(600)
def test_a_pause_holds_on_every_gateway_until_it_is_resumed(start_gateway: StartGateway, redis_url: str) -> None:
    """Over HTTP and the socket, reported in the health page, and known to a gateway that starts later; connected clients stay."""
    settings = {"HEADGATE_REDIS_URL": redis_url}
    gateways = [start_gateway(settings, "--dev")]

    def told(gateway: GatewayProcess) -> object:
        return ask(gateway, "/healthz")[1].get("paused")

    assert headgate(redis_url, "pause") == "nothing is paused"
    with RawClient(gateways[0].url, {}) as client:
        assert client.welcome
        assert headgate(redis_url, "pause", "publishes") == "paused publishes"
        wait_until(lambda: told(gateways[0]) == ["publishes"], "it obeys")
        gateways.append(start_gateway(settings, "--dev"))
        wait_until(lambda: told(gateways[1]) == ["publishes"], "a gateway that starts later obeys")
        for gateway in gateways:
            status, body, after_s = publish(gateway)
            assert (status, body["code"]) == (503, "paused")
            assert after_s == str(body["retry_after_s"])
        answer = client.request("publish", {"topic": "orders.1", "data": 1})
        assert (answer["error"]["code"], answer["error"]["what"], answer["error"]["retry"]) == ("paused", "publishes", True)

        assert headgate(redis_url, "pause", "connects", "--for", "1h") == "paused connects for 3600 s"
        assert headgate(redis_url, "resume", "publishes") == "resumed publishes"
        wait_until(lambda: all(told(gateway) == ["connects"] for gateway in gateways), "both obey")
        status, body, after_s = ask(gateways[1], HANDSHAKE)
        assert (status, after_s) == (503, str(body["retry_after_s"]))
        assert "paused by an operator: connects" in str(body["message"])
        assert publish(gateways[1])[0] == 201
        assert client.request("publish", {"topic": "orders.1", "data": 1})["ok"] is True

        assert headgate(redis_url, "pause", "namespace", "notifications") == "paused namespace notifications"
        assert headgate(redis_url, "resume", "connects") == "resumed connects"
        assert headgate(redis_url, "resume", "connects") == "connects: not paused"
        assert headgate(redis_url, "pause") == "namespace notifications: until resumed"
        wait_until(lambda: told(gateways[0]) == ["namespace:notifications"], "it obeys")
        with RawClient(gateways[0].url, {}) as refused:
            error = refused.wait_for(lambda: refused.refusal, "the refusal")["data"]
        assert (error["code"], error["what"], error["namespace"]) == ("paused", "namespace", "notifications")
        assert publish(gateways[0])[0] == 503


def test_operators_reach_the_gateways_of_a_full_redis(start_gateway: StartGateway, redis_url: str, redis_client: Client) -> None:
    """A pause, a balance and questions about clients are small, and stop what fills it."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url}, "--dev")
    with RawClient(gateway.url, {}) as client, full_memory(redis_client):
        assert client.welcome
        assert headgate(redis_url, "pause", "publishes") == "paused publishes"
        wait_until(lambda: ask(gateway, "/healthz")[1].get("paused") == ["publishes"], "it obeys")
        assert headgate(redis_url, "rebalance")
        assert headgate(redis_url, "regrant", "anonymous", "--nothing")
        assert headgate(redis_url, "disconnect", "--user", "anonymous").startswith("disconnected 1 client")
