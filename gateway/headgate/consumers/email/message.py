"""One mail as bytes, from untrusted texts. No I/O.

In: rendered subject, text and HTML, and addresses checked by address.py. Out: a `Mail`, ready for SMTP. An event cannot add a
header or a recipient, because `compose` refuses a displayed header value that is not one printable line, a blank in an address,
and a machine-readable header that is not printable ASCII.

This module writes the head itself, because `EmailMessage` of Python 3.11 loses blanks between the encoded words of a folded
line and encodes long machine-readable values. `EmailMessage` makes the body.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.charset import BASE64, Charset
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from textwrap import TextWrapper
from urllib.parse import quote

from .address import Mailbox

# Limit of a line with encoded words (RFC 2047, section 2).
MAX_LINE_CHARACTERS = 76
MAX_SUBJECT_CHARACTERS = 200
MAX_URL_CHARACTERS = 900  # on one line with the header's name: RFC 5322, section 2.1.1, allows 998
URL_STARTS = ("https://", "http://", "mailto:")
EXPECTED_URL = f"a URL of at most {MAX_URL_CHARACTERS} characters that starts with https://, http:// or mailto:"
# RFC 3986, and percent-encoded characters. No blank and no < > can end the header's angle brackets.
_URL_CHARACTERS = ":/?#[]@!$&'()*+;=%-._~"
# Unicode's categories Cc, Cs, Zl and Zp, to which no character is ever added.
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
# In a line also Unicode's switches of writing direction, which change how it reads.
_NOT_IN_LINE = re.compile(rf"[{_UNPRINTABLE}\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NOT_IN_BODY = re.compile(rf"(?![\n\t])[{_UNPRINTABLE}]")


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail to one recipient. If `international`, the server must offer SMTPUTF8."""

    sender: str
    recipient: str
    content: bytes
    international: bool


@dataclass(frozen=True, slots=True)
class MailText:
    """The content of a mail, which is a subject, text, optional HTML, and an optional URL to unsubscribe."""

    subject: str
    text: str
    html: str | None = None
    unsubscribe: str | None = None


def compose(sender: Mailbox, recipient: str, text: MailText, identity: str, event_ids: Sequence[str]) -> Mail:
    """Return the mail for the server.

    Args:
        sender: its sender.
        recipient: an address from `check_address`.
        text: its content. Control characters are removed, a long subject is cut.
        identity: name of this mail, the same for every attempt; makes its Message-ID.
        event_ids: ids of its events.

    Raises ValueError if an id is not printable ASCII, or if a name or an address would add a line or an address.
    """
    subject = one_line(text.subject) or "(no subject)"
    name, address = sender
    if _NOT_IN_LINE.search(name + address + recipient) or " " in address + recipient:
        raise ValueError("a name or an address would add a line or an address to the head of the mail")
    exact = [
        ("Date", format_datetime(datetime.now(UTC))),
        ("Message-ID", f"<{hashlib.sha256(identity.encode()).hexdigest()[:40]}@{address.rpartition('@')[2]}>"),
        # RFC 3834: prevents automatic answers.
        ("Auto-Submitted", "auto-generated"),
    ]
    if text.unsubscribe is not None:
        exact.append(("List-Unsubscribe", f"<{text.unsubscribe}>"))
        if text.unsubscribe.startswith("https:"):
            exact.append(("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"))  # RFC 8058
    exact += [("X-Headgate-Event", event_id) for event_id in event_ids]
    for header, value in exact:
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"{header} is not printable ASCII")
    head = [("From", _mailbox(sender)), ("To", recipient), ("Subject", _shown("Subject", subject)), *exact]
    lines = "".join(f"{header}: {value}\r\n" for header, value in head)
    body = EmailMessage(policy=_BODY)
    body.set_content(_plain(text.text))
    if text.html is not None:
        body.add_alternative(_plain(text.html), subtype="html")
    return Mail(address, recipient, lines.encode() + body.as_bytes(), not (address + recipient).isascii())


def one_line(text: str, limit: int = MAX_SUBJECT_CHARACTERS) -> str:
    """Return a text as one printable line. Replaces other characters and runs of blanks by one blank, and cuts a long line.

    Splits `=?`, which starts an encoded word, because the email package and mail programs would decode it.
    """
    line = " ".join(_NOT_IN_LINE.sub(" ", text).replace("=?", "= ?").split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def header_url(text: str) -> str | None:
    """Return a URL for a header, percent-encoded where necessary, or None if it is not EXPECTED_URL."""
    url = quote(text.strip(), safe=_URL_CHARACTERS).replace("=?", "=%3F")  # not the start of an encoded word
    return url if url.startswith(URL_STARTS) and len(url) <= MAX_URL_CHARACTERS else None


def _plain(text: str) -> str:
    """Return a body without control characters, with the line ends of mail."""
    return _NOT_IN_BODY.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


# Bodies in 7 bits, which every server takes. Encoded words in base64.
_BODY = SMTP.clone(cte_type="7bit")
_ENCODED = Charset("utf-8")
_ENCODED.header_encoding = BASE64


def _mailbox(sender: Mailbox) -> str:
    """Return the value of From."""
    name, address = sender
    if not name:
        return address
    shown = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"' if name.isascii() else _shown("From", name)
    fits = len(f"From: {shown} <{address}>".rpartition("\r\n")[2]) <= MAX_LINE_CHARACTERS
    return f"{shown} <{address}>" if fits else f"{shown}\r\n <{address}>"


def _shown(name: str, text: str) -> str:
    """Return a text as a folded header value, unchanged if it is ASCII, else all in encoded words (RFC 2047)."""
    if text.isascii():
        wrapper = TextWrapper(MAX_LINE_CHARACTERS, f"{name}: ", " ", break_long_words=False, break_on_hyphens=False)
        return "\r\n".join(wrapper.wrap(text)).removeprefix(f"{name}: ")
    # The email package counts an encoded word up to two characters too short.
    return Header(text, _ENCODED, MAX_LINE_CHARACTERS - 2, name).encode(linesep="\r\n")
