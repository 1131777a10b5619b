"""Handing mails to one SMTP server. The one file that meets smtplib.

In: a `Mail`. Out: nothing, once the server has said 250; else a `Retry` or `Reject` of base.py. verdict.py judges the answers. An
answer against us (greeting, login, sender) rejects no event: it is a fault of the set-up, tried again, and logged.

While the server is out of reach or refuses us, most mails are sent back to wait without an attempt: one that hangs must not
keep the consumer from reading its log, which is trimmed meanwhile, and a wrong password must not be tried a thousand times.

One connection per worker, kept while it is used. A connection that breaks after the message, before the answer, leaves open
whether the server has it: it is sent again, and its Message-ID is the same.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

import structlog

from headgate.consumers.base import Reject, Retry
from headgate.consumers.sparse_log import SparseLog

from .message import Mail
from .verdict import Pause, RefusesUs, Stage, answered, first_line, judge

# Servers cut idle clients after minutes (RFC 5321: five at least), NATs and firewalls sooner.
IDLE_S = 30.0
PORTS = {"starttls": 587, "tls": 465, "none": 25}
_DONE = 250


@dataclass(frozen=True, slots=True)
class Server:
    """A mail server: where it is, how the connection is secured, the login. `timeout_s` limits connecting and each answer."""

    host: str
    port: int
    security: str
    timeout_s: float
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return f"{self.host}:{self.port}"


class MailServer:
    """Sends mails to a server, one at a time. Belongs to one thread.

    Args:
        server: which one.
        consumer: whose mails, for the log.
        now: the monotonic clock.

    Raises:
        OSError: the file of certificates cannot be read, or holds none (ssl.SSLError).
    """

    def __init__(self, server: Server, consumer: str, now: Callable[[], float] = time.monotonic) -> None:
        self._server, self._now = server, now
        self._log = SparseLog(structlog.get_logger("headgate.consumers").bind(consumer=consumer).error)
        self._context = None if server.security == "none" else ssl.create_default_context(cafile=server.ca_file)
        self._smtp: smtplib.SMTP | None = None
        self._used_s = 0.0
        self._own_name: str | None = None
        self._pause = Pause()

    def send(self, mail: Mail) -> None:
        """Hand over one mail; it is the server's when this returns.

        Raises:
            Retry: no connection, no answer, an answer that will pass (4xx), or one against us rather than this mail.
            Reject: the server will never take this mail (5xx).
        """
        began_s = self._now()
        self._pause.check(began_s)
        try:
            smtp = self._ready()
            self._used_s = began_s
            self._hand_over(smtp, mail)
        except RefusesUs as error:
            self.close()
            self._no_service("the mail server refuses us: mails wait", str(error), began_s, error)
        except (smtplib.SMTPException, OSError) as error:
            self._drop()
            self._no_service("the mail server is out of reach: mails wait", _reason(error), began_s, error)
        except (Retry, Reject):
            self._pause.end()  # it is there, and has something to say about this mail
            raise
        self._pause.end()

    def close(self) -> None:
        """Say goodbye and let go of the connection, without waiting for an answer. Idempotent."""
        if self._smtp is not None:
            with suppress(smtplib.SMTPException, OSError):
                self._smtp.putcmd("QUIT")
        self._drop()

    def _drop(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            smtp.close()

    def _ready(self) -> smtplib.SMTP:
        """Return a connection that waits for MAIL: the kept one if it still answers, else a new one."""
        smtp = self._smtp
        if smtp is not None and self._now() - self._used_s < IDLE_S:
            with suppress(smtplib.SMTPException, OSError):
                if smtp.rset()[0] == _DONE:
                    return smtp
        self.close()
        self._smtp = smtp = self._connect()
        return smtp

    def _connect(self) -> smtplib.SMTP:
        """Return a new connection, secured and logged in."""
        server = self._server
        try:
            if server.security == "tls":
                smtp: smtplib.SMTP = _SmtpTls(
                    server.host, server.port, self._own_name, timeout=server.timeout_s, context=self._context
                )
            else:
                smtp = _Smtp(server.host, server.port, self._own_name, timeout=server.timeout_s)
        except smtplib.SMTPConnectError as error:
            raise RefusesUs(answered("the greeting", error.smtp_code, first_line(error.smtp_error))) from error
        # Found out by asking the resolver, which can take long: once is enough.
        self._own_name = smtp.local_hostname
        try:
            self._open(smtp)
        except BaseException:
            smtp.close()
            raise
        return smtp

    def _open(self, smtp: smtplib.SMTP) -> None:
        server = self._server
        try:
            smtp.ehlo_or_helo_if_needed()
            if server.security == "starttls":
                if not smtp.has_extn("starttls"):
                    raise RefusesUs("it does not offer STARTTLS")
                smtp.starttls(context=self._context)
                smtp.ehlo_or_helo_if_needed()
            if server.user is not None:
                smtp.login(server.user, server.password or "")
        except smtplib.SMTPAuthenticationError as error:
            # Without the server's text: some repeat what they were sent.
            raise RefusesUs(answered("the login", error.smtp_code)) from error
        except smtplib.SMTPResponseException as error:
            raise RefusesUs(answered("EHLO or STARTTLS", error.smtp_code, first_line(error.smtp_error))) from error
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPException as error:
            raise RefusesUs("it does not offer a way to log in that we know") from error

    def _hand_over(self, smtp: smtplib.SMTP, mail: Mail) -> None:
        options = [f"SIZE={len(mail.content)}"] if smtp.has_extn("size") else []
        if mail.international:
            if not smtp.has_extn("smtputf8"):
                raise Reject("the mail server takes no address with other letters than ASCII (it does not offer SMTPUTF8)")
            options += ["SMTPUTF8", "BODY=8BITMIME"]
        judge(Stage.SENDER, *smtp.mail(mail.sender, options))
        judge(Stage.RECIPIENT, *smtp.rcpt(mail.recipient))
        answer: tuple[int, bytes | str]
        try:
            answer = smtp.data(mail.content)
        except smtplib.SMTPDataError as error:
            answer = error.smtp_code, error.smtp_error
        judge(Stage.MESSAGE, *answer)

    def _no_service(self, event: str, reason: str, began_s: float, cause: Exception) -> NoReturn:
        """Log an attempt that failed whatever the mail, begin a pause, and raise the Retry."""
        self._log(event, server=self._server.place, reason=reason)
        raise self._pause.begin(began_s, self._now(), f"mail server {self._server.place}: {reason}") from cause


class _Smtp(smtplib.SMTP):
    """smtplib's client, with the timeout on the whole of an answer: its own starts anew with every byte."""

    def getreply(self) -> tuple[int, bytes]:
        late = threading.Event()
        assert self.sock is not None
        sock = self.sock

        def end() -> None:
            late.set()  # before the reader wakes up and asks
            _shut_down(sock)

        cut = threading.Timer(self.timeout, end)
        cut.daemon = True
        cut.start()
        try:
            return super().getreply()
        except smtplib.SMTPServerDisconnected as error:
            if isinstance(error.__context__, TimeoutError) or late.is_set():
                raise TimeoutError from error
            raise
        finally:
            cut.cancel()


class _SmtpTls(_Smtp, smtplib.SMTP_SSL):
    """The same with TLS from the first byte."""


def _shut_down(sock: socket.socket) -> None:
    """End the stream for the thread that waits for this socket."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    """Return why there was no answer, in a line without addresses and numbers of the system."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "the connection broke"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {(error.reason or 'handshake failed').replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return type(error).__name__
