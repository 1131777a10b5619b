"""Texts of events that try to become a header, a recipient or a command of a mail, and the check that none of them did."""

import contextlib
import email.header
from collections.abc import Sequence
from email import message_from_bytes, policy

from headgate.consumers.base import Delivery, Reject
from headgate.consumers.email.consumer import Email
from tests.support.mailer import delivery
from tests.support.smtp_server import Received

HEADERS = [
    "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post",
    "X-Headgate-Event", "MIME-Version", "Content-Type",
]  # fmt: skip
# The options of a consumer that puts an event's texts everywhere where a text may go.
TEMPLATES = {
    "to": None,
    "to_template": "{{ event.data.to }}",
    "subject": "{{ event.data.trick }}",
    "text": "{{ event.data.trick|truncate(500, true) }}\nthe end",
    "html": "<p>{{ event.data.trick|truncate(500, true) }}</p>",
    "list_unsubscribe": "https://example.com/u?u={{ event.data.trick|truncate(90, true) }}",
}
TRICKS = [
    "x\r\nBcc: evil@example.com",
    "x\nBcc: evil@example.com",
    "x\rBcc: evil@example.com",
    "x\r\n\r\n<h1>another body</h1>",
    "x\n\nanother body",
    "x\r\n Bcc: evil@example.com",
    "x\r\n\tBcc: evil@example.com",
    "x\u2028Bcc: evil@example.com",
    "x\u2029Bcc: evil@example.com",
    "x\u0085Bcc: evil@example.com",
    "x\x0bBcc: evil@example.com\x0c",
    "x\x00Bcc: evil@example.com",
    "x\x1b[2J\x08\x7f",
    "x\u560d\u560aBcc: evil@example.com",
    "=?utf-8?q?x=0D=0ABcc:_evil@example.com?=",
    "=?utf-8?b?eA0KQmNjOiBldmlsQGV4YW1wbGUuY29t?=",
    "=?utf-7?q?x+AA0ACg-Bcc:_evil@example.com?=",
    "=?utf-8?q?x?=\r\n =?utf-8?q?=0ABcc:_evil@example.com?=",
    "=\r\n?utf-8?q?=0ABcc:_evil@example.com?=",
    "x%0d%0aBcc: evil@example.com",
    "x\\r\\nBcc: evil@example.com",
    "x\r\n.\r\nMAIL FROM:<evil@example.com>\r\nRCPT TO:<evil@example.com>\r\nDATA",
    "x\r\n..\r\nQUIT",
    "ops@example.com, evil@example.com",
    "ops@example.com;evil@example.com",
    "ops@example.com>\r\nRCPT TO:<evil@example.com",
    "ops@example.com> SIZE=1 <evil@example.com",
    "<ops@example.com>",
    '"ops\r\nBcc: evil"@example.com',
    "ops@example.com\r\nBcc: evil@example.com",
    "ops@example.com\u2028evil@example.com",
    "ops\uff20example.com@example.com",
    "ops@example.com\uff0cevil.example",
    "@relay.example:ops@example.com",
    "ops(comment)@example.com",
    "ops@[127.0.0.1]",
    "ops@example.com " * 40,
    "x" * 100_000,
    "é" * 60_000,
    "x> , <https://evil.example",
    "x?Content-Type: text/html",
    "\u202egpj.exe Bcc: evil@example.com",
    "\ud83d\ude00 surrogates \N{GRINNING FACE}".encode("utf-16", "surrogatepass").decode("utf-16"),
    "x: " + "=?" * 500,
    "." * 300 + "\r\n" + ".\r\n" * 5,
]


def send_trick(sink: Email, trick: str) -> None:
    """Send two events with this text, one of them to a recipient of this text, by a consumer with TEMPLATES."""
    for to in ("ops@example.com", trick):
        data = {"to": to, "trick": trick}
        for key in _recipients(sink, delivery(data)):
            if to == "ops@example.com":
                sink.handle(delivery(data, key=key))
            else:  # an invalid address may be rejected
                with contextlib.suppress(Reject):
                    sink.handle(delivery(data, key=key))


def check_untouched(mail: Received) -> None:
    """Assert that a mail has our headers and one recipient, and its body in full."""
    assert mail.sender == "alerts@example.org"
    assert mail.recipients == ["ops@example.com"]
    for how in (policy.compat32, policy.default):
        assert message_from_bytes(mail.content, policy=how).keys() == HEADERS
    message = mail.message
    assert not message.defects
    assert [address.addr_spec for address in message["To"].addresses] == ["ops@example.com"]
    # A mail program shows the subject as one printable line.
    raw = message_from_bytes(mail.content)["Subject"].replace("\r\n", "")
    shown = str(email.header.make_header(email.header.decode_header(raw)))
    assert shown.isprintable()
    assert len(shown) <= 200
    assert all(32 < ord(character) < 127 for character in str(message_from_bytes(mail.content)["List-Unsubscribe"]))
    assert mail.text.endswith("the end\n")
    assert max(len(line) for line in mail.content.partition(b"\r\n\r\n")[0].split(b"\r\n")) <= 998


def _recipients(sink: Email, event: Delivery) -> Sequence[str]:
    """Return the parts of an event's work; none, if it is rejected as a whole."""
    try:
        return sink.keys(event)
    except Reject:
        return ()
