"""Hosts and origins: a table of deployments and of what a browser, a proxy or an attacker sends to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from headgate.errors import SettingsError, UnknownHost
from headgate.node.origin import Hosts, origin_check
from headgate.settings import Settings

ALONE: dict[str, str] = {}
PROXIED = {"PROXIES": "1"}
TWICE_PROXIED = {"PROXIES": "2"}
LISTED_ORIGIN = {"ALLOWED_ORIGINS": "https://app.example.com", "PROXIES": "1"}
LISTED_HOST = {"HOSTS": "Shop.example.com, [2001:db8::1]", "PROXIES": "1"}
DEVELOPMENT = {"DEV": "1"}
ON_THE_LAN = {"HOST": "192.168.1.5"}
EVERYWHERE = {"HOST": "0.0.0.0"}
NAMED = {"HOST": "box.local"}
ANY_HOST = {"HOSTS": "*"}
FOR = "203.0.113.9"


def sent(host: str = "", **headers: str) -> dict[str, str]:
    """The WSGI environment of a request with these headers."""
    environ = {"HTTP_" + name.upper(): value for name, value in headers.items()}
    return {"wsgi.url_scheme": "http", **({"HTTP_HOST": host} if host else {}), **environ}


def by_proxy(host: str, **headers: str) -> dict[str, str]:
    return sent(host, x_forwarded_for=FOR, **headers)


# deployment, what comes, whether the host is ours
HOSTS = [
    (ALONE, sent("127.0.0.1:8000"), True),
    (ALONE, sent("localhost:8000"), True),
    (ALONE, sent("LOCALHOST."), True),
    (ALONE, sent("[::1]:8000"), True),
    (ALONE, sent(), True),  # HTTP/1.0: a health check, never a browser
    (ALONE, sent("evil.example:8000"), False),  # rebound to 127.0.0.1
    (ALONE, sent("localhost.evil.example"), False),
    (ALONE, sent("127.0.0.1.evil.example"), False),
    (ALONE, sent("evil.example", x_forwarded_host="localhost"), False),  # nobody said that there is a proxy
    (ALONE, by_proxy("evil.example"), False),
    (ALONE, sent("localhost@evil.example"), False),
    (ALONE, sent("localhost:80:80"), False),
    (ALONE, sent("localhost, evil.example"), False),
    (ALONE, sent("[::1"), False),
    (ALONE, sent("x" * 5000), False),
    (ALONE, sent("10.0.0.7:8000"), True),  # an address is nobody's to rebind
    (DEVELOPMENT, sent("localhost:8000"), True),
    (DEVELOPMENT, sent("evil.example:8000"), False),
    (ON_THE_LAN, sent("192.168.1.5:8000"), True),
    (ON_THE_LAN, sent("evil.example:8000"), False),
    (NAMED, sent("box.local:8000"), True),
    (NAMED, sent("other.local:8000"), False),
    (EVERYWHERE, sent("192.168.1.5:8000"), True),
    (EVERYWHERE, sent("evil.example"), False),
    (ANY_HOST, sent("evil.example"), True),
    (PROXIED, by_proxy("shop.example.com"), True),  # the proxy knows its own names
    (PROXIED, sent("evil.example"), False),  # not through the proxy
    (PROXIED, sent("127.0.0.1:8000"), True),
    (LISTED_ORIGIN, sent("app.example.com"), True),
    (LISTED_HOST, by_proxy("shop.example.com:443"), True),
    (LISTED_HOST, by_proxy("[2001:DB8::1]"), True),
    (LISTED_HOST, by_proxy("evil.example"), False),
    (LISTED_HOST, by_proxy("10.0.0.7"), False),
    (LISTED_HOST, sent("localhost"), True),
    (LISTED_HOST, by_proxy("headgate_pool", x_forwarded_host="shop.example.com"), True),
    (LISTED_HOST, by_proxy("shop.example.com", x_forwarded_host="evil.example"), False),
    ({**LISTED_HOST, **TWICE_PROXIED}, by_proxy("inner", x_forwarded_host="evil.example, shop.example.com, inner"), True),
    ({**LISTED_HOST, **TWICE_PROXIED}, by_proxy("inner", x_forwarded_host="shop.example.com, evil.example, inner"), False),
]
HTTP, HTTPS = "http://shop.example.com", "https://shop.example.com"
# deployment, what comes beside the origin, the origin, whether its pages may connect
ORIGINS = [
    (ALONE, sent("shop.example.com"), HTTP, True),
    (ALONE, sent("shop.example.com"), HTTPS, False),
    (ALONE, sent("shop.example.com", x_forwarded_proto="https"), HTTPS, True),  # TLS ends in front, and PROXIES was forgotten
    (ALONE, sent("shop.example.com", x_forwarded_proto="https"), HTTP, False),
    (ALONE, sent("127.0.0.1", x_forwarded_host="shop.example.com"), HTTP, False),
    (ALONE, sent("127.0.0.1", x_forwarded_proto="https"), HTTPS, False),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https"), HTTPS, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https"), HTTP, False),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="http"), HTTP, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="http, https"), HTTP, False),  # the first is the page's own
    (PROXIED, by_proxy("shop.example.com"), HTTP, False),  # not known whether TLS ended in front
    (PROXIED, by_proxy("shop.example.com"), HTTPS, False),
    (PROXIED, by_proxy("inner", x_forwarded_host="shop.example.com", x_forwarded_proto="https"), HTTPS, True),
    (PROXIED, by_proxy("inner", x_forwarded_host="shop.example.com", x_forwarded_proto="https"), "https://inner", False),
    (TWICE_PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https, http"), HTTPS, True),
    (TWICE_PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https, http"), HTTP, False),
    (TWICE_PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https"), HTTPS, True),
    (LISTED_ORIGIN, by_proxy("app.example.com", x_forwarded_proto="https"), "https://app.example.com", True),
    (LISTED_ORIGIN, by_proxy("shop.example.com", x_forwarded_proto="https"), HTTPS, False),  # its own, but not listed
    (LISTED_ORIGIN, by_proxy("app.example.com", x_forwarded_proto="http"), "http://app.example.com", False),
    (DEVELOPMENT, sent("localhost:8000"), "http://localhost:8000", True),
    (DEVELOPMENT, sent("evil.example:8000"), "http://evil.example:8000", False),
    (ON_THE_LAN, sent("192.168.1.5:8000"), "http://192.168.1.5:8000", True),
    (ALONE, sent("shop.example.com"), "null", False),
    (ALONE, sent(), "http://", False),
    (PROXIED, by_proxy("shop.example.com"), "None://shop.example.com", False),
]


# A page's origin → whether it may connect to a gateway that lists no origin, and to one that lists two. Both are 127.0.0.1:8000.
TWO_LISTED = {"ALLOWED_ORIGINS": "https://app.example.com,http://localhost:3000"}
TABLE = [
    ("http://127.0.0.1:8000", True, False),
    ("https://app.example.com", False, True),
    ("http://localhost:3000", False, True),
    ("http://app.example.com", False, False),
    ("https://app.example.com:8443", False, False),
    ("https://app.example.com:443", False, False),
    ("https://app.example.com/", False, False),
    ("https://app.example.com.evil.example", False, False),
    ("https://evil.example", False, False),
    ("https://evil-app.example.com", False, False),
    ("https://sub.app.example.com", False, False),
    ("https://example.com", False, False),
    ("HTTPS://APP.EXAMPLE.COM", False, False),
    ("https://app.example.com, https://evil.example", False, False),
    ("https://app.example.com https://evil.example", False, False),
    ("http://127.0.0.1", False, False),
    ("http://127.0.0.1:1", False, False),
    ("http://localhost", False, False),
    ("http://localhost:8000", False, False),
    ("null", False, False),
    ("*", False, False),
    ("file://", False, False),
    ("https://[::1]", False, False),
    ("x" * 5000, False, False),
]


def settings_of(given: dict[str, str]) -> Settings:
    return Settings.read({f"HEADGATE_{name}": value for name, value in given.items()})


@pytest.mark.parametrize(("deployment", "environ", "ours"), HOSTS, ids=lambda value: str(value)[:60])
def test_only_our_own_hosts_are_answered(deployment: dict[str, str], environ: dict[str, Any], ours: bool) -> None:
    """Everything else is refused with the setting that would allow it."""
    hosts = Hosts(settings_of(deployment))
    if ours:
        hosts.check(environ)
        return
    with pytest.raises(UnknownHost, match="HEADGATE_HOSTS") as caught:
        hosts.check(environ)
    assert caught.value.code == "unknown_host"


@pytest.mark.parametrize(("deployment", "environ", "origin", "allowed"), ORIGINS, ids=lambda value: str(value)[:60])
def test_only_the_origin_that_the_browser_sees_is_ours(
    deployment: dict[str, str], environ: dict[str, Any], origin: str, allowed: bool
) -> None:
    """The forwarded scheme is the only one that counts, and where a list is set, only the list."""
    assert origin_check(settings_of(deployment))(origin, environ) is allowed


@pytest.mark.parametrize(("origin", "by_alone", "by_listed"), TABLE, ids=lambda value: str(value)[:50])
def test_only_exact_origins_may_connect(origin: str, by_alone: bool, by_listed: bool) -> None:
    """Scheme, host and port, letter by letter."""
    environ = sent("127.0.0.1:8000")
    assert origin_check(settings_of(ALONE))(origin, environ) is by_alone
    assert origin_check(settings_of(TWO_LISTED))(origin, environ) is by_listed


@pytest.mark.parametrize("bad", ["https://a.example", "a.example:8000", "a b", "a.example/x", "*.example", "a..b"])
def test_a_host_that_is_none_is_told_at_start(bad: str) -> None:
    """With what is expected."""
    with pytest.raises(SettingsError, match=r"HEADGATE_HOSTS=.*host names such as"):
        settings_of({"HOSTS": bad})


class Application:
    """Any application behind the guard. Counts its requests."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests += 1
        start_response("200 OK", [])
        return [b"a page"]


def answer(application: Any, path: str, environ: dict[str, str]) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body."""
    told: list[Any] = []
    before, _, query = path.partition("?")
    request = {"REQUEST_METHOD": "GET", "PATH_INFO": before, "QUERY_STRING": query, **environ}
    body = b"".join(application(request, lambda status, headers: told.extend((status, dict(headers)))))
    return told[0], told[1], body


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/events", "/socket.io/?EIO=4&transport=polling", "/no/such/page"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example"])
def test_a_name_that_was_rebound_to_the_gateway_gets_nothing(path: str, host: str) -> None:
    """On every path, with an origin of that name or with a forwarded one; the answer names the setting."""
    pages = Application()
    guarded = Hosts(settings_of(ALONE)).guard(pages)
    forwarded = {"x_forwarded_host": "localhost", "x_forwarded_for": "127.0.0.1"}
    for more in ({}, {"origin": f"http://{host}"}, forwarded):
        status, headers, body = answer(guarded, path, sent(host, **more))
        error = json.loads(body)["error"]
        assert (status, error["code"], error["host"]) == ("421 Misdirected Request", "unknown_host", host)
        assert "HEADGATE_HOSTS" in error["message"]
        assert headers == {"Content-Type": "application/json", "Content-Length": str(len(body))}
    assert pages.requests == 0
    assert answer(guarded, path, sent("127.0.0.1:8000")) == ("200 OK", {}, b"a page")
