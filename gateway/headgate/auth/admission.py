"""Admission of clients, counted per user and per address and indexed by user and by token. No I/O.

In: clients as they join and leave, and pending sessions. Out: `LimitReached` for a client or session over a limit, the clients
of a user or of a token, and expiry times for `expiry`. This module counts the clients of this gateway. `ClientCounts` adds
those of the others. One browser in two namespaces is two clients.

The limits do not stop an attacker with many addresses. They keep one broken page or one visitor from taking every place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headgate.errors import LimitReached
from headgate.runtime.shared_rates import SharedRates

from .client_counts import QUIET_CLIENTS, ClientCounts
from .identity import ANONYMOUS, Identity

if TYPE_CHECKING:
    from .expiry import Expiry

# A session joins within milliseconds or ends at the handshake deadline.
SESSION_RETRY_S = 1


class Admitted(Protocol):
    """A client as admission sees it."""

    identity: Identity

    def __hash__(self) -> int: ...


C = TypeVar("C", bound=Admitted)


class Admission(Generic[C]):
    """The admitted clients.

    Args:
        per_user, per_address: maximum clients over all processes; 0 means no limit.
        expiry: receives the expiry time of each client's identity.
        now_s: monotonic.
    """

    def __init__(self, per_user: int, per_address: int, expiry: Expiry[C], now_s: Callable[[], float] = monotonic) -> None:
        self.users = ClientCounts(per_user, now_s)
        self.addresses = ClientCounts(per_address, now_s, kind="addresses", name="clients_per_address", quiet=QUIET_CLIENTS)
        self.expiry = expiry
        self._of_user: dict[str, set[C]] = {}
        self._of_token: dict[str, set[C]] = {}
        self._address_of: dict[C, str] = {}

    def apply(self, per_user: int, per_address: int) -> None:
        """Apply other limits. Clients above them stay."""
        self.users.max_clients, self.addresses.max_clients = per_user, per_address

    def check(self, user: str, address: str | None) -> None:
        """Refuse another client of `user` from `address` if that exceeds a limit. An `address` of None is not counted.

        Raises LimitReached: `clients_per_user` or `clients_per_address`.
        """
        if user != ANONYMOUS:
            self.users.check(user)
        if address is not None:
            self.addresses.check(address)

    def join(self, client: C, address: str | None) -> None:
        self._index(client, client.identity)
        self.expiry.set(client, client.identity.expires_at)
        if address is not None:
            self._address_of[client] = address
            self.addresses.changed(address, self.addresses.own.get(address, 0) + 1)

    def renew(self, client: C, identity: Identity) -> None:
        """Replace the identity of an admitted client."""
        self._forget(client)
        before, client.identity = client.identity, identity
        self._index(client, identity)
        if identity.expires_at != before.expires_at:  # a reset wall clock must not move an unchanged expiry
            self.expiry.set(client, identity.expires_at)

    def leave(self, client: C) -> None:
        """Remove a client. Idempotent."""
        self._forget(client)
        self.expiry.forget(client)
        address = self._address_of.pop(client, None)
        if address is not None:
            self.addresses.changed(address, self.addresses.own[address] - 1)

    def of_user(self, user: str) -> list[C]:
        """Return a user's clients."""
        return list(self._of_user.get(user, ()))

    def of_token(self, token_id: str) -> list[C]:
        """Return the clients that joined or refreshed with a token."""
        return list(self._of_token.get(token_id, ()))

    def _index(self, client: C, identity: Identity) -> None:
        clients = self._of_user.setdefault(identity.user, set())
        clients.add(client)
        if identity.user != ANONYMOUS:
            self.users.changed(identity.user, len(clients))
        if identity.token_id is not None:
            self._of_token.setdefault(identity.token_id, set()).add(client)

    def _forget(self, client: C) -> None:
        identity = client.identity
        _discard(self._of_user, identity.user, client)
        if identity.user != ANONYMOUS:
            self.users.changed(identity.user, len(self._of_user.get(identity.user, ())))
        if identity.token_id is not None:
            _discard(self._of_token, identity.token_id, client)


class PendingSessions:
    """Sessions in no namespace, before joining or after leaving, counted per address.

    Attributes:
        per_address: maximum per address; 0 means no limit and no counting. Sessions opened before a change are not counted again.
    """

    def __init__(self, per_address: int = 0) -> None:
        self.per_address = per_address
        self._at: dict[str, int] = {}
        self._address_of: dict[str, str] = {}

    def open(self, session: str, address: str | None) -> None:
        """Count a new session unless its address has reached the limit. An `address` of None is not counted.

        Raises LimitReached: `unjoined_per_address`.
        """
        if not self.per_address or address is None:
            return
        if self._at.get(address, 0) >= self.per_address:
            raise LimitReached("unjoined_per_address", self.per_address, SESSION_RETRY_S)
        self.add(session, address)

    def add(self, session: str, address: str | None) -> None:
        """Count a session after it left its last namespace. Idempotent."""
        if self.per_address and address is not None and session not in self._address_of:
            self._address_of[session] = address
            self._at[address] = self._at.get(address, 0) + 1

    def forget(self, session: str) -> None:
        """Remove a session after it joined or ended. Idempotent."""
        address = self._address_of.pop(session, None)
        if address is not None:
            self._at[address] -= 1
            if not self._at[address]:
                del self._at[address]


class FailedLogins:
    """Recently failed logins per address, over all processes that share `rates`. Bounded to MAX_CALLERS addresses.

    Only failures count, so any number of clients may join from one address, and valid tokens are accepted again once the failures
    have decayed.

    Args:
        burst: maximum failures; 0 means no limit.
    """

    def __init__(self, per_s: float, burst: int, now_s: Callable[[], float] = monotonic) -> None:
        self._burst = burst
        self.rates = SharedRates("login", per_s, burst, now_s, owes=False)

    def apply(self, per_s: float, burst: int) -> None:
        """Apply other limits. A change of limits forgets past failures."""
        self._burst = burst
        self.rates.apply(per_s, burst)

    def check(self, address: str | None, now_s: float, under_way: int = 0) -> bool:
        """Refuse a login from an address with too many failures. An `address` of None is not counted.

        Returns whether to try it now. It must wait if failures of the `under_way` logins from there could already exceed the
        limit.
        Raises LimitReached: `failed_logins`, with the seconds until the next login is accepted.
        """
        if not self._burst or address is None:
            return True
        if wait_s := self.rates.wait_s(address, now_s):
            raise LimitReached("failed_logins", self._burst, wait_s)
        return under_way < self._burst and not self.rates.wait_s(address, now_s, under_way + 1)

    def failed(self, address: str | None, now_s: float) -> None:
        if self._burst and address is not None:
            self.rates.charge(address, now_s)


def _discard(index: dict[str, set[C]], name: str, client: Hashable) -> None:
    members = index.get(name)
    if members is not None:
        members.discard(client)
        if not members:
            del index[name]
