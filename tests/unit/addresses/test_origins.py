"""Origins and hosts: every spelling of one is one value, and an invalid one is refused with the reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.settings.addresses.origins import (
    authority_in_header,
    is_loopback,
    origin_in_header,
    parse_authority,
    parse_host,
    parse_origin,
    parse_origin_pattern,
)

SPELLINGS = [
    ("https://Example.com", "https://example.com"),
    ("HTTPS://example.com:443", "https://example.com"),
    ("https://example.com:0443", "https://example.com"),
    ("https://example.com.", "https://example.com"),
    ("wss://example.com", "https://example.com"),
    ("ws://example.com:80", "http://example.com"),
    ("http://example.com:443", "http://example.com:443"),
    ("https://[2001:DB8:0:0:0:0:0:1]:8443", "https://[2001:db8::1]:8443"),
    ("https://m\u00fcnchen.de", "https://xn--mnchen-3ya.de"),
    ("https://M\u00dcNCHEN.de", "https://xn--mnchen-3ya.de"),
    ("https://fa\u00df.de", "https://xn--fa-hia.de"),  # IDNA 2003 would allow fass.de, which is another's
    ("https://b\u00fccher\u3002example", "https://xn--bcher-kva.example"),
    ("https://xn--mnchen-3ya.de", "https://xn--mnchen-3ya.de"),
    ("capacitor://localhost", "capacitor://localhost"),
    ("ionic://", "ionic://"),
    ("tauri://localhost", "tauri://localhost"),
    ("app://.", "app://."),
    ("app://obsidian.md", "app://obsidian.md"),
    ("chrome-extension://abcdefghijklmnopabcdefghijklmnop", "chrome-extension://abcdefghijklmnopabcdefghijklmnop"),
    ("moz-extension://6F1C-4", "moz-extension://6f1c-4"),
    ("https://*.Example.com:443", "https://*.example.com"),
    ("https://*.m\u00fcnchen.de", "https://*.xn--mnchen-3ya.de"),
    ("http://*.localhost:3000", "http://*.localhost:3000"),
]
REFUSED = [
    ("https://user:secret@example.com", "user info"),
    ("https://example.com/", "a path"),
    ("https://example.com/app?x=1#top", "a path and a query and a fragment"),
    ("https://example.com#", "a fragment"),
    ("example.com", "no scheme"),
    ("//example.com", "no scheme"),
    ("https:example.com", "no scheme"),
    ("null", "sandboxed"),
    ("https://", "not host"),
    ("https://exa mple.com", "a blank"),
    ("https://ex%61mple.com", "each label of a host name"),
    ("https://example..com", "each label of a host name"),
    ("https://example.com:0", "port 0"),
    ("https://example.com:99999", "port 99999"),
    ("https://example.com:port", "not host"),
    ("https://[::1", "not host"),
    ("https://[fe80::1%25eth0]", "zone"),
    ("https://::1", "not host"),
    ("https://127.1", "IPv4"),
    ("https://0x7f.0.0.1", "IPv4"),
    ("https://[1.2.3.4]", "IPv6"),
    ("https://\U0001f4a9.example", "IDNA 2008"),
    ("https://*", "whole label"),
    ("https://*.com", "anyone can have"),
    ("https://*.co.uk", "anyone can have"),
    ("https://*.github.io", "anyone can have"),
    ("https://*.192.0.2.1", "anyone can have"),
    ("https://*.*.example.com", "whole label"),
    ("https://app*.example.com", "whole label"),
    ("https://app.*.example.com", "whole label"),
    ("*://example.com", "no scheme"),
    ("https://example.com:*", "whole label"),
]


@pytest.mark.parametrize(("text", "spelling"), SPELLINGS)
def test_each_spelling_of_an_origin_is_one_value(text: str, spelling: str) -> None:
    """The text of a value is as browsers send it, and parses to the same value."""
    origin = parse_origin_pattern(text)
    assert str(origin) == spelling
    assert parse_origin_pattern(spelling) == origin


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_is_no_origin_is_refused_with_the_reason(text: str, reason: str) -> None:
    """An origin that no browser sends would never match, without notice."""
    with pytest.raises(ValueError, match=reason):
        parse_origin_pattern(text)


@given(st.text(max_size=40) | st.text("ahtps:/.[]0123456789@%*-_", max_size=40).map(lambda rest: f"http://{rest}"))
def test_any_text_is_an_origin_or_refused(text: str) -> None:
    """Nothing else is raised, whatever a client sends; and an origin has one spelling."""
    try:
        origin = parse_origin(text)
    except ValueError:
        assert origin_in_header(text) is None
    else:
        assert parse_origin(str(origin)) == origin


def test_a_header_is_short_and_ascii() -> None:
    """Its bytes arrive as latin-1, so a text that looks like a name with an umlaut is none."""
    for host in ("m\u00fcnchen.de", "a" * 100_000):
        assert origin_in_header(f"https://{host}") is None
        assert authority_in_header(host) is None


def test_the_host_and_the_port_of_a_header_are_values() -> None:
    """A port may be missing, and an IPv6 address has brackets."""
    assert parse_authority("Example.com:8443") == ("example.com", 8443)
    assert parse_authority("[::0:1]") == ("::1", None)
    assert parse_host("[2001:DB8::1]") == parse_host("2001:db8:0::1") == "2001:db8::1"


def test_every_loopback_address_and_no_other_host_means_this_machine() -> None:
    """127.0.0.0/8, also inside IPv6 (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3); not the host that is every address."""
    here = ["localhost", "127.0.0.1", "127.8.9.1", "::1", "::ffff:7f00:1"]
    others = [None, "", "example.com", "localhost.example", "128.0.0.1", "0.0.0.0", "::", "fe80::1"]
    assert [host for host in (*here, *others) if is_loopback(host)] == here
