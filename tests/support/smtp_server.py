"""A real mail server (aiosmtpd) in a separate process, which takes mails, refuses, hangs or drops the connection as configured.

Run as a program (`python -m tests.support.smtp_server`) it is the server; imported, it is the test's end of it, with the fixtures
`smtp` and `start_smtp`.
"""

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0


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
        """Its text."""
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
    """

    def __init__(
        self,
        *,
        security: str = "none",
        certificate: tuple[str, str] | None = None,
        login: tuple[str, str] | None = None,
        smtputf8: bool = False,
    ) -> None:
        self.port = 0
        self._received: list[Received] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._done = 0
        self._grown = threading.Condition()
        asked = {"security": security, "certificate": certificate, "login": login, "smtputf8": smtputf8}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.smtp_server", json.dumps(asked)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._collect, name="mail server", daemon=True).start()
        self.wait_for(lambda: self.port, "the mail server to listen")

    @property
    def received(self) -> list[Received]:
        """Every mail that it got in full, in order, also those that it then refused."""
        self._order("sync")
        with self._grown:
            return list(self._received)

    @property
    def mails(self) -> list[Received]:
        """Every mail that it accepted, in order."""
        return [mail for mail in self.received if mail.accepted]

    def count(self, what: str) -> int:
        """How often it has seen `connection`, or `RSET`, or has done what `behave` asked for: `misbehaved`."""
        self._order("sync")
        with self._grown:
            return self._counts[what]

    def behave(self, stage: str, how: str, times: int = 1_000_000) -> None:
        """Have it do something else than agree, the next `times`.

        Args:
            stage: `greeting`, `EHLO` (and HELO), `MAIL`, `RCPT`, `DATA` or `message`; "" for all of them.
            how: an answer such as `451 later`; `drop` (no answer, the connection ends), `drop after` (250 first), `hang` (no
                answer), `slow` (the usual answer half a second later), `endless` and `flood` (answers that do not end).
            times: 0: agree again.
        """
        self._order("behave", stage, how, times)

    def refuse(self) -> None:
        """Cut every connection, and refuse new ones, until `listen`."""
        self._order("refuse")

    def listen(self) -> None:
        """Take connections again, on the same port."""
        self._order("listen")

    def begin_behaving(self) -> None:
        """Agree to everything again, and take connections."""
        self._order("behave", "", "", 0)
        self._order("listen")

    def begin_anew(self) -> None:
        """Behave, and forget the received mails."""
        self.begin_behaving()
        with self._grown:
            self._received.clear()
            self._counts.clear()

    def wait_for_mails(self, count: int, deadline_s: float = DEADLINE_S) -> list[Received]:
        """Return the accepted mails when there are at least `count`."""
        self.wait_for(lambda: sum(mail.accepted for mail in self._received) >= count, f"{count} mails", deadline_s)
        return self.mails

    def wait_for(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until `condition()` is true, looking after each report of the server."""
        give_up = time.monotonic() + deadline_s
        with self._grown:
            while not condition():
                if time.monotonic() > give_up or self._process.poll() is not None:
                    pytest.fail(f"not within {deadline_s:g} s: {what}; {len(self._received)} received, {dict(self._counts)}")
                self._grown.wait(0.2)

    def close(self) -> None:
        """End it. Idempotent."""
        self._process.kill()
        self._process.wait()

    def _order(self, *order: Any) -> None:
        assert self._process.stdin is not None
        wanted = self._done + 1
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self.wait_for(lambda: self._done >= wanted, f"the mail server to do {order}")

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of one
            what, *rest = json.loads(line)
            with self._grown:
                if what == "port":
                    self.port = rest[0]
                elif what == "done":
                    self._done += 1
                elif what == "mail":
                    self._received.append(Received(rest[0], rest[1], base64.b64decode(rest[2]), rest[3]))
                else:
                    self._counts[what] += 1
                self._grown.notify_all()


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


def main(asked_json: str) -> None:
    """Be the server, until standard input ends."""
    import logging
    import ssl

    from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

    from tests.support.held_port import HeldPort

    logging.getLogger("mail").setLevel(logging.CRITICAL)
    asked = json.loads(asked_json)
    loop = asyncio.new_event_loop()
    behaviour: dict[str, tuple[str, int]] = {}
    connections: set[Any] = set()
    listening: list[asyncio.Server] = []
    held = HeldPort()  # while it refuses connections, too

    def tell(*entry: Any) -> None:
        sys.stdout.write(json.dumps(entry) + "\n")
        sys.stdout.flush()

    def planned(stage: str) -> str:
        how, times = behaviour.get(stage, ("", 0))
        behaviour[stage] = (how, times - 1)
        if times <= 0:
            return ""
        tell("misbehaved")
        return how

    async def answer(server: Any, how: str, usual: str) -> str:
        """Take the planned step; return the answer to give."""
        if how == "drop":
            server.transport.abort()
        elif how == "drop after":
            await server.push(usual)
            server.transport.close()
        elif how == "slow":
            await asyncio.sleep(0.5)
            return usual
        elif how in ("endless", "flood"):
            while not server.transport.is_closing():
                server._writer.write(b"250-and\r\n" * (1 if how == "endless" else 10_000))
                await asyncio.sleep(0.01)
        if how in ("drop", "drop after", "hang"):
            await asyncio.Event().wait()
        return how or usual

    class Handler:
        async def handle_EHLO(self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]) -> list[str]:
            session.host_name = hostname
            return [how] if (how := await answer(server, planned("EHLO"), "")) else responses

        async def handle_HELO(self, server: Any, session: Any, envelope: Any, hostname: str) -> str:
            session.host_name = hostname
            return await answer(server, planned("EHLO"), "250 mail.test")

        async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
            how = await answer(server, planned("MAIL"), "250 OK")
            if how == "250 OK":
                envelope.mail_from, envelope.mail_options = address, options
            return how

        async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
            how = await answer(server, planned("RCPT"), "250 OK")
            if how == "250 OK":
                envelope.rcpt_tos.append(address)
            return how

        async def handle_RSET(self, server: Any, session: Any, envelope: Any) -> str:
            tell("RSET")
            return "250 OK"

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            how = planned("message")
            content = base64.b64encode(envelope.original_content).decode()
            tell("mail", envelope.mail_from, envelope.rcpt_tos, content, how in ("", "drop after", "slow"))
            return await answer(server, how, "250 OK")

    class Server(SMTP):
        _greeted = False

        async def smtp_DATA(self, arg: str) -> None:
            if how := planned("DATA"):
                await self.push(how)
            else:
                await super().smtp_DATA(arg)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connections.add(transport)

        async def push(self, status: Any) -> None:
            if not self._greeted:
                self._greeted = True
                tell("connection")
                status = await answer(self, planned("greeting"), status)
            await super().push(status)

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, found: Any) -> Any:
        given = [found.login.decode(), found.password.decode()] if isinstance(found, LoginPassword) else None
        return AuthResult(success=given == asked["login"], handled=False)

    context = None
    if asked["certificate"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*asked["certificate"])
    starttls = asked["security"] == "starttls"

    def protocol() -> Any:
        return Server(
            Handler(),
            hostname="mail.test",
            enable_SMTPUTF8=asked["smtputf8"],
            tls_context=context if starttls else None,
            require_starttls=starttls,
            auth_required=asked["login"] is not None,
            auth_require_tls=starttls,
            auth_exclude_mechanism=[] if asked["login"] else ["LOGIN", "PLAIN"],
            authenticator=authenticate,
            loop=loop,
        )

    async def obey(what: str, *rest: Any) -> None:
        if what == "behave":
            if not rest[0]:
                behaviour.clear()
            behaviour[rest[0]] = (rest[1], rest[2])
        elif what == "refuse":
            listening.pop().close()
            for transport in connections:
                transport.abort()
            connections.clear()
        elif what == "listen" and not listening:
            tls = context if asked["security"] == "tls" else None
            listening.append(await loop.create_server(protocol, "127.0.0.1", held.port, ssl=tls))

    async def start() -> None:
        await obey("listen")
        tell("port", held.port)

    def take_orders() -> None:
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(obey(*json.loads(line)), loop).result()
            tell("done")
        loop.call_soon_threadsafe(loop.stop)

    loop.run_until_complete(start())
    threading.Thread(target=take_orders, daemon=True).start()
    loop.run_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
