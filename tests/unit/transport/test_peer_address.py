"""The address for the counts of a request: seen through the proxies in front, in one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.peer_address import address_key, address_of


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
