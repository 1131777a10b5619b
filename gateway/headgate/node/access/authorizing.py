"""Lets an application's function decide each pattern after the grants, for rules that tokens cannot express.

In: a client (or a caller over HTTP) with grants for a pattern, and the action: `subscribe`, `replay` or `presence`.
Out: `Forbidden`, `AuthorizeFailed`, or nothing. The function runs in the greenlet of the request, and may wait. All patterns of
one request share AUTHORIZE_S. A function that raises, or takes longer, allows nothing, but its client may try again.

A yes is remembered for the client's connection until its grants change (`refresh`, `regrant`), for the last MAX_REMEMBERED
patterns. After a no, the next request asks again. Nothing is remembered for callers over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from traceback import extract_tb

import structlog

from headgate.auth.identity import Authorizer, Identity
from headgate.delivery.client import Client
from headgate.errors import AuthorizeFailed, Forbidden, HeadgateError
from headgate.events.wire.packets import PRESENCE, REPLAY, SUBSCRIBE
from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import call_application, deadline

log = structlog.get_logger("headgate.gateway")

AUTHORIZE_S = 5.0
# Some 150 bytes each. A client may request any number of patterns, one after the other.
MAX_REMEMBERED = 1024
_WORDS = {SUBSCRIBE: "subscribe to", REPLAY: "replay", PRESENCE: "see who is in"}


class Authorizing:
    """See the module. `authorizer` is the application's function; without it the grants alone decide."""

    def __init__(self) -> None:
        self.authorizer: Authorizer | None = None
        self._log_throttle = LogThrottle()

    def check(self, client: Client, pattern: str, action: str) -> None:
        """Refuse a client a pattern. May wait. Raises Forbidden, AuthorizeFailed."""
        for error in self.refused(client, (pattern,), action).values():
            raise error

    def refused(self, client: Client, patterns: Iterable[str], action: str) -> dict[str, HeadgateError]:
        """Return the patterns of a request that a client may not have, each with its error. May wait, for AUTHORIZE_S in all."""
        if self.authorizer is None:
            return {}
        identity, until_s = client.identity, monotonic() + AUTHORIZE_S
        allowed = client.allowed = client.allowed or {}
        refused: dict[str, HeadgateError] = {}
        for pattern in dict.fromkeys(patterns):
            if (action, pattern) in allowed:
                continue
            try:
                self.ask(identity, pattern, action, until_s - monotonic())
            except (Forbidden, AuthorizeFailed) as error:
                # Its traceback, and that of its cause, hold this frame, which holds the dict, so each refusal would be a cycle.
                error.__cause__ = error.__context__ = None
                refused[pattern] = error.with_traceback(None)
            else:
                allowed[action, pattern] = None  # has no effect if the grants changed, as the client then has another dict
                if len(allowed) > MAX_REMEMBERED:
                    del allowed[next(iter(allowed))]
        return refused

    def ask(self, identity: Identity, pattern: str, action: str, within_s: float = AUTHORIZE_S) -> None:
        """Ask the application. Raises Forbidden for a no, and AuthorizeFailed if it raises or no time is left."""
        if self.authorizer is None:
            return
        try:
            if within_s <= 0:
                raise TimeoutError
            with deadline(within_s):
                allows = call_application(self.authorizer, identity, pattern, action) is True
        except Forbidden:
            allows = False
        except Exception as error:
            if (left_out := self._log_throttle.due(f"{action} {type(error).__name__}")) is not None:
                # Without the exception's text, which may hold the application's data about the user.
                frames = extract_tb(error.__traceback__)
                where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
                fields = {"user": identity.user, "action": action, "error": type(error).__name__, "where": where}
                log.error("authorize failed", **fields, left_out=left_out)
            raise AuthorizeFailed(_WORDS[action], pattern) from error
        if not allows:
            raise Forbidden(_WORDS[action], pattern)
