"""email/message.py: headers that hold what was meant and nothing else, and bodies that arrive as they were."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest

from headgate.consumers.email.address import Mailbox
from headgate.consumers.email.message import Mail, MailText, compose, header_url, one_line, to_mail

SENDER = Mailbox("Bühne, Tor 4", "alerts@example.org")


def mail(text: MailText, *, recipient: str = "jo@example.com", ids: tuple[str, ...] = ("e1",)) -> Mail:
    """Return the mail as it would go to a server."""
    return to_mail(compose(SENDER, recipient, text, "the identity", ids), SENDER, recipient)


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


def test_a_subject_comes_out_as_one_line() -> None:
    """Also one that the email package would decode into several, which some versions of it then write."""
    found = read(mail(MailText("=?utf-8?q?x=0D=0ABcc:_evil@example.com?=\r\nBcc: evil@example.com", "text")))
    assert found["Subject"] == "= ?utf-8?q?x=0D=0ABcc:_evil@example.com?= Bcc: evil@example.com"
    assert found["Bcc"] is None


def test_a_mail_without_a_subject_says_so() -> None:
    """An empty one is easily taken for a fault."""
    assert read(mail(MailText("\r\n", "text")))["Subject"] == "(no subject)"


def test_names_and_subjects_of_any_letters_arrive() -> None:
    """Long ones are folded and encoded, and read back as they were."""
    subject = "Größe überschritten: " + "straße " * 20
    found = read(mail(MailText(subject, "text")))
    assert found["Subject"] == subject.strip()
    assert (found["From"].addresses[0].display_name, found["From"].addresses[0].addr_spec) == (
        "Bühne, Tor 4",
        "alerts@example.org",
    )


@pytest.mark.parametrize(
    "body",
    [
        "plain\n",
        ".\n..\n.x\nFrom here\n",
        "ü" * 2000 + "\n",
        "x" * 5000 + "\n",
        "tab\there\n\n\nend\n",
        "-- \nUnsubscribe\n",
        "=20 =\n",
    ],
)
def test_a_body_arrives_as_it_was(body: str) -> None:
    """Dots, long lines, other letters, blank lines: whatever the encoding on the way; lines of at most 998 characters."""
    found = mail(MailText("s", body, f"<p>{body}</p>"))
    text, html = (read(found).get_body((kind,)).get_content().replace("\r\n", "\n") for kind in ("plain", "html"))
    assert text == body
    assert html == f"<p>{body}</p>\n"
    assert found.content.isascii()
    assert max(map(len, found.content.split(b"\r\n"))) <= 998


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
    """Long ones whole, and what looks like an encoded word is not decoded."""
    ids = ("e" * 128, "a:b~c_d-e.f")
    url = "https://example.com/" + "=?utf-8?q?=0ABcc:_x?=" + "u" * 300
    found = mail(MailText("s", "t", None, url), ids=ids)
    raw = message_from_bytes(found.content)
    assert (raw["List-Unsubscribe"], raw.get_all("X-Headgate-Event")) == (f"<{url}>", list(ids))
    assert raw["Message-ID"].endswith("@example.org>")


@pytest.mark.parametrize("event_id", ["x\r\nBcc: y", "x\ny", "x\ry", "ü", "x\x00"])
def test_a_machine_readable_header_is_printable_ascii(event_id: str) -> None:
    """Anything else is refused, not mended: it cannot be an id."""
    with pytest.raises(ValueError, match="X-Headgate-Event is not printable ASCII"):
        mail(MailText("s", "t"), ids=(event_id,))


def test_a_head_that_would_read_otherwise_does_not_leave() -> None:
    """The last look: were a line break to get through all the same, there would be no mail."""
    message = EmailMessage(policy=policy.SMTP)
    message["Subject"] = "fine"
    message.set_content("text")
    assert to_mail(message, SENDER, "jo@example.com").content.startswith(b"Subject: fine\r\n")

    class Leaky(type(policy.SMTP)):  # type: ignore[misc]
        def fold_binary(self, name: str, value: Any) -> bytes:
            return f"{name}: {value}\r\nBcc: evil@example.com\r\n".encode()

    message.policy = Leaky(linesep="\r\n")
    with pytest.raises(ValueError, match="would not read as it was written"):
        to_mail(message, SENDER, "jo@example.com")


def test_other_letters_before_the_at_make_a_mail_international() -> None:
    """Such an address stands in the head as it is, in UTF-8, and the server must take that."""
    found = mail(MailText("s", "t"), recipient="jürgen@example.com")
    assert found.international
    assert "\r\nTo: jürgen@example.com\r\n".encode() in found.content
    assert not mail(MailText("s", "t")).international
