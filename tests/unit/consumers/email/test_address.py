"""email/address.py: which texts are an address, and their one spelling."""

import pytest

from headgate.consumers.email.address import check_address, read_mailbox


@pytest.mark.parametrize(
    ("raw", "spelt"),
    [
        ("jo@example.com", "jo@example.com"),
        ("  jo@example.com ", "jo@example.com"),
        ("Jo.Doe+news@Example.COM", "Jo.Doe+news@example.com"),
        ("o'hara=x@mail-1.example.com", "o'hara=x@mail-1.example.com"),
        ("root@localhost", "root@localhost"),
        ("jo@bücher.example", "jo@xn--bcher-kva.example"),
        ("jürgen@example.com", "jürgen@example.com"),
        ("a@straße.de", "a@xn--strae-oqa.de"),
        ("a@βόλος.com", "a@xn--nxasmm1c.com"),
        ("a@نامه\u200cای.com", "a@xn--mgba3gch31f060k.com"),
        ("a@example.h2", "a@example.h2"),
        ("用户@例え.jp", "用户@xn--r8jz45g.jp"),
        ("a" * 64 + "@" + "b" * 63 + ".example.com", "a" * 64 + "@" + "b" * 63 + ".example.com"),
    ],
)
def test_an_address_has_one_spelling(raw: str, spelt: str) -> None:
    """The domain in lower case ASCII; the part before the @ is the other side's own."""
    assert check_address(raw) == spelt
    assert check_address(spelt) == spelt


@pytest.mark.parametrize(
    "raw",
    [
        None, 3, ["jo@example.com"], "", " ", "jo", "@example.com", "jo@", "jo@@example.com", "jo@a@example.com",
        # lines, blanks and controls
        "jo@example.com\n", "jo\r\nBcc: x@example.com", "jo@example.com\r\nRCPT TO:<x@example.com>", "jo\t@example.com",
        "jo @example.com", "jo@exam ple.com", "jo\x00@example.com", "jo\u00a0@example.com", "jo\u2028@example.com",
        # more than one plain address
        "jo@example.com,x@example.com", "<jo@example.com>", "Jo <jo@example.com>", '"jo"@example.com', "jo(x)@example.com",
        "jo;x@example.com", "jo:x@example.com", "jo\\@example.com", ".jo@example.com", "jo.@example.com", "j..o@example.com",
        # no host name
        "jo@[127.0.0.1]", "jo@127.0.0.1", "jo@1.2.3.4", "jo@::1", "jo@0x7f.1", "jo@example..com", "jo@.example.com",
        "jo@example.com.", "jo@example.com\u3002", "jo@-example.com", "jo@example-.com", "jo@exa_mple.com",
        "a" * 65 + "@example.com", "jo@" + "a" * 64 + ".com", "jo@" + ".".join(["a" * 60] * 5),
        # letters that hide, or pass for others
        "jo@exa\u200dmple.com", "jo\u200b@example.com", "jo\u202e@example.com", "jo\uff20example.com", "\ufb01sh@example.com",
        "jo@exam\u200bple.com\u2028", "jo@exa\u2100mple.com", "😀@example.com", "\ud800@example.com", "jo@\ud800.com",
        "ｊｏ@example.com",
    ],
)  # fmt: skip
def test_a_text_that_is_no_address_is_refused(raw: object) -> None:
    """Anything that carries, hides or passes for more than one plain address; the reason does not repeat it."""
    with pytest.raises(ValueError, match=r"^(it is|expected|a dot|a character|the part)") as refused:
        check_address(raw)
    assert not isinstance(raw, str) or len(raw) < 4 or raw not in str(refused.value)


def test_a_mailbox_has_a_name_and_an_address() -> None:
    """With or without quotes, with or without a name."""
    assert read_mailbox("Headgate alerts <a@example.com>") == ("Headgate alerts", "a@example.com")
    assert read_mailbox('"Bühne, Tor 4" <a@example.com>') == ("Bühne, Tor 4", "a@example.com")
    assert read_mailbox("a@example.com") == ("", "a@example.com")


@pytest.mark.parametrize(
    "raw",
    [
        7,
        "",
        "Jo",
        "Jo <>",
        "Jo <jo>",
        "Jo\r\nBcc: x <a@example.com>",
        "<a@example.com> <b@example.com>",
        "=?utf-8?q?x=0A?= <a@example.com>",
        'a"b"c <a@example.com>',
        "x" * 101 + " <a@example.com>",
        "Jo\x00 <a@example.com>",
        "Jo <a@example.com>, b@example.com",
    ],
)
def test_a_text_that_is_no_mailbox_is_refused(raw: object) -> None:
    """An invalid name for a header, or anything beside one address."""
    with pytest.raises(ValueError, match=r"^(it is|expected|the name)"):
        read_mailbox(raw)
