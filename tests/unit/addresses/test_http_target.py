"""URLs taken apart: the kept parts, and the refused spellings, on which parsers disagree."""

import pytest

from headgate.settings.addresses.http_target import Target, read_target


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", Target("https", "example.com", 443, "/")),
        (" https://Example.COM./Hook?a=b%20c ", Target("https", "example.com", 443, "/Hook?a=b%20c")),
        ("http://example.com:8080/a/b#part", Target("http", "example.com", 8080, "/a/b")),
        ("https://bücher.example/ü?q=ö", Target("https", "xn--bcher-kva.example", 443, "/%C3%BC?q=%C3%B6")),
        ("https://straße.example/", Target("https", "xn--strae-oqa.example", 443, "/")),
        ("http://192.0.2.1/", Target("http", "192.0.2.1", 80, "/")),
        ("http://[2001:DB8:0::1]:81/", Target("http", "2001:db8::1", 81, "/")),
        ("http://service_a.internal/", Target("http", "service_a.internal", 80, "/")),
    ],
)
def test_a_url_is_taken_apart(url: str, target: Target) -> None:
    """Names are lower case and ASCII, without the dot at the end; the path keeps its escapes; a fragment is not sent."""
    assert read_target(url) == target


def test_the_part_that_may_be_shown_holds_no_path() -> None:
    """The path of a webhook is often a secret."""
    target = read_target("https://[2001:db8::1]:8443/services/T0/secret?token=secret")

    assert repr(target) == "https://[2001:db8::1]:8443/…"
    assert target.authority == "[2001:db8::1]:8443"


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com/hook", "//example.com/hook", "ftp://example.com/", "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL", "javascript:alert(1)", "https://", "https:///hook", "https://:443/",
        "http://example.com:0/", "http://example.com:65536/", "http://example.com:port/",
        # user and password: a host in front of the host
        "https://user@example.com/", "https://user:word@example.com/", "https://example.com@127.0.0.1/", "https://@127.0.0.1/",
        # backslashes, spaces and controls
        "https://example.com\\@127.0.0.1/", "https:\\\\127.0.0.1/", "https://127.0.0.1\\.example.com/",
        "https://exa mple.com/", "https://example.com/a b", "https://127.0.0.1\t.example.com/",
        "https://example.com/\r\nHost: 127.0.0.1", "https://example.com\x00.internal/",
        # addresses that are not written plainly
        "http://2130706433/", "http://0x7f000001/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
        "http://0177.0.0.1/", "http://0x7f.0.0.1/", "http://127.0.0.0x1/", "http://127.0.0.01/", "http://127.0.0.1.1/",
        "http://127.0.0.256/", "http://1.2.3.4.5.6.7.8/", "http://[::1/", "http://[127.0.0.1]/", "http://[fe80::1%25eth0]/",
        "http://[::1%1]/", "http://%31%32%37.0.0.1/",
        # invalid names
        "https://a..b/", "https://.example.com/", "https://example.com../", "https://exa$mple.com/",
        f"https://{'a' * 64}.com/", f"https://{'a.' * 130}com/", f"https://example.com/{'a' * 2048}",
        # letters that become another host when they are normalised
        "https://example.com／127.0.0.1/", "https://127.0.0.1℀.example/",
    ],
)  # fmt: skip
def test_a_text_that_is_no_plain_url_is_refused(url: str) -> None:
    """None of these is given to a resolver."""
    with pytest.raises(ValueError):  # noqa: PT011
        read_target(url)


@pytest.mark.parametrize("url", ["http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://127.0.0.1./"])
def test_an_address_in_odd_letters_is_seen_to_be_one(url: str) -> None:
    """IDNA makes plain digits and dots of them, so that the address check sees the real address."""
    assert str(read_target(url).address) == "127.0.0.1"
