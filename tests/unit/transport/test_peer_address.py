"""The address for the counts of a request: seen through the proxies in front, whose headers alone count, in one spelling."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.peer_address import address_key, address_of, forwarded_host, forwarded_scheme


@pytest.mark.parametrize(
    ("proxies", "chain", "address"),
    [
        (0, None, "192.0.2.9"),
        (0, "203.0.113.5", "192.0.2.9"),
        (1, "203.0.113.5", "203.0.113.5"),
        (1, "10.0.0.1, 203.0.113.5", "203.0.113.5"),
        (2, "10.0.0.1, 203.0.113.5, 198.51.100.1", "203.0.113.5"),
        (2, "203.0.113.5", "192.0.2.9"),
        (1, None, "192.0.2.9"),
        (1, " , ", "192.0.2.9"),
        (1, "x" * 9999, "x" * 64),
    ],
)
def test_the_address_is_what_the_outermost_proxy_of_ours_saw(proxies: int, chain: str | None, address: str) -> None:
    """Entries that a client writes into X-Forwarded-For itself stand further left and do not count."""
    environ = {"REMOTE_ADDR": "192.0.2.9"} | ({"HTTP_X_FORWARDED_FOR": chain} if chain is not None else {})
    assert address_of(environ, proxies) == address


# The key that a visitor is counted under, and spellings of its address.
SPELLINGS = {
    "192.0.2.9": [
        *("192.0.2.9", " 192.0.2.9 ", "192.0.2.9:51234", "64:ff9b::192.0.2.9", "::ffff:192.0.2.9", "::FFFF:C000:0209"),
        *("[::ffff:192.0.2.9]:80", "[::ffff:192.0.2.9]:443"),
    ],
    "2001:db8:1:2::/64": [
        *("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:0DB8:0001:0002:0:0:0:5", "[2001:db8:1:2::9]"),
        *("[2001:db8:1:2::9]:8443", "2001:db8:1:2::9%eth0"),
    ],
    "2001:db8:1:3::/64": ["2001:db8:1:3::1"],
    "fe80::1": ["fe80::1%eth0", "fe80::1%eth1"],
    "fe80::2": ["FE80::2"],
    "unknown": ["unknown", "UNKNOWN"],
    "x" * 64: ["x" * 9999],
    **{each: [each] for each in ("::1", "127.0.0.1", "127.0.0.2", "", "1.2.3.4.5", "[", "2001:db8::/64")},
}


@pytest.mark.parametrize(("key", "address"), [(key, each) for key, spellings in SPELLINGS.items() for each in spellings])
def test_an_address_counts_under_one_key_however_it_is_spelt(address: str, key: str) -> None:
    """A visitor with IPv6 has 2^64 addresses, which count as one. Keys are their own keys."""
    assert address_key(address) == key
    assert address_key(key) == key
    assert address_of({"REMOTE_ADDR": address}, 0) == (key or None)
    assert not address or address_of({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": address}, 1) == key


@given(st.text(max_size=80))
def test_any_text_has_a_short_key(address: str) -> None:
    """A proxy may forward anything."""
    assert len(address_key(address)) <= 66


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
