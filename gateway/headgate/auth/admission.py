"""Admission: the connected clients, counted per user and per address, and found by user and by token. No I/O.

In: clients as they join and leave, from the gateway; sessions that have not joined. Out: `LimitReached` before one too many
joins, or opens; the clients of a user or of a token; to `expiry`, when each of them is due to go. It counts this gateway's, and
`ClientCounts` those of others; one browser in two namespaces is two clients.

Addresses may be spread and users may not know each other, so a limit is not a defence against everyone; it keeps one broken
page, or one visitor, from using up the places of all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headgate.errors import LimitReached
from headgate.runtime.shared_rates import SharedRates

from .client_counts import ClientCounts
from .identity import ANONYMOUS, Identity

if TYPE_CHECKING:
    from .expiry import Expiry

# A session joins within milliseconds, or is ended at the handshake deadline.
SESSION_RETRY_S = 1


class LoginsThrottled(LimitReached):
    """Too many logins of an address have failed: none is looked at for `retry_after_s` seconds."""

    def __init__(self, limit: int, retry_after_s: int) -> None:
        super().__init__("failed_logins", limit, retry_after_s)


class Admitted(Protocol):
    """A client, as admission counts it."""

    identity: Identity

    def __hash__(self) -> int: ...


C = TypeVar("C", bound=Admitted)


class Admission(Generic[C]):
    """The clients that are in.

    Args:
        per_user: how many clients a user may have; 0 for any number. `ClientCounts` counts those of other processes too.
        per_address: how many clients an address may have; likewise.
        expiry: is told when the identity of each client ends.
    """

    def __init__(self, per_user: int | ClientCounts, per_address: int | ClientCounts, expiry: Expiry[C]) -> None:
        self.places = per_user if isinstance(per_user, ClientCounts) else ClientCounts(per_user)
        self.places.own_of = self._count_of
        self.addresses = (
            per_address if isinstance(per_address, ClientCounts) else ClientCounts(per_address, name="clients_per_address")
        )
        self.addresses.own_of = self._count_at
        self.expiry = expiry
        self._of_user: dict[str, set[C]] = {}
        self._of_token: dict[str, set[C]] = {}
        self._at: dict[str, int] = {}
        self._address_of: dict[C, str] = {}

    def use(self, per_user: int, per_address: int) -> None:
        """Go on with other limits; whoever is above them stays."""
        self.places.max_clients, self.addresses.max_clients = per_user, per_address

    def check(self, user: str, address: str | None) -> None:
        """Refuse one client more of `user` from `address` (None: not counted).

        Raises:
            LimitReached: `clients_per_user` or `clients_per_address`.
        """
        if user != ANONYMOUS:
            self.places.check(user, self._count_of(user))
        if address is not None:
            self.addresses.check(address, self._count_at(address))

    def join(self, client: C, address: str | None) -> None:
        """Count a client in."""
        self._index(client, client.identity)
        self.expiry.set(client, client.identity.expires_at)
        if address is not None:
            self._address_of[client] = address
            count = self._at[address] = self._at.get(address, 0) + 1
            self.addresses.changed(address, count)

    def renew(self, client: C, identity: Identity) -> None:
        """Give a client that is in another identity."""
        self._forget(client)
        client.identity = identity
        self._index(client, identity)
        self.expiry.set(client, identity.expires_at)

    def leave(self, client: C) -> None:
        """Count a client out. Idempotent."""
        self._forget(client)
        self.expiry.forget(client)
        address = self._address_of.pop(client, None)
        if address is not None:
            count = self._at[address] = self._at[address] - 1
            if not count:
                del self._at[address]
            self.addresses.changed(address, count)

    def of_user(self, user: str) -> list[C]:
        """Return a user's clients."""
        return list(self._of_user.get(user, ()))

    def counts(self) -> dict[str, int]:
        """Return how many clients each user has; the anonymous are none."""
        return {user: len(clients) for user, clients in self._of_user.items() if user != ANONYMOUS}

    def counts_at(self) -> dict[str, int]:
        """Return how many clients each address has."""
        return dict(self._at)

    def of_token(self, token_id: str) -> list[C]:
        """Return the clients that came in, or were refreshed, with a token."""
        return list(self._of_token.get(token_id, ()))

    def _index(self, client: C, identity: Identity) -> None:
        self._of_user.setdefault(identity.user, set()).add(client)
        self._tell(identity.user)
        if identity.token_id is not None:
            self._of_token.setdefault(identity.token_id, set()).add(client)

    def _forget(self, client: C) -> None:
        identity = client.identity
        _discard(self._of_user, identity.user, client)
        self._tell(identity.user)
        if identity.token_id is not None:
            _discard(self._of_token, identity.token_id, client)

    def _tell(self, user: str) -> None:
        if user != ANONYMOUS:
            self.places.changed(user, self._count_of(user))

    def _count_at(self, address: str) -> int:
        return self._at.get(address, 0)

    def _count_of(self, user: str) -> int:
        return len(self._of_user.get(user, ()))


class PendingSessions:
    """The sessions that are in no namespace, per address: they have not joined yet, or have left again.

    Args:
        per_address: how many an address may have; 0 for any number, and nothing is counted.
    """

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        self._at: dict[str, int] = {}
        self._address_of: dict[str, str] = {}

    def use(self, per_address: int) -> None:
        """Go on with another limit. Sessions that were opened without one are not counted."""
        self._per_address = per_address

    def open(self, session: str, address: str | None) -> None:
        """Count a new session, unless it is one too many of its address (None: not counted).

        Raises:
            LimitReached: `unjoined_per_address`.
        """
        if address is not None and self._at.get(address, 0) >= self._per_address > 0:
            raise LimitReached("unjoined_per_address", self._per_address, SESSION_RETRY_S)
        self.add(session, address)

    def add(self, session: str, address: str | None) -> None:
        """Count a session that is in no namespace any more. Idempotent."""
        if self._per_address and address is not None and session not in self._address_of:
            self._address_of[session] = address
            self._at[address] = self._at.get(address, 0) + 1

    def forget(self, session: str) -> None:
        """It has joined, or is over. Idempotent."""
        address = self._address_of.pop(session, None)
        if address is not None:
            self._at[address] -= 1
            if not self._at[address]:
                del self._at[address]


class FailedLogins:
    """How many logins of an address have failed of late, at all processes that share `rates`. Bounded: of MAX_CALLERS addresses.

    Only failures count, so that any number may come in from one address, and good tokens are taken again as soon as bad ones
    have become fewer.

    Args:
        per_s: how many are forgotten per second.
        burst: how many there may be; 0 for any number.
        now_s: monotonic.
    """

    def __init__(self, per_s: float, burst: int, now_s: Callable[[], float] = monotonic) -> None:
        self._burst = burst
        self.rates = SharedRates("login", per_s, burst, now_s, owes=False)

    def use(self, per_s: float, burst: int) -> None:
        """Go on with other limits. With another one, what has failed so far is forgotten."""
        self._burst = burst
        self.rates.use(per_s, burst)

    def check(self, address: str | None, now_s: float) -> None:
        """Refuse a login from an address (None: not counted) of which too many have failed.

        Raises:
            LoginsThrottled: with the seconds until the next one is looked at.
        """
        if self._burst and address is not None and (wait_s := self.rates.wait_s(address, now_s)):
            raise LoginsThrottled(self._burst, max(1, ceil(wait_s)))

    def failed(self, address: str | None, now_s: float) -> None:
        """Count one that has failed."""
        if self._burst and address is not None:
            self.rates.charge(address, now_s)


def _discard(index: dict[str, set[C]], name: str, client: Hashable) -> None:
    members = index.get(name)
    if members is not None:
        members.discard(client)
        if not members:
            del index[name]
