"""The email consumer against a real mail server: its mails arrive as they were composed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.consumers.base import Context
from headgate.consumers.email.consumer import Email
from tests.support.consumers_state import MemoryState
from tests.support.mail_tricks import TEMPLATES, TRICKS, check_untouched, send_trick
from tests.support.mailer import Unpublished, delivery, email_options
from tests.support.smtp_server import SmtpServer


@pytest.fixture
def smtp_mailer(smtp: SmtpServer) -> Iterator[Callable[..., Email]]:
    """Make email consumers that send to `smtp` with these options; they are closed with the test."""
    with contextlib.ExitStack() as made:

        def make(**given: Any) -> Email:
            options = email_options(port=smtp.port, **given)
            return made.enter_context(
                contextlib.closing(Email(options, Context("on-call", "shop", MemoryState(), Unpublished())))
            )

        yield make


def test_a_mail_arrives_at_the_server_of_the_options(smtp_mailer: Callable[..., Email], smtp: SmtpServer) -> None:
    """The server has the sender, the recipient and both bodies; a preview connects to nothing."""
    sink = smtp_mailer()
    sink.preview(delivery({"title": "Order 42 failed"}, key=""))
    assert smtp.count("connection") == 0

    sink.handle(delivery({"title": "Order 42 failed", "note": "<b>bold</b>"}))

    (mail,) = smtp.mails
    assert (mail.sender, mail.recipients, mail.message["Subject"]) == (
        "alerts@example.org", ["ops@example.com"], "Order 42 failed"
    )  # fmt: skip
    assert "<b>bold</b>" in mail.text
    assert b"&lt;b&gt;bold&lt;/b&gt;" in mail.content


def test_no_event_adds_a_header_a_recipient_or_a_command(smtp_mailer: Callable[..., Email], smtp: SmtpServer) -> None:
    """Each trick by itself, as the server reads it: envelope, headers and body in full."""
    sink = smtp_mailer(**TEMPLATES)
    for trick in TRICKS:
        smtp.begin_anew()
        send_trick(sink, trick)
        assert smtp.mails, f"no mail with the trick {trick[:80]!r}"
        for mail in smtp.mails:
            try:
                check_untouched(mail)
            except AssertionError as error:
                raise AssertionError(f"the trick {trick[:80]!r} changed the mail") from error
