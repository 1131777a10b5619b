"""Any JSON and any query over HTTP: an answer with a code, and no flood of the log by a client.

The application, the extension and the gateway are the real ones, in the test's own process, on a real Redis.
tests/unit/node/test_gateway.py and test_joining.py ask the same of requests and CONNECTs over Socket.IO.
"""

from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs

from headgate.flask.extension import Headgate
from headgate_server.app import create_app
from tests.support.any_json import BODIES
from tests.support.gateway_here import StartGatewayHere

OF_OTHERS = ("login refused", "loop blocked", "loop ran again", "bus down", "bus up")


@pytest.fixture
def browser(gateway_here: StartGatewayHere) -> FlaskClient:
    gateway = gateway_here().gateway
    gate = Headgate(settings=gateway.settings)
    gate._settings, gate._gateway = gateway.settings, gateway
    return create_app(gateway.settings, gate=gate).test_client()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BODIES)
def test_every_body_over_http_is_answered(browser: FlaskClient, body: Any) -> None:
    """A receipt, or an error with a code."""
    with capture_logs() as lines:
        answer = browser.post("/api/v1/events", json=body)
    assert answer.json is not None
    assert answer.status_code == 201 or (400 <= answer.status_code < 500 and isinstance(answer.json["code"], str))
    assert [line for line in lines if line["event"] not in OF_OTHERS] == []


@pytest.mark.parametrize("query", ["pattern=%ED%A0%80", "from=%ED%A0%80", "namespace=%ff", "%ED%A0%80=1", "pattern=%00"])
def test_every_query_over_http_is_answered(browser: FlaskClient, query: str) -> None:
    """Invalid UTF-8 is no pattern, and causes no traceback."""
    with capture_logs() as lines:
        refused = browser.get(f"/api/v1/events?{query}")
    assert refused.status_code in (400, 404)
    assert refused.json is not None
    assert refused.json["code"]
    assert [line for line in lines if line["event"] not in OF_OTHERS] == []
