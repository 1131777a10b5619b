"""The proxies' headers of a request, of which only our own proxies' count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.peer_address import address_of, forwarded_host, forwarded_scheme

PEER = "198.51.100.7"
# headers, proxies, the address that the request counts for; X-Forwarded-For alone: test_peer_address.py
ADDRESSES = [
    ({"FORWARDED": "for=192.0.2.1"}, 0, PEER),
    ({"FORWARDED": "for=192.0.2.1"}, 1, "192.0.2.1"),
    ({"FORWARDED": 'for="192.0.2.1:4711"'}, 1, "192.0.2.1"),
    ({"FORWARDED": "for=192.0.2.1:4711"}, 1, "192.0.2.1"),  # not RFC 7239, and common
    ({"FORWARDED": 'For="[2001:db8:cafe::17]:4711"'}, 1, "2001:db8:cafe::/64"),
    ({"FORWARDED": "for=[2001:db8:cafe::17]"}, 1, "2001:db8:cafe::/64"),
    ({"FORWARDED": "for=198.51.100.9;by=1.2.3.4;proto=http, for=192.0.2.1 ; proto=https"}, 1, "192.0.2.1"),
    ({"FORWARDED": "for=192.0.2.1, for=10.0.0.1"}, 2, "192.0.2.1"),
    ({"FORWARDED": "for=192.0.2.1"}, 2, PEER),
    ({"FORWARDED": "for=_hidden, for=_SEVKISEK"}, 1, "_sevkisek"),
    ({"FORWARDED": "proto=https"}, 1, PEER),
    ({"FORWARDED": 'for="192.0.2.1'}, 1, PEER),
    ({"FORWARDED": "for=192.0.2.1;for=192.0.2.2"}, 1, PEER),
    ({"FORWARDED": "for 192.0.2.1"}, 1, PEER),
    ({"FORWARDED": ";;,for=192.0.2.1;,"}, 1, "192.0.2.1"),
    ({"FORWARDED": "for=192.0.2.1", "X_FORWARDED_FOR": "192.0.2.2"}, 1, "192.0.2.2"),
    ({"FORWARDED": "for=192.0.2.1", "X_FORWARDED_PROTO": "https"}, 1, PEER),  # the proxy writes the other kind
]


def environ(headers: dict[str, str]) -> dict[str, Any]:
    return {"REMOTE_ADDR": PEER, **{f"HTTP_{name}": value for name, value in headers.items()}}


@pytest.mark.parametrize(("headers", "proxies", "address"), ADDRESSES)
def test_a_request_counts_for_the_address_that_our_outermost_proxy_saw(
    headers: dict[str, str], proxies: int, address: str
) -> None:
    """A client may have written everything before it, and headers of a kind that the proxy does not write."""
    assert address_of(environ(headers), proxies) == address


def test_a_quoted_value_is_what_it_stands_for() -> None:
    """RFC 9110 section 5.6.4."""
    assert forwarded_host(environ({"FORWARDED": r'host="shop\.example.com";PROTO="WsS"'}), 1) == "shop.example.com"
    assert forwarded_scheme(environ({"FORWARDED": r'host="a,b;c";PROTO="WsS"'}), 1) == "https"


@given(st.text('for=proto;,"\\ [](:)1ab', max_size=60))
def test_any_header_is_read_or_ignored(text: str) -> None:
    """Nothing is raised, and nothing takes long."""
    assert forwarded_scheme(environ({"FORWARDED": text}), 1) in (None, "http", "https")
    address_of(environ({"FORWARDED": text}), 1)
