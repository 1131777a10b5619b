"""Origins whose pages may connect: on a real gateway, over both transports and both of polling's methods."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

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


@pytest.fixture(scope="module")
def proxied(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway behind a proxy."""
    return start_module_gateway({"HEADGATE_ANONYMOUS_SUBSCRIBE": "news", "HEADGATE_PROXIES": "1"})


@pytest.fixture(scope="module")
def open_to_all(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway in development with `*`, which nothing else accepts."""
    return start_module_gateway({"HEADGATE_ALLOWED_ORIGINS": "*"}, "--dev")


# A page's origin → whether it may connect to each gateway. Every other origin: tests/unit/node/access/test_origin.py.
TABLE = [
    # origin, alone, listed
    (None, True, True),  # no browser: the token decides
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
    """By WebSocket, by polling, by a POST into somebody's session, by preflight: one check answers them all."""
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


def test_behind_a_proxy_that_ends_tls_the_own_origin_is_the_proxys(alone: GatewayProcess, proxied: GatewayProcess) -> None:
    """A page of `http://` may come from somebody between the browser and the proxy."""
    for gateway in (alone, proxied):
        plain, secure = gateway.url, gateway.url.replace("http", "https", 1)
        passed_on = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
        assert websocket(gateway, {"Origin": secure}) == 403
        assert websocket(gateway, {"Origin": secure, **passed_on}) == 101
        assert websocket(gateway, {"Origin": plain, **passed_on}) == 403
        assert polling(gateway, "GET", {"Origin": plain, **passed_on})[0] == 403
        assert websocket(gateway, {"Origin": plain}) == (101 if gateway is alone else 403)
        # Traefik forwards the scheme of the request itself, which the page's polls do not have.
        for proto in ("wss", "WSS", "HTTPS"):
            assert websocket(gateway, {"Origin": secure, **passed_on, "X-Forwarded-Proto": proto}) == 101, proto
            assert websocket(gateway, {"Origin": plain, **passed_on, "X-Forwarded-Proto": proto}) == 403, proto
    forwarded = {"Forwarded": 'for="[2001:db8::1]:4711";proto=wss;host="Shop.example.com:443"'}
    assert websocket(proxied, {"Origin": "https://shop.example.com", **forwarded}) == 101
    assert polling(proxied, "GET", {"Origin": "https://shop.example.com", **forwarded})[0] == 200
    assert websocket(proxied, {"Origin": "https://evil.example", **forwarded}) == 403
    assert websocket(alone, {"Origin": "https://shop.example.com", **forwarded}) == 403


def test_a_refused_page_is_in_the_log_with_the_line_that_allows_it(listed: GatewayProcess) -> None:
    """Once, and the answer names the setting; a gateway with that line lets the page in."""
    for _ in range(3):
        status, body, _ = polling(listed, "GET", {"Origin": "http://localhost:5173"})
        assert (status, json.loads(body)["error"]["code"]) == (403, "origin_not_allowed")
        assert "HEADGATE_ALLOWED_ORIGINS" in json.loads(body)["error"]["message"]

    def lines() -> list[str]:
        return [
            line for line in listed.output.splitlines() if "origin refused" in line and "origin=http://localhost:5173" in line
        ]

    wait_until(lines, "the line")
    assert len(lines()) == 1
    assert f"HEADGATE_ALLOWED_ORIGINS={ALLOWED},http://localhost:3000,http://localhost:5173" in lines()[0]


def test_the_insecure_switch_lets_in_every_origin_and_no_rebound_name(open_to_all: GatewayProcess) -> None:
    """`*` together with --dev; the settings refuse it otherwise (tests/unit/test_settings.py)."""
    port = urlsplit(open_to_all.url).port
    assert websocket(open_to_all, {"Origin": "https://evil.example"}) == 101
    assert polling(open_to_all, "GET", {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"})[0] == 200
    status, body, _ = polling(open_to_all, "GET", {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"})
    assert (status, json.loads(body)["error"]["code"]) == (421, "unknown_host")
    assert page(open_to_all, "/healthz", f"evil.example:{port}") == 421  # the application's paths, too
