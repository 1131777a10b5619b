"""The registration of a gateway: renewed every few seconds, and taken back when the gateway stops. Off the hot path.

In: the gateway's namespaces. Out: the registry in Redis (registry.py), kept up to date by one greenlet; when the gateway
stops, whether another one lives.

Rules. 1. A registry that cannot be written or read costs a line in the log, and nothing else. 2. "No other gateway lives" is
said only of a registry that was whole for a lease: after a flush the others have not spoken again yet.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from time import monotonic

import structlog

from headgate.errors import HeadgateError
from headgate.redis.client import Client
from headgate.redis.loads import process_name
from headgate.redis.registry import LEASE_S, leave, register
from headgate.runtime.loop import Signal
from headgate.runtime.rounds import Rounds

log = structlog.get_logger("headgate.registration")

RENEW_EVERY_S = LEASE_S / 3
# Of the rounds, this one tidies up, too: about once a minute.
TIDY_EVERY = 12


class Registration:
    """See the module. `tried` is set when the first attempt to register is over, however it ended.

    `id` is `<name>:<random>`, with a name that `name` returns when the gateway starts: in its own process.
    """

    def __init__(self, client: Client, namespaces: Iterable[str], name: Callable[[], str] = process_name) -> None:
        self._name, self.id = name, _new_id(name())
        self._namespaces = tuple(namespaces)
        self._client = client
        self._rounds = Rounds(self._round, lambda: log.exception("registration failed"), RENEW_EVERY_S)
        self._was_known = False
        self._count = 0
        self._lost_at_s = -math.inf
        self._logged = ""
        self.tried = Signal()

    def start(self) -> None:
        """Register, and go on doing so. Idempotent."""
        if not self._rounds.begun:
            self.id = _new_id(self._name())  # of this process, whichever one made the gateway before a fork
            self._rounds.start()

    def renew(self) -> None:
        """Register at once: Redis may have lost everything. Never waits."""
        self._rounds.hurry()

    def leave(self) -> bool:
        """Take this gateway out, for good; return whether it is known that no other one serves any of its namespaces.

        Waits for Redis, twice the limit of the client at most. Only the first call does something.
        """
        if not self._rounds.end():
            return False
        try:
            alone = leave(self._client, self.id, self._namespaces)
        except HeadgateError as error:
            self._log_once(error)
            return False
        return alone and monotonic() - self._lost_at_s > LEASE_S

    # -- private --------------------------------------------------------------------------------------------------

    def _round(self) -> float:
        try:
            self._register()
            self._logged = ""
        except HeadgateError as error:
            self._log_once(error)
        finally:
            self.tried.set()
        return RENEW_EVERY_S

    def _log_once(self, error: HeadgateError) -> None:
        """Log a fault, unless it is the same as the one before."""
        if error.message != self._logged:
            self._logged = error.message
            log.warning("registry out of reach", error=error.message)

    def _register(self) -> None:
        was_known = register(self._client, self.id, self._namespaces, tidy=self._count % TIDY_EVERY == 0)
        self._count += 1
        if self._was_known and not was_known:
            self._lost_at_s, self._count = monotonic(), 0
            log.info("registered again", namespaces=",".join(self._namespaces))
        self._was_known = True


def _new_id(name: str) -> str:
    return f"{name}:{secrets.token_hex(4)}"
