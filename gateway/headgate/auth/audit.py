"""The audit log: refused logins and rights, revocations, actions of operators. One line each, by the logger `headgate.audit`.

In: decisions of the gateway, the HTTP API and the command line. Out: structured lines without secrets: a reason is a word of
ours, or an application's with the token taken out; tokens, cookies and payloads are never passed in.

An attacker can be refused again at will, so these lines are limited, per address and in all; the next line that is written
for an address says how many were left out. Revocations and actions are not limited: only
those with the right, or with access to Redis, make any.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from headgate.metrics import AUDIT_LEFT_OUT
from headgate.runtime.token_bucket import TokenBucket

# Of one address: five lines at once and one every ten seconds; of all together: 200 and 20 a second.
LINES_BURST, LINES_PER_S = 5, 0.1
ALL_BURST, ALL_PER_S = 200, 20.0
MAX_ADDRESSES = 4096
MAX_SHOWN = 200

NAME = "headgate.audit"
log = structlog.get_logger(NAME)


@dataclass(slots=True)
class _Told:
    bucket: TokenBucket
    left_out: int = 0


class Audit:
    """See the module. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._all = TokenBucket(ALL_PER_S, ALL_BURST, now_s())

    def login_refused(self, *, address: str | None, namespace: str, code: str, reason: str, detail: str | None = None) -> None:
        """Log a login, or a refresh, that was refused. `detail`: an application's own words, without any part of the token."""
        self._limited("login refused", address, namespace=namespace, code=code, reason=str(reason), detail=detail)

    def right_refused(self, *, address: str | None, namespace: str, user: str, action: str, name: str) -> None:
        """Log a known user who asked over HTTP for something without the right to it."""
        self._limited("right refused", address, namespace=namespace, user=user, action=action, name=name)

    def revoked(self, *, kind: str, name: str, for_s: int, by: str) -> None:
        """Log a revocation, or that one was lifted (`for_s` is 0); `by` made it, or says that this gateway has heard of it."""
        log.info(
            "revocation lifted" if for_s == 0 else "revoked",
            kind=kind,
            name=_shown(name),
            for_s=for_s,
            by=_shown(by),
            logger=NAME,
        )

    def acted(self, action: str, *, by: str, **fields: Any) -> None:
        """Log something that an operator has done, such as `key made`."""
        shown = {name: _shown(value) for name, value in fields.items() if value is not None}
        log.info(action, by=_shown(by), **shown, logger=NAME)

    def disconnected(self, *, session: str | None, user: str | None, count: int, reason: str, by: str) -> None:
        """Log that clients of this gateway were disconnected at somebody's wish."""
        wanted = {"session": _shown(session)} if user is None else {"user": _shown(user)}
        log.info("disconnected", **wanted, count=count, reason=_shown(reason), by=_shown(by or "an application"), logger=NAME)

    def regranted(self, *, user: str, count: int, explicit: bool, by: str) -> None:
        """Log that the grants of clients of this gateway were looked at anew at somebody's wish."""
        log.info("regranted", user=_shown(user), count=count, explicit=explicit, by=_shown(by or "an application"), logger=NAME)

    def _limited(self, event: str, address: str | None, **fields: Any) -> None:
        key, now_s = address or "", self._now_s()
        told = self._told.pop(key, None) or _Told(TokenBucket(LINES_PER_S, LINES_BURST, now_s))
        self._told[key] = told
        if len(self._told) > MAX_ADDRESSES:
            self._told.popitem(last=False)
        if not told.bucket.spend(now_s) or not self._all.spend(now_s):
            told.left_out += 1
            AUDIT_LEFT_OUT.inc()
            return
        shown = {name: _shown(value) for name, value in fields.items() if value is not None}
        if told.left_out:
            shown["left_out"] = told.left_out
            told.left_out = 0
        log.warning(event, address=_shown(key) or "none", **shown, logger=NAME)


def _shown(value: object) -> Any:
    """Return a text as it may stand in a log: short, on one line."""
    if not isinstance(value, str):
        return value
    text = value[:MAX_SHOWN]
    return text if text.isprintable() else ascii(text)[1:-1]


# This process's.
audit = Audit()
