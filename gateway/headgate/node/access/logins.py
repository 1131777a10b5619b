"""Finds the identity of a handshake, by the authenticator (an application's, or tokens) and then by the revocations.

In: a `Handshake`, from a CONNECT, a `refresh` or the HTTP API, which also takes API keys. Out: its `Identity`, or an error with
the reason; an audit log line for each refusal. After too many failed logins an address is refused without a check. While
failures of its current logins could exceed the limit, its next login waits for one of them to end. Neither that wait nor an
application's authenticator takes longer than LOGIN_S. If a user's rights change while the authenticator decides, it is called
again.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time
from traceback import extract_tb, format_exception_only

import msgspec
import structlog

from headgate.auth.admission import FailedLogins
from headgate.auth.api_keys import ApiKeys, key_of
from headgate.auth.audit import audit
from headgate.auth.identity import Authenticator, Handshake, Identity
from headgate.auth.jwks import Jwks
from headgate.auth.keys import configured_keys
from headgate.auth.regrants import OWN_USER, Regrants, authenticator_call
from headgate.auth.scopes import ADMIN
from headgate.auth.tokens import ProvenTokens, Tokens, token_authenticator
from headgate.errors import HeadgateError, LimitReached, SettingsError, Unauthorized
from headgate.errors import UnauthorizedReason as Reason
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import Idle, Share, call_application, deadline
from headgate.runtime.metrics import LOGINS_LATE, LOGINS_THROTTLED
from headgate.settings.settings import Settings
from headgate.transport.peer_address import address_of

log = structlog.get_logger("headgate.gateway")

# Time slice for reading tokens, over all clients.
TOKENS_SHARE_S = 0.001
# Reasons that do not count as a failed login, which are our own faults and a known caller in the wrong namespace.
_NO_GUESS = (Reason.NO_AUTHENTICATOR, Reason.WRONG_NAMESPACE)
# The key in the CONNECT's `auth` by which a page of the console identifies itself.
CONSOLE = "console"
# Time for an authenticator to answer, and for a login to wait for others of its address. A slower authenticator has failed.
LOGIN_S = 10.0
# How many users' last changes of rights are remembered. Beyond that all are forgotten, and each current login is repeated.
MAX_CHANGED = 10_000
# For an authenticator that failed.
_LOGGED_FRAMES = 5


class _CurrentLogins(msgspec.Struct):
    """The logins of an address. `count` are being tried, and the others wait for one of these to end."""

    count: int = 0
    users: int = 0
    waiting: list[Idle] = []


class Logins:
    """See the module.

    Args:
        authenticator: the application's; None for tokens, as configured in `settings`.
        check_revoked: raises for a revoked identity.
        api_keys: the keys that the HTTP API takes.
        now_s: monotonic; time_s: seconds since 1970.

    Attributes:
        regrants: the explicit grants that replace those of identities.
        failed_rates: the rate of failed logins of each address.
        takes_tokens: whether tokens were configured at the start.
    """

    def __init__(
        self,
        settings: Settings,
        authenticator: Authenticator | None,
        check_revoked: Callable[[Identity], None],
        now_s: Callable[[], float] = monotonic,
        time_s: Callable[[], float] = time,
        api_keys: ApiKeys | None = None,
    ) -> None:
        self._settings = settings
        self._api_keys = api_keys
        self._check_revoked, self.regrants = check_revoked, Regrants()
        self._now_s, self._time_s = now_s, time_s
        self._tokens = None if authenticator else Tokens.configured(settings)
        self.takes_tokens = self._tokens is not None
        self._by_token = token_authenticator(self._tokens, settings)
        self._proven = ProvenTokens()
        self._log_throttle = LogThrottle()
        self.authenticator: Authenticator = authenticator or self._by_token
        # Identifies handshakes that claim to be the console's. None without a console.
        self.console: Authenticator | None = None
        self._jwks: Jwks | None = None
        if self._tokens is not None and settings.token_jwks_url is not None:
            self._jwks = Jwks(settings.token_jwks_url, self._tokens.use_fetched)
            self._tokens.may_come = self._jwks.may_bring
        # Verifying a token by a public key takes up to 1 ms, and a hundred may come at once.
        self._reading_tokens = Share(TOKENS_SHARE_S)
        # Development is one machine, where an address identifies no client.
        self._failed = FailedLogins(settings.failed_logins_per_s, 0 if settings.dev else settings.failed_logins_burst, now_s)
        self.failed_rates = self._failed.rates
        self._under_way: dict[str | None, _CurrentLogins] = {}
        # How often the rights of any user have changed, and the last such number of each user and of all forgotten users.
        self.changes = self._forgotten = 0
        self._changed: dict[str, int] = {}

    def start(self) -> None:
        """Start fetching the issuer's keys, if tokens need them. Idempotent."""
        if self._jwks is not None and self.authenticator is self._by_token:
            self._jwks.start()

    def apply(self, settings: Settings) -> None:
        """Apply other keys, grants of anonymous clients, and limits. Connected clients keep their grants.

        Reads the file of keys again and fetches the issuer's keys. If the file is faulty, the previous keys stay active.
        """
        self._settings = settings
        is_in_use = self.authenticator is self._by_token
        self._by_token = token_authenticator(self._tokens, settings)
        if is_in_use:
            self.authenticator = self._by_token
        self._failed.apply(settings.failed_logins_per_s, 0 if settings.dev else settings.failed_logins_burst)
        if self._jwks is not None:
            self._jwks.refresh()
        if self._tokens is None:
            return
        try:
            keys = configured_keys(self._settings)
        except SettingsError as error:
            log.error("token keys not reloaded", faults=list(error.faults))
            return
        self._tokens.configure(keys)
        log.info("token keys reloaded", keys=len(keys))

    def close(self) -> None:
        """Stop fetching keys. Idempotent."""
        if self._jwks is not None:
            self._jwks.close()

    def identify(self, handshake: Handshake, *, again: bool = False, address: str | None = None) -> Identity:
        """Return the identity of a handshake, if it is accepted, not revoked, not expired, and for this namespace. May wait.

        `address` is the result of `address_of`, if the caller already has it.
        `again` is for a caller of the HTTP API, which may present this token many times. Signature and claims are then verified
        once. It may have an API key instead. A handshake whose token they have proved is no login, so the limit of failed logins
        does not apply to it until it is refused.

        Raises:
            Unauthorized: with the reason.
            UnknownNamespace: this gateway does not serve it.
            LimitReached: `failed_logins`. This address has failed too often, and the authenticator is not called.
        """
        if again and handshake.kept() is not None:
            try:
                return self.identified(handshake, again=True)
            except Unauthorized:
                handshake.forget()  # from now on it is a login again, which counts and may be throttled
        if address is None:
            address = address_of(handshake.environ, self._settings.proxies)
        under_way = self._begin(address)
        try:
            return self.identified(handshake, again=again)
        except HeadgateError as error:
            reason = error.reason if isinstance(error, Unauthorized) else None
            # Our own faults and temporary refusals do not count as failed logins. A missing key is temporary only until a set of
            # keys has arrived. After that any made-up key id would allow free attempts.
            is_made_up = reason is Reason.KEYS_PENDING and self._jwks is not None and self._jwks.has_set
            if not error.retry or is_made_up:
                if reason not in _NO_GUESS:
                    self._failed.failed(address, self._now_s())
                # An application's message may hold the token.
                detail = handshake.redacted(error.detail if isinstance(error, Unauthorized) else error.message)
                audit.login_refused(
                    address=address, namespace=handshake.namespace, code=error.code, reason=reason or error.code, detail=detail
                )
            raise
        finally:
            under_way.count -= 1
            self._ended(address, under_way)

    @property
    def is_application(self) -> bool:
        """Whether an application's authenticator decides. Its answers may change, but those for a token cannot."""
        return self.authenticator is not self._by_token

    def rights_changed(self, user: str) -> None:
        """Record that a user's rights have changed, so that earlier answers do not count."""
        self.changes += 1
        if len(self._changed) >= MAX_CHANGED:
            self._changed.clear()
            self._forgotten = self.changes
        self._changed[user] = self.changes

    def has_changed(self, user: str, since: int) -> bool:
        """Return whether the rights of a user may have changed since `changes` had this value."""
        return self.changes != since and self._changed.get(user, self._forgotten) > since

    def as_of_now(self, identity: Identity) -> Identity:
        """Return an earlier identity with the current explicit grants, if it is not revoked. Never waits.

        Raises Unauthorized if it is revoked.
        """
        self._check_revoked(identity)
        return self.regrants.apply(identity)

    def check_key(self, handshake: Handshake) -> None:
        """Check the API key of an accepted handshake again. May wait for Redis.

        Raises:
            Unauthorized: it was revoked, or has expired.
            BusUnavailable, BusRefused: Redis did not answer.
        """
        if self._api_keys is not None:
            self._api_keys.identify(handshake)

    def _begin(self, address: str | None) -> _CurrentLogins:
        """Count a login as current. Waits while failures of current ones could exceed the limit. Raises as `identify`."""
        under_way = self._under_way.get(address) or self._under_way.setdefault(address, _CurrentLogins())
        under_way.users += 1
        try:
            if not self._failed.check(address, self._now_s(), under_way.count):
                self._wait(address, under_way)
        except BaseException as error:
            self._ended(address, under_way)
            if isinstance(error, LimitReached):
                LOGINS_THROTTLED.inc()
            raise
        under_way.count += 1
        return under_way

    def _wait(self, address: str | None, under_way: _CurrentLogins) -> None:
        """Wait until failures of the current logins cannot exceed the limit. Raises as `_begin`."""
        try:
            with deadline(LOGIN_S):
                while not self._failed.check(address, self._now_s(), under_way.count):
                    turn = Idle()
                    under_way.waiting.append(turn)
                    try:
                        turn.wait()
                    finally:
                        if not turn.is_woken:
                            under_way.waiting.remove(turn)
        except TimeoutError as error:
            LOGINS_LATE.inc()
            raise Unauthorized(Reason.AUTHENTICATOR_FAILED) from error

    def _ended(self, address: str | None, under_way: _CurrentLogins) -> None:
        """Let the next login of the address proceed, after one has ended or given up."""
        under_way.users -= 1
        if under_way.waiting:
            under_way.waiting.pop(0).wake()
        elif not under_way.users:
            del self._under_way[address]

    def identified(self, handshake: Handshake, *, again: bool = False, user: str | None = None) -> Identity:
        """Same as `identify` for an earlier accepted handshake of a user. A refusal does not count as a failed login."""
        # A ticket of the console ends after a minute, so it is checked each time.
        is_kept = again and self.authenticator is self._by_token and handshake.auth.get(CONSOLE) is not True
        tokens = self._tokens if is_kept else None
        keys = None if tokens is None else tokens.keys
        identity = None if keys is None else handshake.kept(keys)
        if identity is None:  # otherwise these keys have proved its token, which is not an API key
            of_key = self._api_keys.identify(handshake) if again and self._api_keys is not None else None
            identity = of_key or self._proven_identity(handshake, tokens, user)
            if not identity.may_enter(self._settings.served(handshake.namespace), self._settings.namespaces[0]):
                raise Unauthorized(Reason.WRONG_NAMESPACE)
            if of_key is not None:
                if key_of(of_key.user) != ADMIN:  # HEADGATE_ADMIN_KEY needs no Redis
                    self._check_revoked(of_key)
                return of_key
            if tokens is not None and handshake.token is not None and tokens.keys is keys:
                handshake.keep(keys, identity)
        return self._current(identity)

    def _current(self, identity: Identity) -> Identity:
        """Return a proven identity with its explicit grants, if it is neither revoked nor expired."""
        self._check_revoked(identity)
        if identity.expires_at is not None and identity.expires_at <= self._time_s():
            raise Unauthorized(Reason.EXPIRED)
        return self.regrants.apply(identity)

    def identified_at_once(self, handshake: Handshake) -> Identity | None:
        """Return the identity of an accepted handshake, or None if `identify` (`again`) might wait, or would refuse it."""
        identity = None
        if self._tokens is not None and self.authenticator is self._by_token:
            identity = handshake.kept(self._tokens.keys)
        if identity is None and self._api_keys is not None:
            identity = self._api_keys.known(handshake)
        try:
            return None if identity is None else self._current(identity)
        except HeadgateError:
            return None

    def _proven_identity(self, handshake: Handshake, tokens: Tokens | None, user: str | None) -> Identity:
        """Return the authenticator's answer. For a repeated token this is the first answer."""
        if tokens is None or (token := handshake.token) is None:
            return self._authenticated(handshake, user).with_own_topics()
        proven = self._proven.get(token, tokens.keys)
        identity = proven or self._authenticated(handshake).with_own_topics()
        if proven is None:  # by the current keys, because nothing has waited since the verification
            self._proven.add(token, tokens.keys, identity)
        return identity

    def _authenticated(self, handshake: Handshake, user: str | None = None) -> Identity:
        """Return the authenticator's answer. For a page of the console, the console answers."""
        if self.console is not None and handshake.auth.get(CONSOLE) is True:
            identity = self.console(handshake)
            if identity is None:
                raise Unauthorized(Reason.NOT_ACCEPTED)
            return identity
        began_s = monotonic()
        try:
            if self.is_application:
                with deadline(LOGIN_S):
                    identity = self._asked(handshake, user)
            elif self._tokens is None or self._tokens.are_quick:
                identity = self._by_token(handshake)
            else:
                with self._reading_tokens:
                    identity = self._by_token(handshake)
            if not isinstance(identity, Identity | None):
                raise TypeError(f"the authenticator returned {type(identity).__name__}; expected an Identity or None")
        except HeadgateError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and monotonic() - began_s >= LOGIN_S:
                LOGINS_LATE.inc()
            # Refused clients try again. No traceback, because the texts of exceptions, and of their causes, may hold the token.
            if (left_out := self._log_throttle.due(f"{handshake.namespace} {type(error).__name__}")) is not None:
                described = _described(error, handshake)
                log.error("authenticator failed", namespace=handshake.namespace, left_out=left_out, **described)
            raise Unauthorized(Reason.AUTHENTICATOR_FAILED) from error
        if identity is None:
            raise Unauthorized(Reason.NOT_ACCEPTED)
        return identity

    def _asked(self, handshake: Handshake, user: str | None) -> Identity | None:
        """Return the answer of an application's authenticator, which may wait. Raises its exceptions."""
        while True:
            since = self.changes
            with authenticator_call(user) as regranted:
                identity = call_application(self.authenticator, handshake)
            if not isinstance(identity, Identity):
                return identity
            if identity.user in regranted:
                raise RuntimeError(OWN_USER)
            if not self.has_changed(identity.user, since):
                return identity


def _described(error: Exception, handshake: Handshake) -> dict[str, str]:
    """Return the loggable part of an authenticator's exception, which is its text without the token, and its place."""
    frames = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in extract_tb(error.__traceback__)[-_LOGGED_FRAMES:]]
    text = "".join(format_exception_only(error)).strip()
    return {"error": handshake.redacted(text), "where": ", ".join(frames)}
