"""F31: slow or silent HTTP bodies and answers, from one address and from many, on a gateway with 256 descriptors."""

import json
import resource
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.slow_http import SLOW, Crowd
from headgate.services.publisher import Publisher
from tests.fault.usage import descriptors, resident_bytes
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

DEADLINE_S = 30.0
DESCRIPTORS = 256
# More than there are descriptors.
ATTACKERS = 250
EVENTS = 20
GROWTH_BYTES = 24 * 1024 * 1024
# Its caller may publish, so the body of a request with it is read.
KEY = "admin-key-of-slow-callers-0123456789"
# The test command has these from one address, too; `make faults` has all. What counts connections by address looks at no request.
USUAL = ("silent", "silent-body", "unread-static")
MANY = tuple(f"127.0.{net}.{host}" for net in range(1, 6) for host in range(1, 51))


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway with few descriptors, short deadlines, small buffers that unread answers soon fill, otherwise the defaults."""
    started = start_module_gateway(
        {
            "HEADGATE_HANDSHAKE_DEADLINE_S": "1",
            "HEADGATE_WRITE_DEADLINE_S": "0.5",
            "HEADGATE_SEND_BUFFER_BYTES": "16384",
            "HEADGATE_METRICS_OPEN": "1",
            "HEADGATE_ADMIN_KEY": KEY,
        },
        "--demo",
    )
    _, hard = resource.prlimit(started.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    return started


@pytest.fixture(scope="module")
def publisher(gateway: GatewayProcess) -> Iterator[Publisher]:
    with closing(Publisher(f"unix://{gateway.folder}/data/redis.sock")) as publisher:
        yield publisher


@pytest.fixture(scope="module")
def token(gateway: GatewayProcess) -> str:
    """A token of a user with the right to read."""
    asked = urllib.request.Request(
        f"{gateway.url}/demo/session", json.dumps({"user": "ana"}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
        return str(json.load(answer)["token"])


@pytest.fixture(scope="module")
def witness(gateway: GatewayProcess, token: str) -> Iterator[RawClient]:
    """A client that was there before. (It begins again where it was itself too slow for the gateway's deadlines.)"""
    while True:
        with RawClient(gateway.url, {"token": token, "subscriptions": [{"pattern": "orders.#"}]}) as client:
            client.wait_for(lambda client=client: client.named("welcome") or client.closed, "the welcome")  # type: ignore[misc]
            if not client.closed:
                assert client.welcome["subscriptions"][0]["ok"]
                yield client
                return


@pytest.mark.parametrize(
    ("name", "addresses"),
    [pytest.param(name, MANY, id=f"{name}, many addresses") for name in SLOW]
    + [
        pytest.param(name, ("127.0.0.1",), id=f"{name}, one address", marks=[] if name in USUAL else pytest.mark.nightly)
        for name in SLOW
    ],
)
def test_slow_http_clients_are_ended_and_nobody_else_notices(
    gateway: GatewayProcess, witness: RawClient, publisher: Publisher, name: str, addresses: tuple[str, ...]
) -> None:
    """Health answers while they are there, events arrive, descriptors and memory stay, and every one of them is ended."""
    kind = SLOW[name]
    port = int(gateway.url.rpartition(":")[2])
    ended = f'headgate_http_ended_total{{reason="{kind.reason}"}}'
    before_bytes, seen, counted = resident_bytes(gateway.pid), len(witness.events), gateway.metric(ended)
    with Crowd(port, kind, ATTACKERS, addresses=addresses, token=KEY) as crowd:
        for number in range(EVENTS):
            publisher.publish("orders.1.noted", number)
            crowd.go_on()
        assert gateway.get("/healthz")[0] == 200
        assert [event[1] for event in witness.wait_for_events(seen + EVENTS)[seen:]] == list(range(EVENTS))
        most = max(descriptors(gateway.pid))
        grown_bytes = resident_bytes(gateway.pid) - before_bytes
        give_up_s = time.monotonic() + DEADLINE_S
        while crowd.open:
            assert time.monotonic() < give_up_s, f"{crowd.open} of {ATTACKERS} were not ended within {DEADLINE_S:g} s"
            crowd.go_on(0.1)
    assert crowd.ended == ATTACKERS
    assert most < DESCRIPTORS - DESCRIPTORS // 16
    assert grown_bytes < GROWTH_BYTES
    assert gateway.get("/healthz")[0] == 200
    assert not kind.reason or gateway.metric(ended) > counted
    assert not witness.closed
    assert "Traceback" not in gateway.output
    assert 'event="cannot accept connections"' not in gateway.output
