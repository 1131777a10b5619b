"""Any JSON in any request of a client: an answer with a code, and nothing in the log that a client could fill it with."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

DEADLINE_S = 30.0
# Half a surrogate pair, as a browser's JSON spells it.
LONE = "\ud800"
OF_OTHERS = ("logger=headgate.audit", "loop blocked", "loop ran again", "out of reach", "bus down", "bus up", "bus_unavailable")
DEEP: Any = "bottom"
for _ in range(400):
    DEEP = [DEEP]


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway that lets anyone in, and lets a client ask, and be refused, as often as it likes."""
    rates = {"HEADGATE_INBOUND_PER_S": "100000", "HEADGATE_INBOUND_BURST": "100000", "HEADGATE_MAX_REFUSALS": "100000"}
    return start_module_gateway(rates, "--dev")


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Iterator[RawClient]:
    with RawClient(gateway.url) as client:
        assert client.welcome
        yield client


@pytest.fixture(autouse=True)
def quiet(gateway: GatewayProcess) -> Iterator[None]:
    """Nothing that a test here does is worth a line of the log, but for the audit's few of refused logins."""
    before = lines_of_clients(gateway)
    yield
    assert lines_of_clients(gateway) == before


def lines_of_clients(gateway: GatewayProcess) -> list[str]:
    """Return the lines of its log, without the audit's, and without those about a machine or a Redis that stood still."""
    return [line for line in gateway.output.splitlines() if not any(words in line for words in OF_OTHERS)]


@pytest.mark.parametrize(
    "auth",
    [
        {"token": LONE},
        {LONE: 1},
        {"subscriptions": [{"pattern": LONE}]},
        {"subscriptions": [{"pattern": "a.b", "overflow": LONE}]},
        {"subscriptions": [{"pattern": "a.b"}, {"pattern": "a." + LONE}]},
        {"subscriptions": LONE},
        {"resume": {"epoch": LONE, "offset": 1}},
        {"anything": [{"deep": {"down": LONE}}], "huge": 10**30},
    ],
    ids=ascii,
)
def test_a_connect_with_half_a_surrogate_pair_is_refused(gateway: GatewayProcess, auth: Any) -> None:
    """CONNECT_ERROR with a code; it does not join without a welcome."""
    for _ in range(40):
        with RawClient(gateway.url, auth) as refused:
            refusal = wait_for_refusal(refused)
            assert refusal["data"]["code"] == "invalid_request", refusal
            assert not refused.connected


def wait_for_refusal(client: RawClient) -> Any:
    return client.wait_for(lambda: client.refusal, "the refusal")


@pytest.mark.parametrize(
    "auth",
    [
        {"subscriptions": [{"pattern": DEEP}]},
        {"subscriptions": DEEP},
        {"resume": DEEP},
        {"subscriptions": [{"pattern": "x" * 10_000}]},
        {"subscriptions": [{"pattern": "a", "since": {"last": 10**400}}]},
    ],
    ids=["pattern", "subscriptions", "resume", "long", "number"],
)
def test_a_connect_of_an_odd_shape_is_answered(gateway: GatewayProcess, auth: Any) -> None:
    """Refused, or let in and told which subscription was not."""
    with RawClient(gateway.url, auth) as asked:
        refusal = asked.wait_for(lambda: asked.refusal or asked.named("welcome"), "an answer")
        code = refusal["data"]["code"] if isinstance(refusal, dict) else refusal[0][0]["subscriptions"][0]["error"]["code"]
        assert code in ("invalid_request", "invalid_pattern")


REQUESTS = {
    "subscribe": {"pattern": LONE},
    "unsubscribe": {"pattern": LONE},
    "replay": {"pattern": LONE, "from": 1, "to": 2},
    "publish": {"topic": LONE, "data": 1},
    "refresh": {"token": LONE},
    "seen": {"ids": [LONE]},
    LONE: {},
}


@pytest.mark.parametrize("name", REQUESTS, ids=ascii)
def test_a_request_with_half_a_surrogate_pair_is_refused(client: RawClient, name: str) -> None:
    """By an acknowledgement with a code, and the connection lives."""
    assert client.request(name, REQUESTS[name])["error"]["code"] == "invalid_request"


def test_a_payload_with_half_a_surrogate_pair_is_refused(client: RawClient) -> None:
    """It could not be passed on."""
    assert client.request("publish", {"topic": "a", "data": {"text": LONE}})["error"]["code"] == "not_serializable"
    assert client.request("publish", {"topic": "a", "data": {LONE: 1}})["error"]["code"] == "not_serializable"
    assert client.request("publish", {"topic": "a", "data": 1, "id": LONE})["error"]["code"] == "invalid_request"


# Text of any kind, halves of surrogate pairs among it; numbers that JSON can spell.
TEXT = (
    st.text(st.characters(), max_size=12) | st.text(st.characters(categories=["Cs"]), max_size=2) | st.sampled_from(["#", "a.*"])
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=True) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8)
FIELDS = ["pattern", "overflow", "since", "from", "to", "topic", "data", "id", "token", "ids", "offset", "time", "last"]
BODIES = VALUES | st.dictionaries(st.sampled_from(FIELDS) | TEXT, VALUES, max_size=5)
NAMES = st.sampled_from(["subscribe", "unsubscribe", "replay", "publish", "refresh", "seen"]) | TEXT
FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(NAMES, BODIES)
def test_any_request_is_acknowledged(client: RawClient, name: str, body: Any) -> None:
    """`ok`, or an error with a code; two names belong to Socket.IO, and end the connection."""
    if name in ("connect", "disconnect", "connect_error"):
        return
    answer = client.request(name, body)
    assert answer["ok"] is True or isinstance(answer["error"]["code"], str)


AUTHS = st.dictionaries(
    st.sampled_from(["token", "resume", "subscriptions"]) | TEXT,
    VALUES | st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3), max_size=3),
    max_size=4,
)


@settings(FUZZ, max_examples=100)
@given(AUTHS)
def test_any_connect_is_answered(gateway: GatewayProcess, auth: Any) -> None:
    """A welcome, or CONNECT_ERROR with a code."""
    with RawClient(gateway.url, auth) as asked:
        asked.wait_for(lambda: asked.refusal or asked.named("welcome"), "an answer")
        assert asked.refusal is None or isinstance(asked.refusal["data"]["code"], str)


@settings(FUZZ, max_examples=200)
@given(BODIES)
def test_any_body_over_http_is_answered(gateway: GatewayProcess, body: Any) -> None:
    """A receipt, or an error with a code."""
    asked = urllib.request.Request(
        f"{gateway.url}/api/publish", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    status, answer = answered(asked)
    assert status == 201 or (400 <= status < 500 and isinstance(answer["error"]["code"], str))


def answered(asked: urllib.request.Request) -> tuple[int, Any]:
    """Return status and JSON of an answer."""
    try:
        with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("query", ["pattern=%ED%A0%80", "from=%ED%A0%80", "namespace=%ff", "%ED%A0%80=1", "pattern=%00"])
def test_any_query_over_http_is_answered(gateway: GatewayProcess, query: str) -> None:
    """Bytes that are not UTF-8 are no pattern, and no traceback."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{gateway.url}/api/events?{query}", timeout=DEADLINE_S)
    assert refused.value.code in (400, 404)
    assert json.load(refused.value)["error"]["code"]
