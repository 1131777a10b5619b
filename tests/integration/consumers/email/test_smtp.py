"""smtp.py against a real mail server: what is handed over, what is tried again, what is given up, what is kept open."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headgate.consumers.base import Reject, Retry
from headgate.consumers.email import smtp as smtp_module
from headgate.consumers.email.message import Mail
from headgate.consumers.email.smtp import MailServer, Server
from tests.support.certificates import Authority
from tests.support.redis_server import DEADLINE_S, wait_until
from tests.support.smtp_server import SmtpServer

CONTENT = b"From: a@example.com\r\nTo: b@example.com\r\nSubject: one\r\n\r\n.hidden dot\r\nFrom here\r\n"
MAIL = Mail("a@example.com", "b@example.com", CONTENT, False)
StartSmtp = Callable[..., SmtpServer]


@pytest.fixture
def mails() -> Iterator[Callable[..., MailServer]]:
    """Our end of the connection, `mails(port, security="none")`; closed with the test."""
    opened: list[MailServer] = []

    def to(
        port: int, security: str = "none", timeout_s: float = 30.0, now: Callable[[], float] = time.monotonic, **more: str
    ) -> MailServer:
        opened.append(MailServer(Server("127.0.0.1", port, security, timeout_s, **more), "on-call", now))
        return opened[-1]

    yield to
    for one in opened:
        one.close()


def sent(server: MailServer) -> bool:
    """Try to send, and return whether that was done."""
    with contextlib.suppress(Retry):
        server.send(MAIL)
        return True
    return False


def test_mails_go_over_one_connection_with_a_reset_between(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """The bytes arrive as they were, dots included."""
    server = mails(smtp.port)
    for _ in range(3):
        server.send(MAIL)
    assert [(mail.sender, mail.recipients, mail.content) for mail in smtp.mails] == [
        ("a@example.com", ["b@example.com"], CONTENT)
    ] * 3
    assert (smtp.count("connection"), smtp.count("RSET")) == (1, 2)


@pytest.mark.parametrize(
    ("stage", "how"),
    [
        *(
            (stage, how)
            for stage in ("greeting", "EHLO", "MAIL", "RCPT", "message")
            for how in ("451 later", "421 closing", "drop")
        ),
        ("greeting", "hang"),
        ("message", "hang"),
        ("message", "endless"),
    ],
)
def test_what_passes_is_tried_again(stage: str, how: str, smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """A 4xx, a broken connection and no answer say nothing against the mail, wherever they come; the next attempt is whole."""
    server = mails(smtp.port, timeout_s=1.0 if how in ("hang", "endless") else 30.0)
    smtp.behave(stage, how)

    def failed() -> bool:
        with pytest.raises(Retry):
            server.send(MAIL)
        return smtp.count("misbehaved") > 0

    wait_until(failed, "an attempt that gets so far before its time is over")
    assert smtp.mails == []
    smtp.begin_anew()
    # A willing server that is slow would get the mail twice, and rightly.
    server._server = dataclasses.replace(server._server, timeout_s=30.0)
    wait_until(lambda: sent(server), "the next attempt")
    assert [mail.content for mail in smtp.mails] == [CONTENT]


def test_an_answer_that_does_not_end_in_time_is_told_as_that(
    smtp: SmtpServer, mails: Callable[..., MailServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the thread that ends it goes on."""
    told = threading.Event()
    shut_down = smtp_module._shut_down

    def dawdle(sock: socket.socket) -> None:
        shut_down(sock)
        told.wait(DEADLINE_S)

    monkeypatch.setattr(smtp_module, "_shut_down", dawdle)
    smtp.behave("message", "endless", times=1)
    with pytest.raises(Retry, match=r"no answer in time$"):
        mails(smtp.port, timeout_s=1.0).send(MAIL)
    told.set()


@pytest.mark.parametrize("stage", ["RCPT", "message"])
def test_what_the_server_will_never_take_is_rejected_at_once(
    stage: str, smtp: SmtpServer, mails: Callable[..., MailServer]
) -> None:
    """5xx against the recipient or the message: the reason has its code and its first line, printable; the connection stays."""
    server = mails(smtp.port)
    smtp.behave(stage, "550-5.1.1 no such \x1b[31muser " + "x" * 300 + "\r\n550 and more", times=1)
    with pytest.raises(Reject) as rejected:
        server.send(MAIL)
    assert rejected.value.reason.startswith("the mail server answered 550 to the ")
    assert "5.1.1 no such ?[31muser xxx" in rejected.value.reason
    assert len(rejected.value.reason) < 300
    server.send(MAIL)
    assert (len(smtp.mails), smtp.count("connection")) == (1, 1)


@pytest.mark.parametrize(
    ("stage", "how"),
    [
        ("greeting", "554 go away"),
        ("EHLO", "550 no"),
        ("MAIL", "550 not your domain"),
        ("MAIL", "530 log in"),
        ("RCPT", "530 log in"),
    ],
)
def test_what_is_said_against_us_rejects_no_event(
    stage: str, how: str, smtp: SmtpServer, mails: Callable[..., MailServer]
) -> None:
    """The set-up is at fault, not the event: it is tried again, and one line of the log a minute says that somebody must act."""
    server = mails(smtp.port)
    smtp.behave(stage, how, times=6)
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(Retry, match=how[:3]):
                server.send(MAIL)
    assert [(line["log_level"], line["consumer"]) for line in lines] == [("error", "on-call")]
    assert how[4:] in lines[0]["reason"]


def test_a_message_too_large_for_the_server_is_rejected(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """The size is announced with the sender, and 552 there is about the message."""
    smtp.behave("MAIL", "552 too big", times=1)
    with pytest.raises(Reject, match="552"):
        mails(smtp.port).send(MAIL)


def test_a_mail_is_sent_when_the_connection_ends_after_the_answer(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """250 is the end of it; the next mail finds a new connection."""
    server = mails(smtp.port)
    smtp.behave("message", "drop after", times=1)
    server.send(MAIL)
    server.send(MAIL)
    assert (len(smtp.mails), smtp.count("connection")) == (2, 2)


def test_a_refused_connection_is_tried_again(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """An outage is told, with the place and the reason, once a minute; a kept connection that died costs no attempt."""
    server = mails(smtp.port)
    server.send(MAIL)
    smtp.refuse()
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(Retry, match=f"127.0.0.1:{smtp.port}: connection refused"):
                server.send(MAIL)
    assert [(line["consumer"], line["reason"]) for line in lines] == [("on-call", "connection refused")]
    smtp.listen()
    wait_until(lambda: sent(server), "the next attempt")
    assert len(smtp.mails) == 2


def test_without_service_most_mails_wait_without_an_attempt(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """From the second failure in a row on, for longer and longer; one that gets through ends it."""
    clock = [1000.0]
    server = mails(smtp.port, now=lambda: clock[0])
    smtp.behave("greeting", "554 go away")
    pauses = []
    for attempts in range(1, 10):
        with pytest.raises(Retry, match="554") as attempt:
            server.send(MAIL)
        pause_s = attempt.value.after_s or 0
        if pause_s:
            with pytest.raises(Retry, match="554") as sent_back:
                server.send(MAIL)
            assert sent_back.value.after_s == pause_s
        assert smtp.count("connection") == attempts
        clock[0] += pause_s
        pauses.append(pause_s)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]

    smtp.behave("greeting", "", times=0)
    server.send(MAIL)
    smtp.refuse()
    with pytest.raises(Retry) as again:
        server.send(MAIL)
    assert again.value.after_s == 0
    smtp.listen()


def test_a_pause_is_as_long_as_the_attempt(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """So that a server that hangs costs a consumer half of its time at most."""
    clock = [1000.0]

    def now() -> float:
        clock[0] += 15
        return clock[0]

    smtp.behave("message", "451 later", times=1)
    server = mails(smtp.port, now=now)
    with pytest.raises(Retry) as one_mail:
        server.send(MAIL)
    assert one_mail.value.after_s is None  # it is there; the next mail may fare better
    smtp.behave("greeting", "drop", times=1)
    clock[0] += 1000
    with pytest.raises(Retry) as hung:
        server.send(MAIL)
    assert hung.value.after_s is not None
    assert hung.value.after_s >= 15


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_tls_with_a_login(security: str, start_smtp: StartSmtp, mails: Callable[..., MailServer], tmp_path: Path) -> None:
    """The certificate is checked against the authority and the host, and the login is made inside."""
    authority = Authority(tmp_path)
    smtp = start_smtp(security=security, certificate=authority.issue("127.0.0.1"), login=("me", "the password"))
    login = {"user": "me", "ca_file": authority.ca_file}
    mails(smtp.port, security, password="the password", **login).send(MAIL)
    assert len(smtp.mails) == 1

    with capture_logs() as lines, pytest.raises(Retry, match=r"answered 535 to the login$") as wrong:
        mails(smtp.port, security, password="another password", **login).send(MAIL)
    assert "password" not in f"{wrong.value}{lines}"
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("host", "expired", "trusted", "reason"),
    [
        ("mail.example.com", False, True, "its certificate is not accepted: IP address mismatch"),
        ("127.0.0.1", True, True, "its certificate is not accepted: certificate has expired"),
        ("127.0.0.1", False, False, "its certificate is not accepted: "),
    ],
)
def test_a_certificate_that_proves_nothing_gets_no_mail(
    host: str, expired: bool, trusted: bool, reason: str, start_smtp: StartSmtp, mails: Callable[..., MailServer], tmp_path: Path
) -> None:
    """Another name, a date that is over, an authority that nobody trusts: no mail, no login."""
    authority = Authority(tmp_path)
    smtp = start_smtp(security="starttls", certificate=authority.issue(host, expired=expired))
    other = tmp_path / "other"
    other.mkdir()
    ca_file = authority.ca_file if trusted else Authority(other).ca_file
    with pytest.raises(Retry, match=reason):
        mails(smtp.port, "starttls", ca_file=ca_file).send(MAIL)
    assert smtp.received == []


def test_a_server_without_starttls_gets_no_mail(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """What takes STARTTLS out of the offer does not get the mail in the clear."""
    with capture_logs() as lines, pytest.raises(Retry, match="does not offer STARTTLS"):
        mails(smtp.port, "starttls").send(MAIL)
    assert (smtp.received, len(lines)) == ([], 1)


def test_a_server_without_a_login_is_not_given_one(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """Told as what it is, without the password."""
    with capture_logs() as lines, pytest.raises(Retry, match="does not offer a way to log in that we know"):
        mails(smtp.port, user="me", password="the secret").send(MAIL)
    assert "the secret" not in str(lines)


def test_an_address_of_other_letters_needs_a_server_that_takes_them(
    start_smtp: StartSmtp, mails: Callable[..., MailServer]
) -> None:
    """With SMTPUTF8 it is sent, without it it is rejected."""
    mail = Mail("a@example.com", "jürgen@example.com", CONTENT, True)
    modern, old = start_smtp(smtputf8=True), start_smtp()
    mails(modern.port).send(mail)
    assert modern.mails[0].recipients == ["jürgen@example.com"]
    with pytest.raises(Reject, match="SMTPUTF8"):
        mails(old.port).send(mail)


def test_the_password_is_in_no_repr() -> None:
    """Not in the server's, which a traceback may show."""
    assert "secret" not in repr(Server("h", 1, "tls", 1.0, "me", "secret"))
