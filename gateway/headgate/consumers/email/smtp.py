"""Sends mails to one SMTP server. Only this file imports smtplib.

In: a `Mail`. Out: nothing, once the server has answered 250; else a `Retry` or `Reject` of base.py. A refusal of our connection
(greeting, login, sender) does not reject an event. It is a fault of the configuration, and tried again.

Each worker keeps one connection while it is in use. Without an answer to the last byte of a mail the server may have it, so the
outcome is unknown (`OutcomeUnknown`), and the next attempt has the same Message-ID. RFC 5321, section 4.5.3.2.6, gives the
server ten minutes for this answer. A client that gives up sooner duplicates each mail delayed by a content filter.
"""

from __future__ import annotations

import re
import smtplib
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headgate.consumers.base import OutcomeUnknown, Reject, Retry
from headgate.consumers.pause import Pause
from headgate.consumers.values import trust_again
from headgate.runtime.connection_faults import reason_of

from .message import Mail

if TYPE_CHECKING:
    from .options import EmailOptions

# Servers cut idle clients after minutes (RFC 5321: five at least), NATs and firewalls sooner.
IDLE_S = 30.0
PORTS = {"starttls": 587, "tls": 465, "none": 25}
# Limit of a whole reply. RFC 5321, section 4.5.3.1.5, allows 512 bytes per line.
MAX_REPLY_BYTES = 64 * 1024
_DONE, _GO_ON = 250, 354
SHOWN_CHARACTERS = 200
_CLOSING, _TOO_LARGE = 421, 552
# The login is missing, too weak or refused (RFC 4954, section 6), at any stage.
_LOGIN = frozenset({530, 534, 535, 538})
# The stages of sending one mail.
SENDER, RECIPIENT, MESSAGE, LETTERS = "the sender", "the recipient", "the message", "SMTPUTF8"
# Refusals of the parameters of MAIL, and the enhanced code of an address with other letters (RFC 6531, section 3.5).
_PARAMETERS, _OTHER_LETTERS = frozenset({501, 504, 555}), b"5.6.7"
# A server that aborts a mail sends its refusal within this time, if any.
REFUSAL_S = 1.0
# After an answer to a message that came too late, mails rest for this part of the time that it took. The worker then reads the
# log before it is trimmed. The server may still work.
LATE_TIMES = 10
_LINE_START_DOT = re.compile(rb"^\.", re.MULTILINE)


class MailServer:
    """Sends mails to a server, one at a time. Belongs to one thread.

    Args:
        options: its address, the security of the connection, the login. `timeout_s` limits connecting and each answer except that
            to the message, which `accept_timeout_s` limits.
        now: the monotonic clock.

    Raises OSError if the file of certificates is unreadable, or contains none (ssl.SSLError).
    """

    def __init__(self, options: EmailOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options, self._now = options, now
        self._port = options.port or PORTS[options.security]
        self._place = f"{options.host}:{self._port}"
        self._context = None if options.security == "none" else ssl.create_default_context(cafile=options.ca_file)
        self._smtp: _Smtp | None = None
        self._used_s = 0.0
        self._own_name: str | None = None
        self._pause = Pause()

    def send(self, mail: Mail) -> None:
        """Send one mail. The server has accepted it when this returns.

        Raises:
            Retry: no connection, no answer, a temporary refusal (4xx), or a refusal of us and not of this mail.
            OutcomeUnknown: no answer to the message. If it is only late, the next mail is tried soon.
            Reject: the server refuses this mail permanently (5xx).
        """
        began_s = self._now()
        self._pause.check(began_s)
        is_sent = False
        try:
            smtp = self._ready()
            self._used_s = began_s
            self._hand_over(smtp, mail)
            is_sent = True
            self._judge_message(smtp)
        except RefusesUs as error:
            self.close()
            raise self._no_service(str(error), began_s) from error
        except (smtplib.SMTPException, OSError) as error:
            self._drop()
            self._context = trust_again(self._context, self._options.ca_file, error)
            if not is_sent:
                raise self._no_service(_reason(error), began_s) from error
            if isinstance(error, TimeoutError):
                reason = f"mail server {self._place}: no answer to the message within {self._options.accept_timeout_s:g} s"
                now_s = self._now()
                self._pause.end()
                self._pause.until(now_s + (now_s - began_s) / LATE_TIMES, reason)
                raise OutcomeUnknown(reason) from error
            waits = self._no_service(f"no answer to the message: {_reason(error)}", began_s)
            raise OutcomeUnknown(waits.reason, waits.after_s) from error
        except (Retry, Reject):
            self._pause.end()  # the server works and refuses only this mail
            raise
        self._pause.end()

    def pause_s(self) -> float:
        """Return how long no mail is tried, after failures without service."""
        return self._pause.left_s(self._now())

    def close(self) -> None:
        """Say goodbye and close the connection, without waiting for an answer. Idempotent."""
        if self._smtp is not None:
            with suppress(smtplib.SMTPException, OSError):
                self._smtp.putcmd("QUIT")
        self._drop()

    def _drop(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            smtp.close()

    def _ready(self) -> _Smtp:
        """Return a connection ready for MAIL, which is the open one if it still answers, else a new one."""
        smtp = self._smtp
        if smtp is not None and self._now() - self._used_s < IDLE_S:
            with suppress(smtplib.SMTPException, OSError):
                if smtp.rset()[0] == _DONE:
                    return smtp
        self.close()
        self._smtp = smtp = self._connect()
        return smtp

    def _connect(self) -> _Smtp:
        """Return a new connection, secured and logged in."""
        host, timeout_s = self._options.host, self._options.timeout_s
        try:
            if self._options.security == "tls":
                smtp: _Smtp = _SmtpTls(host, self._port, self._own_name, timeout=timeout_s, context=self._context)
            else:
                smtp = _Smtp(host, self._port, self._own_name, timeout=timeout_s)
        except smtplib.SMTPConnectError as error:
            raise RefusesUs(answered("the greeting", error.smtp_code, first_line(error.smtp_error))) from error
        # Stored, because the resolver may take long to find this name.
        self._own_name = smtp.local_hostname
        try:
            self._open(smtp)
        except BaseException:
            smtp.close()
            raise
        return smtp

    def _open(self, smtp: _Smtp) -> None:
        try:
            smtp.ehlo_or_helo_if_needed()
            if self._options.security == "starttls":
                if not smtp.has_extn("starttls"):
                    raise RefusesUs("it does not offer STARTTLS; a server on this machine takes security = 'none'")
                smtp.starttls(context=self._context)
                smtp.received = b""  # plain-text bytes after the answer, which are not secured
                smtp.ehlo_or_helo_if_needed()
            if self._options.user is not None:
                smtp.login(self._options.user, self._options.password or "")
        except smtplib.SMTPAuthenticationError as error:
            # Without the server's text, because some servers repeat the credentials.
            raise RefusesUs(answered("the login", error.smtp_code)) from error
        except smtplib.SMTPResponseException as error:
            raise RefusesUs(answered("EHLO or STARTTLS", error.smtp_code, first_line(error.smtp_error))) from error
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPException as error:
            raise RefusesUs("it does not offer a way to log in that we know") from error

    def _hand_over(self, smtp: _Smtp, mail: Mail) -> None:
        options = [f"SIZE={len(mail.content)}"] if smtp.has_extn("size") else []
        is_about_recipient = mail.international and mail.sender.isascii()
        if mail.international:
            if not smtp.has_extn("smtputf8"):
                reason = "takes no address with other letters than ASCII (it does not offer SMTPUTF8)"
                raise Reject(f"the mail server {reason}") if is_about_recipient else RefusesUs(f"it {reason}")
            options += ["SMTPUTF8", "BODY=8BITMIME"]
        code, text = smtp.mail(mail.sender, options)
        is_about_letters = is_about_recipient and (code in _PARAMETERS or text.startswith(_OTHER_LETTERS))
        judge(LETTERS if is_about_letters else SENDER, code, text)
        judge(RECIPIENT, *smtp.rcpt(mail.recipient))
        code, text = smtp.docmd("DATA")
        if code != _GO_ON:
            judge(MESSAGE, code, text)
            raise Retry(answered("DATA", code, first_line(text)))
        body = _LINE_START_DOT.sub(b"..", mail.content) + (b"" if mail.content.endswith(b"\r\n") else b"\r\n") + b".\r\n"
        assert smtp.sock is not None
        try:
            smtp.sock.sendall(body)
        except OSError as error:  # it leaves the last bytes unsent, so the server cannot accept the mail
            self._judge_broken_off(smtp)
            raise smtplib.SMTPServerDisconnected("the connection ended") from error

    def _judge_message(self, smtp: _Smtp) -> None:
        """Judge the answer to a whole mail. Raises SMTPException and OSError if it is missing or invalid."""
        text = b""
        try:
            _, text = smtp.read_reply(self._options.accept_timeout_s)
        except (smtplib.SMTPException, OSError):
            if smtp.first_code is None:
                raise
        code = smtp.first_code or -1  # the first line decides; the others explain it
        if not 200 <= code < 300 and not 400 <= code < 600:
            raise smtplib.SMTPException("an answer that is none of SMTP's")
        judge(MESSAGE, code, text)

    def _judge_broken_off(self, smtp: _Smtp) -> None:
        """Judge the answer, if any, of a server that aborts a mail, for example above its size limit."""
        text = b""
        with suppress(smtplib.SMTPException, OSError):
            _, text = smtp.read_reply(REFUSAL_S)
        self._drop()  # RSET would be part of the mail
        if smtp.first_code is not None and 400 <= smtp.first_code < 600:
            judge(MESSAGE, smtp.first_code, text)

    def _no_service(self, reason: str, began_s: float) -> Retry:
        """Begin a pause after a failure independent of the mail, and return the Retry."""
        return self._pause.begin(began_s, self._now(), f"mail server {self._place}: {reason}")


class RefusesUs(Exception):
    """A refusal or missing capability independent of the mail, in one line."""


class _ReplyTooLong(smtplib.SMTPServerDisconnected):
    """A reply longer than MAX_REPLY_BYTES, after which we disconnect."""


class _Smtp(smtplib.SMTP):
    """smtplib's client, with a limit on the time and the bytes of a whole reply. smtplib's own limits restart with every byte
    and line.

    Attributes:
        first_code: code of the current or last reply; None until its first line has arrived.
        received: bytes of the next reply.
    """

    first_code: int | None = None
    received = b""

    def getreply(self) -> tuple[int, bytes]:
        return self.read_reply(self.timeout)

    def auth(self, mechanism: str, authobject: Any, *, initial_response_ok: bool = True) -> tuple[int, bytes]:
        """Log in by one mechanism. After an invalid challenge, or without MD5 on this system, smtplib tries the next one."""
        try:
            return super().auth(mechanism, authobject, initial_response_ok=initial_response_ok)
        except ValueError as error:
            raise smtplib.SMTPAuthenticationError(*self.docmd("*")) from error  # cancels it: RFC 4954, section 4

    def read_reply(self, within_s: float) -> tuple[int, bytes]:
        """Return the code (-1 if it is not a reply) and the text of the next reply. After an error the connection is closed.

        Raises:
            TimeoutError: it did not end in time.
            SMTPServerDisconnected: the connection ended.
            SMTPException: it is too long.
        """
        deadline_s, room, lines = time.monotonic() + within_s, MAX_REPLY_BYTES, list[bytes]()
        self.first_code = None
        try:
            while True:
                line = self._read_line(deadline_s, room)
                room -= len(line) + 1
                lines.append(line[4:].strip())
                code = int(line[:3]) if line[:3].isdigit() else -1
                self.first_code = self.first_code or code
                if code < 0 or line[3:4] != b"-":
                    return code, b"\n".join(lines)
        except (TimeoutError, smtplib.SMTPException):
            self.close()
            raise
        except OSError as error:
            self.close()
            raise smtplib.SMTPServerDisconnected("the connection ended") from error
        finally:
            if self.sock is not None:
                self.sock.settimeout(self.timeout)

    def _read_line(self, deadline_s: float, room: int) -> bytes:
        while b"\n" not in self.received[:room]:
            if len(self.received) >= room:
                raise _ReplyTooLong("a reply that is too long")
            left_s = deadline_s - time.monotonic()
            if self.sock is None or left_s <= 0:
                raise ConnectionResetError if self.sock is None else TimeoutError
            self.sock.settimeout(left_s)
            if not (data := self.sock.recv(4096)):
                raise ConnectionResetError
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        return line


class _SmtpTls(_Smtp, smtplib.SMTP_SSL):
    """The same with TLS from the first byte."""


def judge(stage: str, code: int, answer: bytes | str) -> None:
    """Return on success, any 2xx. The first digit decides (RFC 5321, section 4.2.1), because a repeated mail is a duplicate.

    Raises:
        Retry: a temporary refusal (4xx), or an answer that is not SMTP.
        Reject: a permanent refusal of this mail (5xx).
        RefusesUs: the answer refuses us and not this mail.
    """
    if 200 <= code < 300:
        return
    line = first_line(answer)
    # Every mail has the same sender, so a refusal of the sender is not due to the event, except by the size that MAIL announces.
    if code in _LOGIN or code == _CLOSING or (stage == SENDER and code >= 500 and code != _TOO_LARGE):
        raise RefusesUs(answered(stage, code, line))
    reason = f"the mail server answered {code} to {stage}: {line}"
    raise (Reject if 500 <= code <= 599 else Retry)(reason)


def answered(stage: str, code: int, line: str = "") -> str:
    """Describe an answer to a stage in one line."""
    return f"it answered {code} to {stage}" + (f": {line}" if line else "")


def first_line(answer: bytes | str) -> str:
    """Return the first line of an answer, printable and short enough for a log."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    first = text.splitlines()[0] if text else ""
    return re.sub(r"[^\x20-\x7e]", "?", first)[:SHOWN_CHARACTERS]


def _reason(error: Exception) -> str:
    """Return why there was no answer, in a line without addresses and error numbers."""
    if type(error) in (smtplib.SMTPException, _ReplyTooLong):
        return str(error)
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "the connection broke"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":  # OpenSSL's name for bytes that are not TLS
        return "it does not begin with TLS; a server that speaks SMTP here expects security = 'starttls'"
    return reason_of(error) or type(error).__name__
