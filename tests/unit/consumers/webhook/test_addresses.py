"""Addresses: which are public, against Python's own table, and the effect of an operator's exceptions."""

import ipaddress
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.consumers.webhook.addresses import Allowed, kind_of, read_allowed
from headgate.settings.addresses.http_target import Address

PUBLIC = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.169.0.1", "2606:4700::1111", "2a00:1450::1"]
REFUSED = {
    "unspecified": "0.0.0.0 0.1.2.3 ::",
    "private": "10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.1.1 ::ffff:a00:1 fc00::1 fd12:3456::1 fec0::1",
    "carrier-grade NAT": "100.64.0.1",
    "cloud metadata": (
        "100.100.100.200 168.63.129.16 169.254.169.254 192.0.0.192 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe fd00:ec2::254"
    ),
    "loopback": "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 64:ff9b::127.0.0.1",
    "link-local": "169.254.0.1 fe80::1 fe80::1%2",
    "reserved": "192.0.0.1 240.0.0.1 255.255.255.255 ::127.0.0.1 64:ff9b:1::1 100::1 2001:20::1 4000::1 5f00::1",
    "documentation": "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1",
    "6to4": "192.88.99.1 2002:7f00:1:: 2002:a00:1::1",
    "benchmarking": "198.18.0.1",
    "multicast": "224.0.0.1 239.255.255.255 ff02::1",
    "Teredo": "2001::1 2001:0:5ef5:79fd::1",
}


@pytest.mark.parametrize(("kind", "address"), [(kind, each) for kind, all_ in REFUSED.items() for each in all_.split()])
def test_an_address_that_is_not_public_is_told_by_its_kind(kind: str, address: str) -> None:
    """Also inside IPv6."""
    assert kind_of(ipaddress.ip_address(address)) == kind


@pytest.mark.parametrize("address", [*PUBLIC, "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_a_public_address_has_no_kind(address: str) -> None:
    """NAT64 is how a network without IPv4 reaches the rest of the world."""
    assert kind_of(ipaddress.ip_address(address)) is None


@given(st.ip_addresses())
@example(ipaddress.ip_address("2001:1ff:ffff::1"))
def test_nothing_counts_as_public_that_python_says_is_not(address: Address) -> None:
    """Two tables of the same registries; ours may be the stricter one, but for the IPv4 inside IPv6."""
    carries_ipv4 = str(address).startswith(("::ffff:", "64:ff9b::"))
    if kind_of(address) is None and not carries_ipv4:
        assert address.is_global
        assert not address.is_multicast


def test_a_network_lets_its_addresses_through_and_no_others() -> None:
    """Every kind of address passes, link-local ones too, because the operator has named the network."""
    allowed = read_allowed(["10.1.0.0/16", "169.254.7.7", "fd00::/8"])

    def refusal(address: str) -> str | None:
        return allowed.refusal(ipaddress.ip_address(address), "example.com", 443)

    assert [refusal(address) for address in ("10.1.2.3", "::ffff:10.1.2.3", "169.254.7.7", "fd12::1", "8.8.8.8")] == [None] * 5
    assert refusal("10.2.0.1") == "private"
    assert refusal("169.254.7.8") == "link-local"


def test_a_place_lets_its_host_and_port_through_at_private_addresses() -> None:
    """Not at another port, not under another name, and never at a metadata, link-local or multicast address."""
    allowed = read_allowed("Hooks.Internal.:8443, [FD00:0::1]:80")
    private = ipaddress.ip_address("10.0.0.1")

    assert allowed.refusal(private, "hooks.internal", 8443) is None
    assert allowed.refusal(ipaddress.ip_address("fd00::1"), "fd00::1", 80) is None
    assert allowed.refusal(private, "hooks.internal", 443) == "private"
    assert allowed.refusal(private, "other.internal", 8443) == "private"
    for address in ("169.254.169.254", "169.254.1.1", "224.0.0.1", "0.0.0.0", "fe80::1", "fd00:ec2::254", "100.100.100.200"):
        assert allowed.refusal(ipaddress.ip_address(address), "hooks.internal", 8443) == kind_of(ipaddress.ip_address(address))


def test_nothing_is_allowed_unless_it_is_named() -> None:
    """The default."""
    assert read_allowed("") == Allowed()
    assert Allowed().refusal(ipaddress.ip_address("127.0.0.1"), "localhost", 80) == "loopback"


@pytest.mark.parametrize(
    "word", ["10.0.0.1/8", "10.0.0.0/33", "localhost", "localhost:", ":80", "a:0", "a:65536", "a/b:80", "u@a:80", "*"]
)
def test_a_word_that_is_neither_a_network_nor_a_place_is_refused(word: str) -> None:
    """A network with bits beyond its mask is a slip of the pen, too."""
    with pytest.raises(ValueError, match=re.escape(repr(word)) + r"(: | does not)"):
        read_allowed(["10.0.0.0/8", word])
