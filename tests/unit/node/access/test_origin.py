"""Hosts and origins: a table of deployments and of the headers from a browser, a proxy or an attacker."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from headgate.errors import SettingsError, UnknownHost
from headgate.node.access.origin import Hosts, origin_check, origins_with
from headgate.settings.settings import Settings

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
ANY_LABEL = {"ALLOWED_ORIGINS": "https://*.example.com", "HOST": "0.0.0.0"}
MOBILE = {"ALLOWED_ORIGINS": "capacitor://localhost,app://."}
TENANTS = {"HOSTS": "*.shop.example.com", "PROXIES": "1"}
FOR = "203.0.113.9"


def sent(host: str = "", **headers: str) -> dict[str, str]:
    """The WSGI environment of a request with these headers."""
    environ = {"HTTP_" + name.upper(): value for name, value in headers.items()}
    return {"wsgi.url_scheme": "http", **({"HTTP_HOST": host} if host else {}), **environ}


def by_proxy(host: str, **headers: str) -> dict[str, str]:
    return sent(host, x_forwarded_for=FOR, **headers)


# deployment, headers, whether the host is ours
HOSTS = [
    (ALONE, sent("127.0.0.1:8000"), True),
    (ALONE, sent("localhost:8000"), True),
    (ALONE, sent("LOCALHOST."), True),
    (ALONE, sent("[::1]:8000"), True),
    (ALONE, sent(), True),  # HTTP/1.0: a health check, never a browser
    (ALONE, sent("evil.example:8000"), False),  # rebound to 127.0.0.1
    (ALONE, sent("localhost.evil.example"), False),
    (ALONE, sent("127.0.0.1.evil.example"), False),
    (ALONE, sent("evil.example", x_forwarded_host="localhost"), False),  # no setting names a proxy
    (ALONE, by_proxy("evil.example"), False),
    (ALONE, sent("localhost@evil.example"), False),
    (ALONE, sent("localhost:80:80"), False),
    (ALONE, sent("localhost, evil.example"), False),
    (ALONE, sent("[::1"), False),
    (ALONE, sent("x" * 5000), False),
    (ALONE, sent("10.0.0.7:8000"), True),  # an address cannot be rebound
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
    (LISTED_HOST, by_proxy("[2001:db8:0:0::1]"), True),
    (ALONE, sent("127.0.0.2:8000"), True),
    (ALONE, sent("shop.localhost:8000"), True),
    (ALONE, sent("evillocalhost:8000"), False),
    (ALONE, sent("[0:0:0:0:0:0:0:1]:8000"), True),
    (ANY_LABEL, sent("shop.example.com"), True),
    (ANY_LABEL, sent("example.com"), False),
    (TENANTS, by_proxy("one.shop.example.com"), True),
    (TENANTS, by_proxy("shop.example.com"), False),
    ({"ALLOWED_ORIGINS": "chrome-extension://abc"}, sent("abc"), False),  # no name of a machine
    (PROXIED, sent("inner", forwarded="for=192.0.2.1;host=shop.example.com"), True),
    (LISTED_HOST, sent("inner", forwarded="for=192.0.2.1;host=evil.example"), False),
    (LISTED_HOST, sent("münchen.de"), False),
    (LISTED_HOST, by_proxy("headgate_pool", x_forwarded_host="shop.example.com"), True),
    (LISTED_HOST, by_proxy("shop.example.com", x_forwarded_host="evil.example"), False),
    ({**LISTED_HOST, **TWICE_PROXIED}, by_proxy("inner", x_forwarded_host="evil.example, shop.example.com, inner"), True),
    ({**LISTED_HOST, **TWICE_PROXIED}, by_proxy("inner", x_forwarded_host="shop.example.com, evil.example, inner"), False),
]
HTTP, HTTPS = "http://shop.example.com", "https://shop.example.com"
# deployment, headers beside the origin, the origin, whether its pages may connect
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
    # Traefik says wss of a WebSocket; others write in capitals.
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="wss"), HTTPS, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="wss"), HTTP, False),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="ws"), HTTP, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="HTTPS"), HTTPS, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="wss, WSS"), HTTPS, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="on"), HTTPS, False),
    (PROXIED, by_proxy("SHOP.example.com.:443", x_forwarded_proto="https"), HTTPS, True),
    (PROXIED, by_proxy("inner:8000", x_forwarded_proto="https", x_forwarded_host="shop.example.com:443"), HTTPS, True),
    (PROXIED, by_proxy("inner", x_forwarded_proto="https", x_forwarded_host="shop.example.com:8443"), f"{HTTPS}:8443", True),
    (PROXIED, by_proxy("inner", x_forwarded_proto="https", x_forwarded_host="shop.example.com:8443"), HTTPS, False),
    (PROXIED, by_proxy("[2001:DB8:0::1]:8443", x_forwarded_proto="https"), "https://[2001:db8::1]:8443", True),
    # nginx's $host has no port; X-Forwarded-Port has it then.
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https", x_forwarded_port="8443"), f"{HTTPS}:8443", True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https", x_forwarded_port="8443"), HTTPS, False),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https", x_forwarded_port="443"), HTTPS, True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="wss", x_forwarded_port="80"), HTTPS, True),  # of an inner proxy
    (PROXIED, by_proxy("shop.example.com:8443", x_forwarded_proto="https", x_forwarded_port="443"), f"{HTTPS}:8443", True),
    (PROXIED, by_proxy("shop.example.com", x_forwarded_proto="https", x_forwarded_port="x"), HTTPS, True),
    (ALONE, sent("shop.example.com", x_forwarded_port="8443"), HTTP, True),  # no setting names a proxy
    # RFC 7239
    (PROXIED, sent("inner", forwarded="for=192.0.2.1;proto=https;host=shop.example.com"), HTTPS, True),
    (PROXIED, sent("inner", forwarded='For="[2001:db8::1]:47";Proto=WSS;Host="shop.example.com:443"'), HTTPS, True),
    (PROXIED, sent("shop.example.com", forwarded="for=192.0.2.1;proto=https"), HTTPS, True),
    (PROXIED, sent("shop.example.com", forwarded="proto=https, for=192.0.2.1"), HTTPS, False),  # the first is the page's own
    (PROXIED, sent("shop.example.com", forwarded="proto=https;proto=http"), HTTPS, False),
    (PROXIED, sent("shop.example.com", forwarded='proto="https'), HTTPS, False),
    (TWICE_PROXIED, sent("inner", forwarded="proto=https;host=shop.example.com, proto=http;host=inner"), HTTPS, True),
    (ALONE, sent("127.0.0.1", forwarded="proto=https;host=shop.example.com"), HTTPS, False),
    # Beside headers of the other kind, Forwarded may be a client's.
    (PROXIED, by_proxy("shop.example.com", forwarded="proto=https;host=shop.example.com"), HTTPS, False),
    (PROXIED, sent("inner", forwarded="host=shop.example.com", x_forwarded_proto="https"), HTTPS, False),
    (DEVELOPMENT, sent("localhost:8000"), "http://localhost:8000", True),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "http://localhost:5173", True),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "https://[::1]:5173", True),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "http://127.0.0.7", True),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "http://shop.localhost:3000", True),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "http://192.168.1.5:5173", False),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "http://localhost.evil.example", False),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "http://127.0.0.1.evil.example", False),
    (DEVELOPMENT, sent("127.0.0.1:8000"), "capacitor://localhost", False),
    ({**DEVELOPMENT, "ALLOWED_ORIGINS": "https://app.example.com"}, sent("127.0.0.1:8000"), "http://localhost:5173", True),
    (MOBILE, sent("127.0.0.1:8000"), "capacitor://localhost", True),
    (MOBILE, sent("127.0.0.1:8000"), "app://.", True),
    (MOBILE, sent("127.0.0.1:8000"), "http://localhost", False),
    (ANY_LABEL, sent("gate.example.com"), "https://shop.example.com", True),
    (ANY_LABEL, sent("gate.example.com"), "https://SHOP.example.com:443", True),
    (ANY_LABEL, sent("gate.example.com"), "https://example.com", False),
    (ANY_LABEL, sent("gate.example.com"), "https://a.shop.example.com", False),
    (ANY_LABEL, sent("gate.example.com"), "http://shop.example.com", False),
    (ANY_LABEL, sent("gate.example.com"), "https://shop.example.com:8443", False),
    (ANY_LABEL, sent("gate.example.com"), "https://shop.example.com.evil.example", False),
    (ANY_LABEL, sent("gate.example.com"), "https://evilexample.com", False),
    (ANY_LABEL, sent("gate.example.com"), "https://*.example.com", False),
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
    ("https://app.example.com.evil.example", False, False),
    ("https://evil.example", False, False),
    ("https://evil-app.example.com", False, False),
    ("https://sub.app.example.com", False, False),
    ("https://example.com", False, False),
    ("wss://app.example.com", False, True),
    ("https://app.example.com, https://evil.example", False, False),
    ("https://app.example.com https://evil.example", False, False),
    ("http://127.0.0.1", False, False),
    ("http://127.0.0.1:1", False, False),
    ("http://localhost", False, False),
    ("http://localhost:8000", False, False),
    ("null", False, False),
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
    """Scheme, host and port, each by its value; tests/unit/addresses/test_origins.py has the spellings of one."""
    environ = sent("127.0.0.1:8000")
    assert origin_check(settings_of(ALONE))(origin, environ) is by_alone
    assert origin_check(settings_of(TWO_LISTED))(origin, environ) is by_listed


@pytest.mark.parametrize(
    "bad", ["https://a.example", "a.example:8000", "a b", "a.example/x", "*.example", "a..b", "1.2.3", "a*.b.c"]
)
def test_a_host_that_is_none_is_told_at_start(bad: str) -> None:
    """With the expected form."""
    with pytest.raises(SettingsError, match=r"(?s)HEADGATE_HOSTS=.*host names such as"):
        settings_of({"HOSTS": bad})


class Application:
    """Any application after the guard. Counts its requests."""

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


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/events", "/socket.io/?EIO=4&transport=polling", "/no/such/page"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example"])
def test_a_name_that_was_rebound_to_the_gateway_gets_nothing(path: str, host: str) -> None:
    """On every path, with an origin of that name or with a forwarded one; the answer names the setting."""
    pages, refusals = Application(), list[UnknownHost]()
    guarded = Hosts(settings_of(ALONE)).guard(pages, refusals.append)
    forwarded = {"x_forwarded_host": "localhost", "x_forwarded_for": "127.0.0.1"}
    for more in ({}, {"origin": f"http://{host}"}, forwarded):
        status, headers, body = answer(guarded, path, sent(host, **more))
        error = json.loads(body)["error"]
        assert (status, error["code"], error["host"]) == ("421 Misdirected Request", "unknown_host", host)
        assert "HEADGATE_HOSTS" in error["message"]
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"
    assert (pages.requests, len(refusals)) == (0, 3)
    assert answer(guarded, path, sent("127.0.0.1:8000")) == ("200 OK", {}, b"a page")


def test_a_page_of_a_listed_origin_may_read_why_its_request_was_refused() -> None:
    """The client then says `unknown_host`, not "unreachable"; a page of another origin reads nothing."""
    guarded = Hosts(settings_of({"ALLOWED_ORIGINS": "https://app.example.com"})).guard(Application(), lambda _: None)
    _, headers, _ = answer(guarded, "/socket.io/", sent("evil.example", origin="https://app.example.com"))
    assert headers["Access-Control-Allow-Origin"] == "https://app.example.com"
    assert headers["Access-Control-Expose-Headers"] == "Retry-After"
    _, headers, _ = answer(guarded, "/socket.io/", sent("evil.example", origin="https://evil.example"))
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("deployment", "environ", "origin", "line"),
    [
        (ALONE, sent("127.0.0.1:8000"), "http://localhost:5173", "http://127.0.0.1:8000,http://localhost:5173"),
        (MOBILE, sent("127.0.0.1:8000"), "HTTPS://B.example:443", "capacitor://localhost,app://.,https://b.example"),
        (PROXIED, by_proxy("shop.example.com"), "https://b.example", "https://b.example"),  # its own is not known
        (ALONE, sent("127.0.0.1:8000"), "null", None),
        (ALONE, sent("127.0.0.1:8000"), "https://b.example, https://c.example", None),
    ],
)
def test_the_line_to_paste_keeps_what_may_connect_now(
    deployment: dict[str, str], environ: dict[str, Any], origin: str, line: str | None
) -> None:
    """Once a list is set, the gateway's own origin must be in it."""
    expected = None if line is None else f"HEADGATE_ALLOWED_ORIGINS={line}"
    assert origins_with(settings_of(deployment), origin, environ) == expected
