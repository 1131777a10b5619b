"""Hosts and origins: a table of deployments and of what a browser, a proxy or an attacker sends to them."""

from __future__ import annotations

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


@pytest.mark.parametrize("bad", ["https://a.example", "a.example:8000", "a b", "a.example/x", "*.example", "a..b"])
def test_a_host_that_is_none_is_told_at_start(bad: str) -> None:
    """With what is expected."""
    with pytest.raises(SettingsError, match=r"HEADGATE_HOSTS=.*host names such as"):
        settings_of({"HOSTS": bad})
