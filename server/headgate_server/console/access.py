"""Who may enter the console, and what for. The one file that knows the admin key.

In: a request's cookie, or its handshake for an application's own authenticator; the key that somebody types. Out: an `Operator`,
or a refusal. A sign-in by key becomes a session: a cookie, signed with a key that is derived from the admin key, so that it
holds at every worker and gateway, and none when the key is changed. A page opens its socket with a ticket, signed likewise, which
ends within a minute. A session has an id, which counts as that of a token (auth/revocation.py): signing out revokes it, on every
gateway, with the sockets that came with it.

Rules. 1. The key is compared in constant time. An address of which too many keys were wrong is not heard for a while. 2. An
action needs the right to act, a header that no form and no other site can send, and an Origin that is this gateway's. 3. Who
signs in by key only looks, unless HEADGATE_CONSOLE_ACTIONS says otherwise. 4. What outlasts a session (an API key) wants the key
once more.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadSignature, URLSafeSerializer

from headgate.addresses.origins import origin_in_header
from headgate.auth.admission import FailedLogins
from headgate.auth.audit import audit
from headgate.auth.identity import ANONYMOUS, Admin, Handshake, Identity
from headgate.errors import Forbidden, HeadgateError, Unauthorized
from headgate.errors import UnauthorizedReason as Reason
from headgate.node.access.origin import origin_over
from headgate.settings import Settings
from headgate.transport.peer_address import address_of

COOKIE = "headgate_console"
SESSION_S = 12 * 3600
# From the page's question to the CONNECT that shows it.
TICKET_S = 60
# Wrong keys of one address: so many at once, and one more every ten seconds.
WRONG_KEYS, WRONG_KEYS_PER_S = 10, 0.1
# A session or a ticket is some 150 characters; what is much longer is not worth a hash.
MAX_SIGNED = 512
MAX_KEY = 4096
KEY_USER = "console"
# Where the audit log says that an action came from.
VIA = "console"
# What an action must send. A form cannot, and a script of another site may not without asking first.
ACTION_HEADER = "X-Headgate-Console"


@dataclass(frozen=True, slots=True)
class Operator:
    """Who looks at the console. `ends_s` (seconds since 1970) is when the session ends, `session` its id; None: the application
    decides each time."""

    user: str
    may: Admin
    ends_s: float | None = None
    session: str | None = None

    @property
    def by_key(self) -> bool:
        """Whether it has signed in with the admin key."""
        return self.ends_s is not None


class Access:
    """See the module.

    Args:
        identify: the application's own authenticator; None: only the key lets anyone in.
        check_revoked: refuses an identity that is revoked.
        revoke: revokes a token's id for so many seconds.
        now_s: monotonic; time_s: seconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        identify: Callable[[Handshake], Identity] | None,
        check_revoked: Callable[[Identity], None],
        revoke: Callable[[str, int], None],
        now_s: Callable[[], float] = time.monotonic,
        time_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._identify = settings, identify
        self._check_revoked, self._revoke = check_revoked, revoke
        self._now_s, self._time_s = now_s, time_s
        self._wrong = FailedLogins(WRONG_KEYS_PER_S, WRONG_KEYS)
        self._key = None if settings.admin_key is None else settings.admin_key.encode(errors="surrogateescape")
        self._may: Admin = "act" if settings.console_actions else "read"
        self._sessions, self._tickets = (
            None if self._key is None else URLSafeSerializer(_derived(self._key), salt=salt)
            for salt in ("headgate console session 2", "headgate console ticket 2")
        )

    @property
    def takes_key(self) -> bool:
        """Whether there is a page to sign in."""
        return self._key is not None

    def operator(self, cookie: str | None, environ: Mapping[str, Any]) -> Operator | None:
        """Return who sends a request, or None: nobody who may enter. The application may wait for something."""
        return self._by_session(cookie) or self._by_application(environ)

    def check_key(self, key: str, environ: Mapping[str, Any]) -> None:
        """Refuse another key than the admin key.

        Raises:
            Unauthorized: it is another one.
            LoginsThrottled: too many of this address were.
        """
        address = address_of(environ, self._settings.proxies)
        self._wrong.check(address, self._now_s())
        shown = hashlib.sha256(key[:MAX_KEY].encode(errors="surrogateescape")).digest()
        if self._key is None or not hmac.compare_digest(shown, hashlib.sha256(self._key).digest()):
            self._wrong.failed(address, self._now_s())
            audit.login_refused(address=address, namespace="console", code=Unauthorized.code, reason=Reason.NOT_ACCEPTED)
            raise Unauthorized(Reason.NOT_ACCEPTED, "this is not the admin key")

    def sign_in(self, key: str, environ: Mapping[str, Any]) -> str:
        """Return the cookie's value for the right key. Raises as `check_key`."""
        self.check_key(key, environ)
        audit.acted("sign in", by=KEY_USER, via=VIA, address=address_of(environ, self._settings.proxies))
        session = f"console:{secrets.token_urlsafe(12)}"
        return self._signed(self._sessions, [KEY_USER, session, self._time_s() + SESSION_S])

    def sign_out(self, operator: Operator, environ: Mapping[str, Any]) -> None:
        """End the session of an operator, with its sockets, wherever its cookie is. Waits for Redis.

        Raises:
            LimitReached, BusUnavailable, BusRefused: as `auth.revocation.revoke`: the session goes on.
        """
        if operator.session is not None and operator.ends_s is not None:
            self._revoke(operator.session, max(1, math.ceil(operator.ends_s - self._time_s())))
        self.acted(operator, environ, "sign out")

    def ticket(self, operator: Operator) -> str | None:
        """Return what a page shows in its CONNECT; None where the application's authenticator is asked there, too."""
        if not operator.by_key:
            return None
        return self._signed(self._tickets, [operator.user, operator.session, operator.ends_s, self._time_s() + TICKET_S])

    def admit(self, handshake: Handshake) -> Identity | None:
        """Return whom a page's ticket names: sees every event of every namespace until the session ends."""
        said = self._verified(self._tickets, handshake.token)
        if said is None:
            return None
        user, session, ends_s = said
        everything = ("#",)
        return Identity(
            user,
            subscribe=everything,
            publish=everything if self._may == "act" else (),
            expires_at=ends_s,
            token_id=session,
            namespaces=self._settings.namespaces,
            admin=self._may,
        )

    def check_act(self, operator: Operator, environ: Mapping[str, Any], action: str) -> None:
        """Refuse an action that this operator may not do, or that did not come from our own page.

        Raises:
            Forbidden: which of them; it is in the audit log.
        """
        try:
            if operator.may != "act":
                raise Forbidden("act in the console:", action)
            check_own_page(environ, self._settings.proxies)
            if not environ.get("HTTP_" + ACTION_HEADER.upper().replace("-", "_")):
                raise Forbidden("act without the header", ACTION_HEADER)
        except Forbidden as error:
            address = address_of(environ, self._settings.proxies)
            audit.acted(action, by=operator.user, via=VIA, address=address, outcome=error.code)
            raise

    def acted(self, operator: Operator, environ: Mapping[str, Any], action: str, **more: Any) -> None:
        """Tell the audit log what was done."""
        audit.acted(action, by=operator.user, via=VIA, address=address_of(environ, self._settings.proxies), **more)

    # -- private ------------------------------------------------------------------------------------------------------

    def _by_session(self, cookie: str | None) -> Operator | None:
        said = self._verified(self._sessions, cookie)
        if said is None:
            return None
        user, session, ends_s = said
        try:
            self._check_revoked(Identity(user, token_id=session))
        except Unauthorized:
            return None
        return Operator(user, self._may, ends_s, session)

    def _by_application(self, environ: Mapping[str, Any]) -> Operator | None:
        if self._identify is None or not _says_who(environ):
            return None
        try:
            identity = self._identify(Handshake(self._settings.namespaces[0], {}, environ))
        except HeadgateError:
            return None
        return None if identity.admin is None or identity.user == ANONYMOUS else Operator(identity.user, identity.admin)

    def _signed(self, signer: URLSafeSerializer | None, said: object) -> str:
        assert signer is not None, "without a key nobody has a session"
        return str(signer.dumps(said))

    def _verified(self, signer: URLSafeSerializer | None, signed: str | None) -> tuple[str, str, float] | None:
        """Return user, id and end of the session that something signed names; None where it is not ours, or over."""
        if signer is None or not signed or len(signed) > MAX_SIGNED:
            return None
        try:
            user, session, *ends_s = signer.loads(signed)
        except BadSignature:
            return None
        return (str(user), str(session), float(ends_s[0])) if min(ends_s) > self._time_s() else None


def check_own_page(environ: Mapping[str, Any], proxies: int) -> None:
    """Refuse a request that a page of another site has sent: its Origin is not this gateway's.

    The scheme is not compared: behind a proxy that ends TLS without saying so it would be another one.

    Raises:
        Forbidden: it is another one, or there is none, and a browser sends one with every POST.
    """
    shown = str(environ.get("HTTP_ORIGIN", ""))
    origin = origin_in_header(shown)
    if origin is None or origin != origin_over(origin.scheme, environ, proxies):
        raise Forbidden("act from origin", shown[:100] or "none")


def _says_who(environ: Mapping[str, Any]) -> bool:
    """Return whether a request has anything that an application could know somebody by: asking for nobody is a failed login."""
    cookies = str(environ.get("HTTP_COOKIE", "")).split(";")
    return bool(environ.get("HTTP_AUTHORIZATION")) or any(
        each.strip() and not each.strip().startswith(COOKIE + "=") for each in cookies
    )


def _derived(key: bytes) -> bytes:
    return hmac.new(key, b"headgate console", hashlib.sha256).digest()
