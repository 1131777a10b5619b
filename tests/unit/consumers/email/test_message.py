"""email/message.py: headers with the intended values and nothing else, and bodies that arrive unchanged."""

import base64
import re
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.utils import parseaddr
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.consumers.email.address import Mailbox, read_mailbox
from headgate.consumers.email.message import Mail, MailText, _plain, compose, header_url, one_line

SENDER = ("Bühne, Tor 4", "alerts@example.org")


def mail(text: MailText, *, recipient: str = "jo@example.com", ids: tuple[str, ...] = ("e1",)) -> Mail:
    """Return the mail as it would go to a server."""
    return compose(SENDER, recipient, text, "the identity", ids)


def read(found: Mail) -> Any:
    """Return it as a mail program reads it."""
    return message_from_bytes(found.content, policy=policy.default)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  two \t words\r\nand more\n", "two words and more"),
        ("a\u2028b\u2029c\u0085d\x0be\x00f", "a b c d e f"),
        ("gpj\u202eexe\u2066x", "gpj exe x"),
        ("=?utf-8?q?x=0A?=", "= ?utf-8?q?x=0A?="),
        ("==??", "== ??"),
        ("Zoë 😀", "Zoë 😀"),
        ("", ""),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_a_line_is_one_printable_line(text: str, line: str) -> None:
    """A blank replaces each character that would end the line, hide in it or turn it around."""
    assert one_line(text) == line


def test_a_mail_without_a_subject_says_so() -> None:
    """An empty one is easily taken for a fault."""
    assert read(mail(MailText("\r\n", "text")))["Subject"] == "(no subject)"


def test_control_characters_are_taken_out_of_a_body() -> None:
    """A terminal or a mail program would obey them."""
    assert read(mail(MailText("s", "a\x00b\x1b[2Jc\rd\r\ne\u2028f"))).get_content() == "ab[2Jc\r\nd\r\nef\r\n"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com/u?a=b%40c&d=e#f", "https://example.com/u?a=b%40c&d=e#f"),
        (" https://example.com/a b<c>\r\nd,e ", "https://example.com/a%20b%3Cc%3E%0D%0Ad%2Ce"),
        ("https://example.com/?u==?utf-8?q?=0A?=", "https://example.com/?u==%3Futf-8?q?=0A?="),
        ("https://example.com/ü", "https://example.com/%C3%BC"),
        ("mailto:leave@example.com", "mailto:leave@example.com"),
        ("javascript:alert(1)", None),
        ("example.com", None),
        ("", None),
        ("https://example.com/" + "x" * 900, None),
    ],
)
def test_a_url_for_a_header_has_nothing_that_ends_it(text: str, url: str | None) -> None:
    """Percent-encoded where it must be; of a kind that a mail program may open; on one line."""
    assert header_url(text) == url


def test_machine_readable_headers_are_left_as_they_are() -> None:
    """Long ones whole, and a text like an encoded word is not decoded."""
    ids = ("e" * 128, "a:b~c_d-e.f")
    url = "https://example.com/" + "=?utf-8?q?=0ABcc:_x?=" + "u" * 300
    found = mail(MailText("s", "t", None, url), ids=ids)
    raw = message_from_bytes(found.content)
    assert (raw["List-Unsubscribe"], raw.get_all("X-Headgate-Event")) == (f"<{url}>", list(ids))
    assert raw["Message-ID"].endswith("@example.org>")


@pytest.mark.parametrize(
    "sender",
    [
        ("x", "a@example.com\r\nBcc: evil@example.com"),
        ("x\r\nBcc: evil@example.com", "a@example.com"),
        ("x\r\n Bcc: evil@example.com", "a@example.com"),
        ("x", "a@example.com\n"),
        ("x", "a@example.com, evil@example.com"),
    ],
)
def test_a_head_that_would_read_otherwise_does_not_leave(sender: Mailbox) -> None:
    """If something got past the checks of addresses, there would be no mail."""
    with pytest.raises(ValueError, match=r"would add a line or an address"):
        compose(sender, "jo@example.com", MailText("s", "t"), "the identity", ())


# Words of several scripts, marks that combine, joiners, emoji of several characters, with single blanks between.
WORDS = st.lists(
    st.one_of(
        st.sampled_from(["отправлен", "ждёт", "Größe", "注文", "طلب", "e\u0301", "👩\u200d👧", "=", "?=", "a,b;c", "x" * 90]),
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30),
    ),
    min_size=1,
    max_size=40,
)


@given(WORDS)
def test_a_subject_reads_as_it_was_written(words: list[str]) -> None:
    """By both parsers of the email package, and by hand; in lines of at most 76 characters where it could be folded."""
    subject = one_line(" ".join(words))
    found = mail(MailText(subject, "text"))
    assert read(found)["Subject"] == subject
    raw = message_from_bytes(found.content)["Subject"]
    assert str(make_header(decode_header(raw.replace("\r\n", "")))) == subject
    assert decoded(raw) == subject
    for line in f"Subject: {raw}".split("\r\n"):
        assert len(line) <= 76 or (subject.isascii() and len(line.split()) <= 2)


@given(WORDS)
def test_a_name_reads_as_it_was_written(words: list[str]) -> None:
    """Every name that `read_mailbox` takes. Python's newer parser shows a blank between two encoded words of a name."""
    try:
        sender = read_mailbox(" ".join(words)[:100] + " <a@example.com>")
    except ValueError:
        return
    found = compose(sender, "jo@example.com", MailText("s", "t"), "the identity", ())
    raw = message_from_bytes(found.content)["From"]
    name, address = parseaddr(raw.replace("\r\n", ""))
    assert (decoded(name), address) == (sender[0], "a@example.com")
    assert str(make_header(decode_header(name))) == sender[0]
    if raw.count("=?") <= 1:
        (mailbox,) = read(found)["From"].addresses
        assert (mailbox.display_name, mailbox.addr_spec) == (sender[0], "a@example.com")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400), st.sampled_from([1, 5]))
@example(".\n..\n.x\nFrom here\n-- \nUnsubscribe\ttab\n\n\n=20 =\n", 1)
@example("ü" * 2000, 1)
@example("x" * 5000, 1)
def test_any_body_reads_as_it_was_written(body: str, times: int) -> None:
    """But for control characters, as text alone and beside HTML; a last line has its end. Lines have at most 998 characters."""
    text, html = _plain(body * times), f"<p>{_plain(body * times)}</p>\n"
    alone, both = mail(MailText("s", body * times)), mail(MailText("s", body * times, f"<p>{body * times}</p>"))
    bodies = [read(alone).get_body(), *(read(both).get_body((kind,)) for kind in ("plain", "html"))]
    text += "" if text.endswith("\n") else "\n"
    assert [each.get_content().replace("\r\n", "\n") for each in bodies] == [text, text, html]
    for found in (alone, both):
        assert found.content.isascii()
        assert max(map(len, found.content.split(b"\r\n"))) <= 998


def decoded(raw: str) -> str:
    """Decode encoded words as RFC 2047, section 6.2, has it: blanks between two of them are not shown."""
    unfolded = re.sub(r"\?=\s+=\?", "?==?", raw.replace("\r\n", ""))
    return re.sub(r"=\?utf-8\?b\?([^?]*)\?=", lambda word: base64.b64decode(word[1]).decode(), unfolded)


def test_other_letters_before_the_at_make_a_mail_international() -> None:
    """Such an address stands in the head as it is, in UTF-8, and the server must take that."""
    found = mail(MailText("s", "t"), recipient="jürgen@example.com")
    assert found.international
    assert "\r\nTo: jürgen@example.com\r\n".encode() in found.content
    assert not mail(MailText("s", "t")).international
