"""/api/v1 of a real gateway: its clients, and whether the OpenAPI document is true.

Schemathesis sends allowed and forbidden requests, and reads the answers by the document. The test command sends a request of
each kind for each operation; `make http-api` sends MANY, or HTTP_API_REQUESTS.
"""

import os
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from requests import Request

from headgate_server.api.v1.table import OPERATIONS
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

SECRET = "a-secret-of-forty-characters-27182818284"
KEY = "an-admin-key-of-forty-characters-3141592"
NO_LIMIT = "100000"
# Making up a request takes schemathesis some 15 ms, and two in three are answered in less. Nearly 70 kinds of 60 requests are
# two minutes on a machine with nothing else to do.
MANY = int(os.environ.get("HTTP_API_REQUESTS", "60"))
# Nothing can be wrong with a request for these.
NEVER_WRONG = ("getHealth", "getProblem")
ENVIRONMENT = {
    # A busy machine.
    "HEADGATE_HANDSHAKE_DEADLINE_S": "60",
    "HEADGATE_TOKEN_SECRET": SECRET,
    "HEADGATE_ADMIN_KEY": KEY,
    "HEADGATE_FAILED_LOGINS_BURST": "0",
    "HEADGATE_READ_PER_S": NO_LIMIT,
    "HEADGATE_PUBLISH_PER_S": NO_LIMIT,
}


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway) -> GatewayProcess:
    return start_module_gateway(ENVIRONMENT)


def ask(operation: Any, examples: int, *, is_right: bool) -> None:
    """Send so many requests to an operation, as the document allows them, or not.

    Raises:
        Exception: schemathesis', with the difference between a request, its answer and the document.
    """
    from schemathesis.checks import CHECKS
    from schemathesis.generation import GenerationMode

    (acceptance,) = CHECKS.get_by_names(["positive_data_acceptance"])
    mode = GenerationMode.POSITIVE if is_right else GenerationMode.NEGATIVE
    health = list(HealthCheck)

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, suppress_health_check=health, phases=[Phase.generate], database=None)
    def asked(case: Any) -> None:
        # A name without a value, such as an empty list, is not sent, so its fault is not asked.
        url = Request(**case.as_transport_kwargs()).prepare().url or ""
        sent = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        assume(set(case.query or {}) <= {name for name, _ in sent})
        body = case.body if isinstance(case.body, dict) else {}
        # An atomic batch is refused for a topic that another batch would report in a receipt's place. `id_for_s` needs ids,
        # which may be in a header.
        is_more_than_shape = body.get("atomic") is True or body.get("id_for_s") is not None
        # No schema can know a page's earlier answers.
        is_next = "after" in (case.query or {})
        # A key must name the user, and the needs of a change depend on its `op`.
        is_inbox = case.path.endswith("/inbox")
        excluded = [acceptance] if is_more_than_shape or is_next or is_inbox else None
        case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, excluded_checks=excluded)

    asked()


def asked(gateway: GatewayProcess, method: str, path: str, body: object = None, key: str = KEY) -> tuple[int, Any]:
    return gateway.ask(f"/api/v1{path}", body, key, method)


def test_a_client_is_listed_reached_and_disconnected(gateway: GatewayProcess) -> None:
    """By its session and by its user; other grants, and a revocation, are reported and lifted."""

    claims = {"sub": "ana", "aud": "headgate", "exp": time.time() + 3600, "subscribe": ["orders.#"]}
    auth = {"token": jwt.encode(claims, SECRET), "subscriptions": [{"pattern": "orders.#"}]}
    with RawClient(gateway.url, auth) as client:
        session = client.welcome["session"]
        page = asked(gateway, "GET", "/clients?user=ana")[1]
        assert (page["total"], page["silent"], page["clients"][0]["session"]) == (1, [], session)
        assert asked(gateway, "GET", f"/clients/{session}")[1]["patterns"] == ["orders.#"]
        assert asked(gateway, "POST", f"/clients/{session}/events", {"topic": "hint", "data": {"n": 1}}) == (200, {"taken": True})
        ((topic, data, _),) = client.wait_for_events(1)
        assert (topic, data) == ("hint", {"n": 1})
        assert asked(gateway, "PUT", "/users/ana/grants", {"subscribe": ["mail.#"]})[1]["count"] == 1
        assert asked(gateway, "DELETE", f"/clients/{session}?reason=enough") == (200, {"count": 1, "silent": []})
        client.wait_for(lambda: client.closed, "the end of the connection")
    status, problem = asked(gateway, "GET", f"/clients/{session}")
    assert (status, problem["code"]) == (404, "not_found")
    assert asked(gateway, "PUT", "/users/ana/revocation", {"for_s": 60}) == (200, {"for_s": 60})
    assert asked(gateway, "DELETE", "/users/ana/revocation")[0] == 204
    assert asked(gateway, "PUT", "/users/ana/grants", {})[0] == 200


def test_a_key_publishes_below_wsgi_until_it_is_revoked(gateway: GatewayProcess) -> None:
    """Made, shown once, used, revoked; soon nothing takes it any more."""
    status, made = asked(gateway, "POST", "/keys", {"name": "shop", "scopes": ["publish:orders.#"]})
    assert status == 201
    key, event = made["secret"], {"topic": "orders.1", "data": 1}
    assert asked(gateway, "POST", "/events", event, key)[0] == 201
    assert asked(gateway, "POST", "/events", {**event, "topic": "mail.1"}, key)[1]["scope"] == "publish:mail.1"
    assert asked(gateway, "DELETE", f"/keys/{made['key']['id']}") == (204, None)
    give_up_s = time.monotonic() + 60
    while asked(gateway, "POST", "/events", event, key)[0] != 401:
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert asked(gateway, "POST", "/events", event, wrong)[1]["reason"] == "malformed"


@pytest.mark.parametrize("examples", [1, pytest.param(MANY, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_the_openapi_document_says_what_is_taken_and_what_is_answered(gateway: GatewayProcess, examples: int) -> None:
    """Statuses, types, schemas and headers of answers; right requests are taken, wrong ones refused; no fault of ours."""
    import schemathesis  # takes half a second, which other tests need not wait for

    schema: Any = schemathesis.openapi.from_url(f"{gateway.url}/api/v1/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    # It leaves out the document itself, which it has just asked for.
    assert {each.label for each in operations} == {
        f"{row.method} /api/v1{row.path}" for row in OPERATIONS if row.name != "getDocument"
    }
    for operation in operations:
        ask(operation, examples, is_right=True)
        if operation.definition.raw["operationId"] not in NEVER_WRONG:
            ask(operation, examples, is_right=False)
