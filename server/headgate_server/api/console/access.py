"""Access to the console and its actions. Only this file has the admin key.

In: a request's cookie, or its handshake for an application's own authenticator; a typed key. Out: an `Operator`, or a refusal.
A sign-in by key creates a session, whose cookie is signed with a key derived from the admin key. So it is valid at every worker
and gateway, and becomes invalid when the key changes. A page opens its socket with a ticket, signed in the same way, which
expires within a minute. A session's id counts as a token's (auth/revocation.py), so signing out revokes it on every gateway,
together with its sockets.

Rules. 1. The key is compared in constant time. After too many wrong keys, an address is refused for a while. 2. An action needs
the right to act, a header that no form and no other site can send, and an Origin of this gateway. 3. An operator signed in by
key may only read, unless HEADGATE_CONSOLE_ACTIONS allows actions. 4. An action that outlasts a session (an API key) needs the
key again.
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

from headgate.auth.admission import FailedLogins
from headgate.auth.audit import audit
from headgate.auth.identity import ANONYMOUS, Admin, Handshake, Identity
from headgate.errors import Forbidden, HeadgateError, Unauthorized
from headgate.errors import UnauthorizedReason as Reason
from headgate.node.access.origin import origin_over
from headgate.settings.addresses.origins import origin_in_header
from headgate.settings.settings import Settings
from headgate.transport.peer_address import address_of

COOKIE = "headgate_console"
SESSION_S = 12 * 3600
# Lifetime of a ticket, from the page's request to its CONNECT.
TICKET_S = 60
# Wrong keys of one address: this burst, and one more every ten seconds.
WRONG_KEYS, WRONG_KEYS_PER_S = 10, 0.1
# A session or a ticket has some 150 characters. A much longer text is not worth hashing.
MAX_SIGNED = 512
MAX_KEY = 4096
KEY_USER = "console"
# The origin of an action in the audit log.
VIA = "console"
# The header of an action. A form cannot send it, and a script of another site needs a preflight.
ACTION_HEADER = "X-Headgate-Console"


@dataclass(frozen=True, slots=True)
class Operator:
    """A user of the console, with the end (seconds since 1970) and id of the session; None if the application decides."""

    user: str
    may: Admin
    ends_s: float | None = None
    session: str | None = None

    @property
    def by_key(self) -> bool:
        """Whether the operator has signed in with the admin key."""
        return self.ends_s is not None


class Access:
    """See the module.

    Args:
        identify: the application's authenticator; None if only the key admits anyone.
        check_revoked: refuses a revoked identity.
        revoke: revokes a token's id for a number of seconds.
        now_s: monotonic; time_s: seconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        identify: Callable[[Handshake], Identity] | None,
        check_revoked: Callable[[Identity], None],
        revoke: Callable[[str, int], object],
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
        """Whether there is a sign-in page."""
        return self._key is not None

    def operator(self, cookie: str | None, environ: Mapping[str, Any]) -> Operator | None:
        """Return the operator of a request, or None if it may not enter. The application may wait."""
        return self._by_session(cookie) or self._by_application(environ)

    def check_key(self, key: str, environ: Mapping[str, Any]) -> None:
        """Refuse any key but the admin key.

        Raises:
            Unauthorized: it is wrong.
            LimitReached: there were too many wrong keys from this address.
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
        """End an operator's session and its sockets, including copies of the cookie. Waits for Redis.

        Raises LimitReached, BusUnavailable and BusRefused as `auth.revocation.revoke`. The session then continues.
        """
        if operator.session is not None and operator.ends_s is not None:
            self._revoke(operator.session, max(1, math.ceil(operator.ends_s - self._time_s())))
        self.acted(operator, environ, "sign out")

    def ticket(self, operator: Operator) -> str | None:
        """Return the ticket for a page's CONNECT; None if the application's authenticator decides there, too."""
        if not operator.by_key:
            return None
        return self._signed(self._tickets, [operator.user, operator.session, operator.ends_s, self._time_s() + TICKET_S])

    def admit(self, handshake: Handshake) -> Identity | None:
        """Return the identity in a page's ticket, which sees every event of every namespace until the session ends."""
        claims = self._verified(self._tickets, handshake.token)
        if claims is None:
            return None
        user, session, ends_s = claims
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
        """Refuse an action without the right to it, or from a foreign page.

        Raises Forbidden with the reason, which also goes into the audit log.
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
        """Write an action to the audit log."""
        audit.acted(action, by=operator.user, via=VIA, address=address_of(environ, self._settings.proxies), **more)

    # -- private ------------------------------------------------------------------------------------------------------

    def _by_session(self, cookie: str | None) -> Operator | None:
        claims = self._verified(self._sessions, cookie)
        if claims is None:
            return None
        user, session, ends_s = claims
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

    def _signed(self, signer: URLSafeSerializer | None, value: object) -> str:
        assert signer is not None, "without a key there are no sessions"
        return str(signer.dumps(value))

    def _verified(self, signer: URLSafeSerializer | None, signed: str | None) -> tuple[str, str, float] | None:
        """Return user, id and end of the session in a signed text; None if it is not ours or has expired."""
        if signer is None or not signed or len(signed) > MAX_SIGNED:
            return None
        try:
            user, session, *ends_s = signer.loads(signed)
        except BadSignature:
            return None
        return (str(user), str(session), float(ends_s[0])) if min(ends_s) > self._time_s() else None


def check_own_page(environ: Mapping[str, Any], proxies: int) -> None:
    """Refuse a request from a page of another site, by its Origin.

    The scheme is not compared, because it differs with a proxy that ends TLS without forwarding the scheme. Raises Forbidden
    for a foreign or missing Origin. Browsers send one with every POST.
    """
    shown = str(environ.get("HTTP_ORIGIN", ""))
    origin = origin_in_header(shown)
    if origin is None or origin != origin_over(origin.scheme, environ, proxies):
        raise Forbidden("act from origin", shown[:100] or "none")


def _says_who(environ: Mapping[str, Any]) -> bool:
    """Return whether a request has anything to identify a user. Without that, a call would count as a failed login."""
    cookies = str(environ.get("HTTP_COOKIE", "")).split(";")
    return bool(environ.get("HTTP_AUTHORIZATION")) or any(
        each.strip() and not each.strip().startswith(COOKIE + "=") for each in cookies
    )


def _derived(key: bytes) -> bytes:
    return hmac.new(key, b"headgate console", hashlib.sha256).digest()
