"""A gateway process with a request to stop: it lets its clients move first, if there is another gateway for them.

tests/unit/node/population/test_drain.py has the turns of clients, test_joining.py there the refusals, and
tests/contract/test_shared_table.py, with tests/integration/redis/test_registry.py, the question whether there is
another gateway.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing

import pytest
from click.testing import CliRunner
from websockets.exceptions import InvalidStatus

from headgate.cli.main import main
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

DEADLINE_S = 30
FOR_EVER = {"HEADGATE_DRAIN_S": "600", "HEADGATE_HANDSHAKE_DEADLINE_S": "600"}
MOVING = {"moving": {"reason": "restart", "within_s": 1.0}}
AT_ONCE = {"moving": {"reason": "restart", "within_s": 0}}


@pytest.fixture(scope="module")
def elsewhere(start_module_gateway: StartGateway) -> dict[str, str]:
    """Another gateway that serves the same namespace, with the settings of one beside it that would drain for ever."""
    other = start_module_gateway({}, "--dev")
    return {**FOR_EVER, "HEADGATE_REDIS_URL": f"unix://{other.folder}/data/redis.sock"}


def ask_to_stop(gateway: GatewayProcess, clients: Sequence[RawClient], notice: Mapping[str, object]) -> list[RawClient]:
    """Ask a gateway to stop, and wait until the first of its clients has been notified; return the others."""
    for client in clients:
        client.wait_for(lambda client=client: client.named("welcome"), "welcome")  # type: ignore[misc]
    gateway.ask_to_stop()
    deadline_s = time.monotonic() + DEADLINE_S
    while not (told := [client for client in clients if [notice] in client.named("status")]):
        assert time.monotonic() < deadline_s, "nobody was told"
        time.sleep(0.01)
    return [client for client in clients if client not in told]


def connection_after(path: str, kept: http.client.HTTPConnection) -> str | None:
    """Make a request on a kept connection; return what its answer says of the connection."""
    kept.request("GET", path)
    answer = kept.getresponse()
    answer.read()
    return answer.headers["Connection"]


def test_it_moves_each_in_turn_lets_nobody_in_and_then_ends(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """A connection that had not joined is served to its end, so it is refused in words; a newcomer is refused by status.

    The client with a later turn is served until then.
    """
    gateway = start_gateway(elsewhere, "--dev")
    address = f"{gateway.url}/socket.io/?EIO=4&transport=polling"
    opening = urllib.request.urlopen(address, timeout=DEADLINE_S).read().decode()
    session = f"{address}&sid={json.loads(opening[1:])['sid']}"
    kept = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=DEADLINE_S)
    with RawClient(gateway.url) as first, RawClient(gateway.url) as second, closing(kept):
        assert connection_after("/livez", kept) is None
        [later] = ask_to_stop(gateway, [first, second], MOVING)
        assert connection_after("/livez", kept) == "close"  # the process ends, which a kept connection would meet
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{gateway.url}/healthz", timeout=DEADLINE_S)
        assert later.subscribe("a.b")["ok"]
        urllib.request.urlopen(session, b"40/notifications,", timeout=DEADLINE_S)
        refusal = urllib.request.urlopen(session, timeout=DEADLINE_S).read().decode()
        assert refusal.startswith("44/notifications,")
        assert '"bus_unavailable"' in refusal
        with pytest.raises(InvalidStatus, match="503"), RawClient(gateway.url):
            pass
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(address, timeout=DEADLINE_S)
        error = json.load(refused.value)["error"]
        assert (error["code"], error["retry"], error["retry_after_s"]) == ("bus_unavailable", True, 1)
        assert refused.value.headers["Retry-After"] == "1"
        page = urllib.request.Request(address, headers={"Origin": "http://localhost:5173"})
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(page, timeout=DEADLINE_S)
        assert refused.value.headers["Access-Control-Allow-Origin"] == "http://localhost:5173"
        assert later.closed is None
    assert gateway.wait_until_ended() == 0


def test_it_answers_the_requests_of_pages_without_a_websocket(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """Proxies do not send a POST to another gateway, so the page would learn that Redis is unreachable. A stream is refused."""
    gateway = start_gateway(elsewhere, "--dev")
    publish = json.dumps({"name": "publish", "body": {"topic": "a.b", "data": 1}}).encode()
    with RawClient(gateway.url) as first, RawClient(gateway.url) as second:
        [_later] = ask_to_stop(gateway, [first, second], MOVING)
        for folder in ("socket.io", "api/v1"):
            wanted = urllib.request.Request(f"{gateway.url}/{folder}/request", publish, {"Content-Type": "application/json"})
            assert json.load(urllib.request.urlopen(wanted, timeout=DEADLINE_S))["ok"]
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"{gateway.url}/{folder}/stream?pattern=a.b", timeout=DEADLINE_S)


def test_it_disconnects_who_stays(start_gateway: StartGateway, elsewhere: dict[str, str]) -> None:
    """In turn, within the time; the last at its end."""
    gateway = start_gateway({**elsewhere, "HEADGATE_DRAIN_S": "0.5"}, "--dev")
    with RawClient(gateway.url) as first, RawClient(gateway.url) as second:
        for client in (first, second):
            client.wait_for(lambda client=client: client.named("welcome"), "welcome")  # type: ignore[misc]
        gateway.ask_to_stop()
        gateway.wait_for_line(r"moving 2 client\(s\) elsewhere within 0\.5 s")
        gateway.wait_until_ended()
        for client in (first, second):
            client.wait_for(lambda client=client: client.closed, "to be disconnected")  # type: ignore[misc]


def test_of_two_gateways_the_first_drains_and_the_second_stops_at_once(start_gateway: StartGateway, redis_url: str) -> None:
    """One that drains admits no client. The second one's clients learn that there is no time to wait for.

    Asked twice, the first does not wait for its clients.
    """
    shared = {**FOR_EVER, "HEADGATE_REDIS_URL": redis_url}
    first, second = start_gateway(shared, "--dev"), start_gateway(shared, "--dev")

    def both_have_told() -> bool:
        shown = CliRunner().invoke(main, ["rebalance", "--show", "--redis", redis_url], catch_exceptions=False)
        return shown.stdout.startswith("notifications: 2 processes, sessions ")

    wait_until(both_have_told, "the loads of both")
    with RawClient(first.url) as client, RawClient(first.url) as another:
        [later] = ask_to_stop(first, [client, another], MOVING)
        with RawClient(second.url) as stranded:
            ask_to_stop(second, [stranded], AT_ONCE)
            assert second.wait_until_ended() == 0
            stranded.wait_for(lambda: stranded.closed, "to be disconnected")
        second.wait_for_line("disconnecting 1 client.* at once: no other gateway serves them")
        assert later.closed is None
        assert first.stop() == 0
