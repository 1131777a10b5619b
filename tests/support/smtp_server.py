"""A real mail server (aiosmtpd) in a separate thread, which takes mails, refuses, hangs or drops the connection as configured.

The fixtures `smtp` and `start_smtp` start them.
"""

import asyncio
import contextlib
import logging
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.support.held_port import HeldPort
from tests.support.redis_server import DEADLINE_S, wait_until

logging.getLogger("mail").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Received:
    """One mail that the server got in full. `accepted`: it has answered 250 (or would have, had it not gone)."""

    sender: str
    recipients: list[str]
    content: bytes
    accepted: bool

    @property
    def message(self) -> EmailMessage:
        """The mail as a mail program reads it."""
        found = message_from_bytes(self.content, policy=policy.default)
        assert isinstance(found, EmailMessage)
        return found

    def header(self, name: str) -> str:
        """The first header of this name as it stands there, much quicker than `message`; "" for none."""
        return str(BytesHeaderParser(policy=policy.compat32).parsebytes(self.content).get(name, ""))

    @property
    def text(self) -> str:
        body = self.message.get_body(("plain",))
        assert body is not None
        return str(body.get_content()).replace("\r\n", "\n")


class SmtpServer:
    """One mail server on 127.0.0.1.

    Args:
        security: `none`, `starttls` (demanded) or `tls`.
        certificate: paths of the certificate and its key.
        login: the user and password that it demands.
        smtputf8: offer SMTPUTF8.

    Attributes:
        received: every mail that it got in full, in order, also those that it then refused.
    """

    def __init__(
        self,
        *,
        security: str = "none",
        certificate: tuple[str, str] | None = None,
        login: tuple[str, str] | None = None,
        smtputf8: bool = False,
    ) -> None:
        self.received: list[Received] = []
        self._counts: Counter[str] = Counter()
        self._behaviour: dict[str, tuple[str, int]] = {}
        self._connections: set[Any] = set()
        self._listening: asyncio.Server | None = None
        self._held = HeldPort()  # while it refuses connections, too
        self.port = self._held.port
        self._login = login
        context = None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
        starttls = security == "starttls"
        self._tls = context if security == "tls" else None
        self._options: dict[str, Any] = {
            "hostname": "mail.test",
            "enable_SMTPUTF8": smtputf8,
            "tls_context": context if starttls else None,
            "require_starttls": starttls,
            "auth_required": login is not None,
            "auth_require_tls": starttls,
            "auth_exclude_mechanism": [] if login else ["LOGIN", "PLAIN"],
            "authenticator": self._authenticate,
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail server", daemon=True)
        self._thread.start()
        self.listen()

    @property
    def mails(self) -> list[Received]:
        """Every mail that it accepted, in order."""
        return [mail for mail in self.received if mail.accepted]

    def count(self, what: str) -> int:
        """How often it has seen `connection`, or `RSET`, or has done what `behave` asked for: `misbehaved`."""
        return self._counts[what]

    def behave(self, stage: str, how: str, times: int = 1_000_000) -> None:
        """Have it do something else than agree, the next `times`.

        Args:
            stage: `greeting`, `EHLO` (and HELO), `MAIL`, `RCPT`, `DATA` or `message`.
            how: an answer such as `451 later`; `drop` (no answer, the connection ends), `drop after` (250 first), `hang` (no
                answer), `slow` (the usual answer half a second later), `endless` and `flood` (answers that do not end).
        """
        self._behaviour[stage] = (how, times)

    def refuse(self) -> None:
        """Cut every connection, and refuse new ones, until `listen`."""
        self._run(self._refuse())

    def listen(self) -> None:
        """Take connections again, on the same port."""
        self._run(self._listen())

    def begin_behaving(self) -> None:
        """Agree to everything again, and take connections."""
        self._behaviour.clear()
        self.listen()

    def begin_anew(self) -> None:
        """Behave, and forget the received mails."""
        self.begin_behaving()
        self.received.clear()
        self._counts.clear()

    def wait_for_mails(self, count: int, deadline_s: float = DEADLINE_S) -> list[Received]:
        """Return the accepted mails when there are at least `count`."""
        wait_until(lambda: len(self.mails) >= count, f"{count} mails", deadline_s)
        return self.mails

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._held.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = await self._loop.create_server(lambda: _Session(self), "127.0.0.1", self.port, ssl=self._tls)

    async def _refuse(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for transport in self._connections:
            transport.abort()
        self._connections.clear()

    async def _end(self) -> None:
        await self._refuse()
        ending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, found: Any) -> Any:
        given = (found.login.decode(), found.password.decode()) if isinstance(found, LoginPassword) else None
        return AuthResult(success=given == self._login, handled=False)

    # -- of its sessions, in its loop -----------------------------------------------------------------------------

    def note(self, what: str) -> None:
        self._counts[what] += 1

    def take(self, envelope: Any, *, accepted: bool) -> None:
        self.received.append(Received(envelope.mail_from, list(envelope.rcpt_tos), envelope.original_content, accepted))

    def planned(self, stage: str) -> str:
        """Return how a stage is to go this time; "" for as usual."""
        how, times = self._behaviour.get(stage, ("", 0))
        self._behaviour[stage] = (how, times - 1)
        if times <= 0:
            return ""
        self.note("misbehaved")
        return how


class _Session(SMTP):
    """One connection, which handles its own commands."""

    def __init__(self, server: SmtpServer) -> None:
        self._server, self._greeted = server, False
        super().__init__(self, loop=server._loop, **server._options)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._server._connections.add(transport)

    async def push(self, status: Any) -> None:
        if not self._greeted:
            self._greeted = True
            self._server.note("connection")
            status = await self._answer("greeting", status)
        await super().push(status)

    async def smtp_DATA(self, arg: str) -> None:
        if how := self._server.planned("DATA"):
            await self.push(how)
        else:
            await super().smtp_DATA(arg)

    async def handle_EHLO(self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]) -> list[str]:
        session.host_name = hostname
        return [how] if (how := await self._answer("EHLO", "")) else responses

    async def handle_HELO(self, server: Any, session: Any, envelope: Any, hostname: str) -> str:
        session.host_name = hostname
        return await self._answer("EHLO", "250 mail.test")

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        how = await self._answer("MAIL", "250 OK")
        if how == "250 OK":
            envelope.mail_from, envelope.mail_options = address, options
        return how

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        how = await self._answer("RCPT", "250 OK")
        if how == "250 OK":
            envelope.rcpt_tos.append(address)
        return how

    async def handle_RSET(self, server: Any, session: Any, envelope: Any) -> str:
        self._server.note("RSET")
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        how = self._server.planned("message")
        self._server.take(envelope, accepted=how in ("", "drop after", "slow"))
        return await self._act(how, "250 OK")

    async def _answer(self, stage: str, usual: str) -> str:
        return await self._act(self._server.planned(stage), usual)

    async def _act(self, how: str, usual: str) -> str:
        """Take the planned step; return the answer to give."""
        transport: Any = self.transport
        if how == "drop":
            transport.abort()
        elif how == "drop after":
            await self.push(usual)
            transport.close()
        elif how == "slow":
            await asyncio.sleep(0.5)
            return usual
        elif how in ("endless", "flood"):
            while not transport.is_closing():
                self._writer.write(b"250-and\r\n" * (1 if how == "endless" else 10_000))
                await asyncio.sleep(0.01)
        if how in ("drop", "drop after", "hang"):
            await asyncio.Event().wait()
        return how or usual


@pytest.fixture
def start_smtp() -> Iterator[Callable[..., SmtpServer]]:
    """Start mail servers that end with the test: `start_smtp(security="tls", certificate=…)`."""
    with contextlib.ExitStack() as started:
        yield lambda **asked: started.enter_context(contextlib.closing(SmtpServer(**asked)))


@pytest.fixture(scope="session")
def session_smtp() -> Iterator[SmtpServer]:
    """The mail server of this test run, without TLS or a login."""
    with contextlib.closing(SmtpServer()) as server:
        yield server


@pytest.fixture
def smtp(session_smtp: SmtpServer) -> SmtpServer:
    """The mail server of this test run, empty and willing."""
    session_smtp.begin_anew()
    return session_smtp
