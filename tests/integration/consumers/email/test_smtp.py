"""smtp.py against a real mail server: mails that arrive, failures that pass, refusals, and the kept connection."""

import contextlib
import dataclasses
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.consumers.base import OutcomeUnknown, Reject, Retry
from headgate.consumers.email.message import Mail
from headgate.consumers.email.smtp import MailServer
from tests.support.certificates import Authority
from tests.support.mailer import email_options
from tests.support.redis_server import wait_until
from tests.support.smtp_server import SmtpServer

CONTENT = b"From: a@example.com\r\nTo: b@example.com\r\nSubject: one\r\n\r\n.hidden dot\r\nFrom here\r\n"
MAIL = Mail("a@example.com", "b@example.com", CONTENT, False)
StartSmtp = Callable[..., SmtpServer]


@pytest.fixture
def mails() -> Iterator[Callable[..., MailServer]]:
    """Our end of the connection, `mails(port, security="none")`; closed with the test."""
    opened: list[MailServer] = []

    def to(
        port: int, security: str = "none", timeout_s: float = 30.0, now: Callable[[], float] = time.monotonic, **more: Any
    ) -> MailServer:
        opened.append(MailServer(email_options(port=port, security=security, timeout_s=timeout_s, **more), now))
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


def test_a_failure_that_passes_is_tried_again(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """A 4xx, a closing server and a broken connection say nothing against the mail, at any stage; the next attempt is whole."""
    for stage in ("greeting", "EHLO", "MAIL", "RCPT", "message"):
        for how in ("451 later", "421 closing", "drop"):
            smtp.begin_anew()
            server = mails(smtp.port)
            smtp.behave(stage, how)
            assert not sent(server), f"{how} at {stage}"
            assert smtp.mails == [], f"{how} at {stage}"
            smtp.begin_anew()
            wait_until(lambda server=server: sent(server), f"the next attempt after {how} at {stage}")  # type: ignore[misc]
            assert [mail.content for mail in smtp.mails] == [CONTENT], f"{how} at {stage}"


def test_a_server_that_does_not_answer_in_time_is_tried_again(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """The timeout is the server's, from the first byte on."""
    server = mails(smtp.port, timeout_s=0.2)
    smtp.behave("RCPT", "hang")

    def failed() -> bool:
        with pytest.raises(Retry):
            server.send(MAIL)
        return smtp.count("misbehaved") > 0

    wait_until(failed, "an attempt that gets so far before its time is over")
    assert smtp.mails == []
    smtp.begin_anew()
    # A willing slow server would get the mail twice, and rightly.
    server._options = dataclasses.replace(server._options, timeout_s=30.0)
    wait_until(lambda: sent(server), "the next attempt")
    assert [mail.content for mail in smtp.mails] == [CONTENT]


def test_an_answer_that_does_not_end_is_bounded_in_time_and_in_bytes(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """However often another line of it comes."""
    for stage, how, reason in (
        ("RCPT", "endless", "no answer in time"),
        ("RCPT", "flood", "a reply that is too long"),
        ("EHLO", "flood", "a reply that is too long"),
    ):
        smtp.behave(stage, how, times=1)
        with pytest.raises(Retry, match=f"{reason}$") as failed:
            mails(smtp.port, timeout_s=0.2 if how == "endless" else 30.0).send(MAIL)
        assert not isinstance(failed.value, OutcomeUnknown)


def test_without_an_answer_to_the_message_its_outcome_is_unknown(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """The server has the whole mail, and may deliver it."""
    for how, reason in (
        ("hang", "no answer to the message within 0.2 s"),
        ("drop", "no answer to the message: the connection broke"),
        ("no answer at all", "no answer to the message: an answer that is none of SMTP's"),
        ("354 go on", "no answer to the message: an answer that is none of SMTP's"),
        ("x" * 100_000, "no answer to the message: a reply that is too long"),
    ):
        smtp.behave("message", how, times=1)
        with pytest.raises(OutcomeUnknown, match=f"{reason}$"):
            mails(smtp.port, accept_timeout_s=0.2 if how == "hang" else 30.0).send(MAIL)
    assert [mail.content for mail in smtp.received] == [CONTENT] * 5


def test_a_server_may_take_longer_for_a_mail_than_for_other_answers(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """A slow content filter makes no copies. When it was too slow, the next mail waits a tenth of that time for the log."""
    server = mails(smtp.port, timeout_s=0.2, accept_timeout_s=30.0)
    smtp.behave("message", "slow", times=1)
    wait_until(lambda: sent(server), "an attempt whose other answers are in time")
    assert len(smtp.mails) == len(smtp.received) == 1
    clock = iter([1000.0, 1600.0, 1659.0, *[1660.0] * 9])
    server = mails(smtp.port, accept_timeout_s=0.2, now=lambda: next(clock))
    smtp.behave("message", "hang", times=1)
    with pytest.raises(OutcomeUnknown) as late:
        server.send(MAIL)
    assert late.value.after_s is None
    assert not sent(server)
    smtp.begin_behaving()
    server.send(MAIL)


def test_the_first_line_of_the_answer_to_the_message_decides(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """Whatever becomes of the lines after it, and of the connection."""
    server = mails(smtp.port, accept_timeout_s=0.5)
    for how in ("250-taken\r\nnonsense", "endless", "flood", "250-taken\r\n" + "x" * 100_000):
        smtp.behave("message", how, times=1)
        server.send(MAIL)
        server.send(MAIL)
    assert len(smtp.received) == 8
    smtp.behave("message", "550-spam\r\nnonsense", times=1)
    with pytest.raises(Reject, match="550"):
        server.send(MAIL)


def test_an_answer_to_data_that_is_none_sends_nothing(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """354 alone asks for the mail; 250 there is not taken for a mail that was sent."""
    server = mails(smtp.port)
    smtp.behave("DATA", "250 OK", times=1)
    with pytest.raises(Retry, match="250 to DATA") as failed:
        server.send(MAIL)
    assert not isinstance(failed.value, OutcomeUnknown)
    assert smtp.received == []


def test_a_mail_that_the_server_rejects_leaves_the_connection(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """A 5xx against the recipient or the message rejects the mail at once; the next one goes over the same connection."""
    server = mails(smtp.port)
    for stage in ("RCPT", "message"):
        smtp.behave(stage, "550-5.1.1 no such \x1b[31muser\r\n550 and more", times=1)
        with pytest.raises(Reject, match=r"^the mail server answered 550 to the \w+: 5\.1\.1 no such \?\[31muser$"):
            server.send(MAIL)
    server.send(MAIL)
    assert (len(smtp.mails), smtp.count("connection")) == (1, 1)


def test_an_answer_against_us_rejects_no_event(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """The set-up is at fault, not the event, so it is tried again."""
    for stage, how in (("greeting", "554 go away"), ("EHLO", "550 no"), ("MAIL", "550 not your domain"), ("RCPT", "530 log in")):
        smtp.begin_anew()
        server = mails(smtp.port)
        smtp.behave(stage, how, times=6)
        for _ in range(3):
            with pytest.raises(Retry, match=rf"answered {how[:3]} to .*: {how[4:]}$"):
                server.send(MAIL)


def test_a_mail_is_sent_when_the_connection_ends_after_the_answer(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """250 is the end of it; the next mail finds a new connection."""
    server = mails(smtp.port)
    smtp.behave("message", "drop after", times=1)
    server.send(MAIL)
    server.send(MAIL)
    assert (len(smtp.mails), smtp.count("connection")) == (2, 2)


def test_a_refused_connection_is_tried_again(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """An outage is reported with the place and the reason; a kept connection that died costs no attempt."""
    server = mails(smtp.port)
    server.send(MAIL)
    smtp.refuse()
    for _ in range(3):
        with pytest.raises(Retry, match=f"127.0.0.1:{smtp.port}: connection refused"):
            server.send(MAIL)
    smtp.listen()
    wait_until(lambda: sent(server), "the next attempt")
    assert len(smtp.mails) == 2


def test_without_service_most_mails_wait_without_an_attempt(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """From the second failure in a row on; a mail that gets through, and an answer about a mail, end the row."""
    clock = [1000.0]
    server = mails(smtp.port, now=lambda: clock[0])
    smtp.behave("greeting", "554 go away", times=2)
    for attempts, pause_s in enumerate((0, 1, 1), 1):
        with pytest.raises(Retry, match="554") as attempt:
            server.send(MAIL)
        assert (attempt.value.after_s, server.pause_s()) == (pause_s, pause_s)
        assert smtp.count("connection") == min(attempts, 2)
    clock[0] += 1
    server.send(MAIL)
    for stage, error in (("RCPT", Retry), ("RCPT", Reject)):
        smtp.behave("greeting", "drop", times=1)
        server.close()
        assert not sent(server)
        smtp.behave(stage, "451 later" if error is Retry else "550 no", times=1)
        with pytest.raises(error):
            server.send(MAIL)
    smtp.behave("greeting", "drop", times=1)
    server.close()
    with pytest.raises(Retry) as first:
        server.send(MAIL)
    assert first.value.after_s == 0


@pytest.mark.filterwarnings("ignore:Requiring AUTH")
def test_tls_with_a_login(start_smtp: StartSmtp, mails: Callable[..., MailServer], tmp_path: Path) -> None:
    """The certificate is checked against the authority and the host, and the login is made inside, with STARTTLS and with TLS.

    The file of the authority may be renewed.
    """
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    login = {"user": "me", "ca_file": authority.ca_file}
    certificate, now_s = authority.issue("127.0.0.1"), [1000.0]
    for security in ("starttls", "tls"):
        smtp = start_smtp(security=security, certificate=certificate, login=("me", "the password"))
        mails(smtp.port, security, password="the password", **login).send(MAIL)
        assert len(smtp.mails) == 1, security

        with pytest.raises(Retry, match=r"answered 535 to the login$") as wrong:
            mails(smtp.port, security, password="another password", **login).send(MAIL)
        assert "password" not in str(wrong.value)

        trusted = str(shutil.copy(other.ca_file, tmp_path / "trusted.pem"))
        server = mails(smtp.port, security, now=lambda: now_s[0], password="the password", user="me", ca_file=trusted)
        for _ in range(2):  # the second one reads the renewed file
            with pytest.raises(Retry, match="its certificate is not accepted: "):
                server.send(MAIL)
            assert len(smtp.received) == 1, security
            shutil.copy(authority.ca_file, trusted)
            now_s[0] += 3600
        server.send(MAIL)


def test_a_worthless_certificate_gets_no_mail(start_smtp: StartSmtp, mails: Callable[..., MailServer], tmp_path: Path) -> None:
    """Another name, or an expired date; the test above has an untrusted authority. There is no mail and no login."""
    authority = Authority(tmp_path)
    for host, expired, reason in (
        ("mail.example.com", False, "IP address mismatch"),
        ("127.0.0.1", True, "certificate has expired"),
    ):
        smtp = start_smtp(security="starttls", certificate=authority.issue(host, expired=expired))
        with pytest.raises(Retry, match=f"its certificate is not accepted: {reason}"):
            mails(smtp.port, "starttls", ca_file=authority.ca_file).send(MAIL)
        assert smtp.received == [], f"{host}, expired: {expired}"


def test_a_server_without_the_offer_that_we_need_gets_no_mail(smtp: SmtpServer, mails: Callable[..., MailServer]) -> None:
    """A server that does not offer STARTTLS gets no mail in the clear, and one without a login does not get the password."""
    with pytest.raises(Retry, match="does not offer STARTTLS; a server on this machine takes security = 'none'"):
        mails(smtp.port, "starttls").send(MAIL)
    assert smtp.received == []

    with pytest.raises(Retry, match="a server that speaks SMTP here expects security = 'starttls'"):
        mails(smtp.port, "tls").send(MAIL)

    with pytest.raises(Retry, match="does not offer a way to log in that we know"):
        mails(smtp.port, user="me", password="the secret").send(MAIL)


def test_a_challenge_that_is_none_is_a_refusal_of_us(mails: Callable[..., MailServer]) -> None:
    """No mail is at fault for it, as for any other login that fails."""
    answers = {b"EHLO": b"250-hi\r\n250 AUTH CRAM-MD5\r\n", b"AUTH": b"334 abc\r\n"}

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb", 0) as stream:
            stream.write(b"220 hi\r\n")
            for line in stream:
                stream.write(answers.get(line[:4].upper(), b"501 cancelled\r\n"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(Retry, match=r"it answered 501 to the login$"):
            mails(listener.getsockname()[1], user="me", password="the secret").send(MAIL)


def test_an_address_of_other_letters_needs_a_server_for_them(
    start_smtp: StartSmtp, smtp: SmtpServer, mails: Callable[..., MailServer]
) -> None:
    """With SMTPUTF8 it is sent, without it it is rejected. A sender that needs it is a fault of the configuration."""
    mail = Mail("a@example.com", "jürgen@example.com", CONTENT, True)
    modern = start_smtp(smtputf8=True)
    mails(modern.port).send(mail)
    assert modern.mails[0].recipients == ["jürgen@example.com"]
    with pytest.raises(Reject, match="SMTPUTF8"):
        mails(smtp.port).send(mail)
    for recipient in (mail.recipient, "b@example.com"):
        with pytest.raises(Retry, match="SMTPUTF8"):
            mails(smtp.port).send(replace(mail, sender="jürgen@example.com", recipient=recipient))


def test_a_refusal_of_other_letters_holds_up_no_other_mail(start_smtp: StartSmtp, mails: Callable[..., MailServer]) -> None:
    """A server may offer SMTPUTF8 and refuse its parameter or an address, which says nothing about other mails."""
    smtp = start_smtp(smtputf8=True)
    server = mails(smtp.port)
    for how in ("555 parameter not known", "550 5.6.7 other letters not permitted", "553 5.6.7 likewise"):
        smtp.behave("MAIL", how, times=1)
        with pytest.raises(Reject, match=f"answered {how[:3]} to SMTPUTF8"):
            server.send(Mail("a@example.com", "jürgen@example.com", CONTENT, True))
        server.send(MAIL)
        smtp.behave("MAIL", how, times=1)
        with pytest.raises(Retry, match=f"answered {how[:3]} to the sender"):
            mails(smtp.port).send(Mail("jürgen@example.com", "b@example.com", CONTENT, True))


@pytest.mark.parametrize(
    ("answer", "raised", "reason"),
    [
        (b"552 5.3.4 too big\r\n", Reject, "answered 552 to the message: 5.3.4 too big"),
        (b"452 no room\r\n", Retry, "answered 452 to the message: no room"),
        (b"", Retry, "the connection broke"),
    ],
    ids=["for good", "for now", "without an answer"],
)
def test_a_server_that_does_not_read_a_mail_to_its_end_may_say_why(
    mails: Callable[..., MailServer], answer: bytes, raised: type[Exception], reason: str
) -> None:
    """Its answer is about this mail."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb", 0) as stream:
            stream.write(b"220 hi\r\n")
            for line in stream:
                stream.write(b"354 go on\r\n" if line.upper().startswith(b"DATA") else b"250 OK\r\n")
                if line.upper().startswith(b"DATA"):
                    break
            stream.read(10_000)
            stream.write(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(raised, match=reason) as failed:
            mails(listener.getsockname()[1]).send(replace(MAIL, content=b"x" * 50_000_000))
    assert not isinstance(failed.value, OutcomeUnknown)
