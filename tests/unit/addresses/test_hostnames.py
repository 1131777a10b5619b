"""Hosts: one ASCII spelling for each host, and a sentence for an invalid one."""

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.settings.addresses.origins import MAX_NAME_CHARACTERS, ascii_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM.", "example.com"),
        ("straße.de", "xn--strae-oqa.de"),
        ("faß。de", "xn--fa-hia.de"),
        ("βόλος.com", "xn--nxasmm1c.com"),
        ("बन\u094d\u200dष.com", idna.encode("बन\u094d\u200dष.com").decode()),
        ("نامه\u200cای.com", "xn--mgba3gch31f060k.com"),
        ("BÜCHER.ex_ample.de", "xn--bcher-kva.ex_ample.de"),
        ("ｅｘａｍｐｌｅ.com", "example.com"),
        ("XN--STRAE-OQA.de", "xn--strae-oqa.de"),
        ("my_redis", "my_redis"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("1.2.3.4.", "1.2.3.4"),
        ("2001:DB8:0::0001", "2001:db8::1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    """IDNA 2008, non-transitional, as browsers look up and the registries sell. It is stable."""
    assert ascii_host(text) == host
    assert ascii_host(host) == host


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "a..b", ".a", "-a.b", "a-.b", "a b", "a\nb", "a\0b", "a/b", "a@b", "a%2eb", "a:80", "[::1", "[a]", "::1%",
        "::1%a b", "0x7f.1", "127.1", "1270.1", "1.2.3.256", "01.2.3.4", "a.1", "a\u200db.de", "a\u200cb.de", "a\u202eb.de",
        "☃.net", "i❤.ws", "\ud800.de", "ü" * 63 + ".de", "a" * 64, "a." * 130, "ａ" * 10_000, "a\u2024\u2024b", "\u00ad",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused_in_one_printable_sentence(text: str) -> None:
    """Nothing falls back to IDNA 2003, which drops joiners and turns ß into ss."""
    with pytest.raises(ValueError, match=r"host|IPv6") as refused:
        ascii_host(text)
    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()


@given(st.text(max_size=40))
def test_any_text_is_a_plain_host_or_refused(text: str) -> None:
    """An accepted text is ASCII that Python's own codec leaves as it is, so nothing below encodes it again."""
    try:
        host = ascii_host(text)
    except ValueError:
        return
    assert len(host) <= MAX_NAME_CHARACTERS
    assert host.encode("idna").decode() == host or ":" in host
    assert ascii_host(host) == host
