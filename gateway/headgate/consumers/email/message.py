"""One mail as bytes, from texts that anyone may have written. No I/O.

In: subject, text and HTML as rendered, addresses that address.py has checked. Out: a `Mail`, ready for SMTP. Nothing that an
event says can add a header or a recipient: what is shown in a header is one printable line, machine-readable headers are ASCII
without blanks, and the finished head is read back and compared before it leaves.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from urllib.parse import quote

from .address import Mailbox

MAX_SUBJECT_CHARACTERS = 200
MAX_URL_CHARACTERS = 900  # on one line with the header's name: RFC 5322, section 2.1.1, allows 998
EXPECTED_URL = f"a URL of at most {MAX_URL_CHARACTERS} characters that starts with https://, http:// or mailto:"
# RFC 3986, and what is percent-encoded already. Neither a blank nor < > can end the header's angle brackets.
_URL_CHARACTERS = ":/?#[]@!$&'()*+;=%-._~"
# Kept and written as they are: the email package would decode what looks like an encoded word, and make encoded words of what is
# long, which mail programs do not read here.
_VERBATIM = frozenset({"message-id", "list-unsubscribe", "x-headgate-event"})
# Unicode's switches of writing direction: they make a line read as something else.
_TURNING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail to one recipient. `international`: the server must offer SMTPUTF8."""

    sender: str
    recipient: str
    content: bytes
    international: bool


@dataclass(frozen=True, slots=True)
class MailText:
    """The content of a mail: a subject, text, HTML (None: text alone), and where to unsubscribe (None: nowhere)."""

    subject: str
    text: str
    html: str | None = None
    unsubscribe: str | None = None


def compose(sender: Mailbox, recipient: str, text: MailText, identity: str, event_ids: Sequence[str]) -> EmailMessage:
    """Return the message.

    Args:
        sender: whom it is from.
        recipient: an address from `check_address`.
        text: what it says. Control characters are taken out, a long subject is cut.
        identity: what this mail is called, the same for every attempt: its Message-ID is made of it.
        event_ids: ids of the events that it tells of.
    """
    sender_local, _, sender_domain = sender.address.rpartition("@")
    local, _, domain = recipient.rpartition("@")
    message = EmailMessage(policy=_policy(sender.address + recipient))
    message["From"] = Address(sender.name, sender_local, sender_domain)
    message["To"] = Address("", local, domain)
    message["Subject"] = one_line(text.subject) or "(no subject)"
    message["Date"] = datetime.now(UTC)
    message["Message-ID"] = f"<{hashlib.sha256(identity.encode()).hexdigest()[:40]}@{sender_domain}>"
    # RFC 3834: nobody's automatic answer comes back.
    message["Auto-Submitted"] = "auto-generated"
    if text.unsubscribe is not None:
        message["List-Unsubscribe"] = f"<{text.unsubscribe}>"
        if text.unsubscribe.startswith("https:"):
            message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"  # RFC 8058
    for event_id in event_ids:
        message["X-Headgate-Event"] = event_id
    message.set_content(_plain(text.text))
    if text.html is not None:
        message.add_alternative(_plain(text.html), subtype="html")
    return message


def to_mail(message: EmailMessage, sender: Mailbox, recipient: str) -> Mail:
    """Return the message as it goes to the server.

    Raises:
        ValueError: its head would not read as it was written: the email package has let something through.
    """
    content = message.as_bytes()
    head = content.partition(b"\r\n\r\n")[0]
    lines = head.replace(b"\r\n\t", b" ").replace(b"\r\n ", b" ").split(b"\r\n")
    names = [line.partition(b":")[0].decode("ascii", "replace") for line in lines]
    if names != message.keys() or any(mark in line for line in lines for mark in (b"\r", b"\n", b"\0")):
        raise ValueError("the head of the mail would not read as it was written")
    return Mail(sender.address, recipient, content, not (sender.address + recipient).isascii())


def one_line(text: str, limit: int = MAX_SUBJECT_CHARACTERS) -> str:
    """Return a text as one printable line: what is not printable becomes a blank, blanks become one, a long line is cut.

    `=?`, which starts an encoded word, is pulled apart: the email package and mail programs would decode what follows.
    """
    shown = "".join(" " if _is_unprintable(character) or character in _TURNING else character for character in text)
    line = " ".join(shown.replace("=?", "= ?").split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def header_url(text: str) -> str | None:
    """Return a URL for a header, percent-encoded where it must be, or None when it is not EXPECTED_URL."""
    url = quote(text.strip(), safe=_URL_CHARACTERS).replace("=?", "=%3F")  # no start of an encoded word
    return url if url.startswith(("https://", "http://", "mailto:")) and len(url) <= MAX_URL_CHARACTERS else None


def _plain(text: str) -> str:
    """Return a body without control characters; ends of lines are the mail's own."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(character for character in lines if character in "\n\t" or not _is_unprintable(character))


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


class _Policy(EmailPolicy):
    """As email.policy.SMTP, with long machine-readable headers left whole and bodies in 7 bits, which every server takes."""

    def header_store_parse(self, name: str, value: str) -> tuple[str, str]:
        if name.lower() in _VERBATIM:
            if not value.isascii() or not value.isprintable():
                raise ValueError(f"{name} is not printable ASCII")
            return name, value
        return super().header_store_parse(name, value)

    def fold_binary(self, name: str, value: str) -> bytes:
        if name.lower() in _VERBATIM:
            return f"{name}: {value}\r\n".encode("ascii")
        return super().fold_binary(name, value)


_ASCII = _Policy(linesep="\r\n", cte_type="7bit")
_UTF8 = _Policy(linesep="\r\n", cte_type="7bit", utf8=True)


def _policy(addresses: str) -> EmailPolicy:
    return _ASCII if addresses.isascii() else _UTF8
