"""Origins of pages with the right to connect: on a real gateway, over both transports and both of polling's methods."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

OWN = "its own"
ALLOWED = "https://app.example.com"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def alone(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway that allows no origin but its own."""
    return start_module_gateway({"HEADGATE_ANONYMOUS_SUBSCRIBE": "news"})


@pytest.fixture(scope="module")
def listed(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway that allows two, and not its own."""
    return start_module_gateway(
        {"HEADGATE_ANONYMOUS_SUBSCRIBE": "news", "HEADGATE_ALLOWED_ORIGINS": f"{ALLOWED},http://localhost:3000"}
    )


# A page's origin → whether it may connect to each gateway. tests/unit/node/access/test_origin.py has every other origin.
TABLE = [
    # origin, alone, listed
    (None, True, True),  # no browser, so the token decides
    (OWN, True, False),
    (ALLOWED, False, True),
    ("https://app.example.com:8443", False, False),
    ("https://evil.example", False, False),
    ("null", False, False),
]


def websocket(gateway: GatewayProcess, headers: dict[str, str]) -> int:
    """The HTTP status of a WebSocket handshake."""
    try:
        with RawClient(gateway.url, headers=headers) as client:
            assert client.welcome
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def polling(gateway: GatewayProcess, method: str, headers: dict[str, str], sid: str = "") -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of one request of a polling page."""
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=DEADLINE_S)
    query = "EIO=4&transport=polling" + (f"&sid={sid}" if sid else "")
    connection.request(method, f"/socket.io/?{query}", "40/notifications," if method == "POST" else None, headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


def page(gateway: GatewayProcess, path: str, host: str) -> int:
    """The status of a page under a host name."""
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=DEADLINE_S)
    connection.request("GET", path, headers={"Host": host})
    status = connection.getresponse().status
    connection.close()
    return status


def shown(origin: str | None, gateway: GatewayProcess) -> dict[str, str]:
    return {} if origin is None else {"Origin": gateway.url if origin == OWN else origin}


def test_only_exact_origins_may_connect(alone: GatewayProcess, listed: GatewayProcess) -> None:
    """By WebSocket, by polling, by a POST into another's session, by preflight, with one check for them all."""
    for origin, by_alone, by_listed in TABLE:
        for gateway, allowed in ((alone, by_alone), (listed, by_listed)):
            case = f"{origin} at the gateway that {'is alone' if gateway is alone else 'lists two'}"
            headers = shown(origin, gateway)
            _, opening, _ = polling(gateway, "GET", {})
            sid = opening.split('"sid":"')[1].split('"')[0]

            assert websocket(gateway, headers) == (101 if allowed else 403), case
            for status, body, answered in (polling(gateway, "GET", headers), polling(gateway, "POST", headers, sid)):
                assert status == (200 if allowed else 403), case
                assert ("sid" in body or body == "ok") is allowed, case
                # Without this header no browser shows the answer to the page.
                assert answered.get("access-control-allow-origin") in ((headers.get("Origin"), None) if allowed else (None,)), (
                    case
                )
            assert polling(gateway, "OPTIONS", headers)[0] == (204 if allowed else 403), case
