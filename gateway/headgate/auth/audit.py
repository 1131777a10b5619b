"""The audit log has one line for each refused login or right, revocation and operator's action (logger `headgate.audit`).

In: decisions of the gateway, the HTTP API and the command line. Out: structured lines without secrets. A reason is our own text,
or an application's text with the token removed. Tokens, cookies and payloads are never passed in.

An attacker can cause refusals at will, so these lines are limited per address and in total, and the next line for an address
carries the number left out. Revocations and actions are not limited, because they require rights or access to Redis.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import structlog

from headgate.runtime.metrics import AUDIT_LEFT_OUT
from headgate.runtime.rates import TokenBucket

# Per address, five lines at once, then one every ten seconds. In total, 200 at once, then 20 a second.
LINES_BURST, LINES_PER_S = 5, 0.1
ALL_BURST, ALL_PER_S = 200, 20.0
MAX_ADDRESSES = 4096
MAX_SHOWN = 200

NAME = "headgate.audit"
log = structlog.get_logger(NAME)


class Audit:
    """See the module. `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._limits: OrderedDict[str, tuple[TokenBucket, int]] = OrderedDict()  # by address, with the lines left out
        self._all = TokenBucket(ALL_PER_S, ALL_BURST, now_s())

    def login_refused(self, *, address: str | None, namespace: str, code: str, reason: str, detail: str | None = None) -> None:
        """Log a refused login or refresh. `detail` is an application's own text without any part of the token."""
        self._limited("login refused", address, namespace=namespace, code=code, reason=str(reason), detail=detail)

    def right_refused(self, *, address: str | None, namespace: str, user: str, action: str, name: str) -> None:
        """Log an HTTP request of a known user without the right to make it."""
        self._limited("right refused", address, namespace=namespace, user=user, action=action, name=name)

    def revoked(self, *, kind: str, name: str, for_s: int, by: str) -> None:
        """Log a revocation, or its end if `for_s` is 0. `by` names its author, or this gateway as its observer."""
        log.info(
            "revocation lifted" if for_s == 0 else "revoked",
            kind=kind,
            name=_shown(name),
            for_s=for_s,
            by=_shown(by),
            logger=NAME,
        )

    def acted(self, action: str, *, by: str, **fields: Any) -> None:
        """Log an action of an operator, such as `key made`."""
        shown = {name: _shown(value) for name, value in fields.items() if value is not None}
        log.info(action, by=_shown(by), **shown, logger=NAME)

    def _limited(self, event: str, address: str | None, **fields: Any) -> None:
        key, now_s = address or "", self._now_s()
        bucket, left_out = self._limits.pop(key, (TokenBucket(LINES_PER_S, LINES_BURST, now_s), 0))
        is_due = bucket.spend(now_s) and self._all.spend(now_s)
        self._limits[key] = bucket, 0 if is_due else left_out + 1
        if len(self._limits) > MAX_ADDRESSES:
            self._limits.popitem(last=False)
        if not is_due:
            AUDIT_LEFT_OUT.inc()
            return
        shown = {name: _shown(value) for name, value in fields.items() if value is not None}
        if left_out:
            shown["left_out"] = left_out
        log.warning(event, address=_shown(key) or "none", **shown, logger=NAME)


def _shown(value: object) -> Any:
    """Return a short, printable text on one line."""
    if not isinstance(value, str):
        return value
    text = value[:MAX_SHOWN]
    return text if text.isprintable() else ascii(text)[1:-1]


# The audit log of this process.
audit = Audit()
