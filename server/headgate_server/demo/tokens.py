"""The demo's tokens for one of two users, signed with the demo's secret (kept.py).

This is not an identity system, because anyone may sign in as Ana or Ben. It marks the place for an application's sign-in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from headgate.auth.identity import Authenticator
from headgate.auth.keys import SECRET_ALGORITHM, TokenKey
from headgate.auth.tokens import Tokens, token_authenticator
from headgate.errors import InvalidRequest
from headgate.settings.settings import Settings

# The users of the demo, and their names on the page.
USERS = {"ana": "Ana", "ben": "Ben"}
TOKEN_LIFETIME_S = 900
_AUDIENCE = "headgate demo"
# A user sees all orders, and publishes nothing. Every user has its own topics in addition.
_SUBSCRIBE = ["orders.#"]


def demo_tokens(find_secret: Callable[[], bytes]) -> Callable[[], Tokens]:
    """Return the tokens with a secret that never leaves the server. The first call calls `find_secret`, and raises its errors."""
    return cache(lambda: Tokens([TokenKey("demo", SECRET_ALGORITHM, find_secret())], _AUDIENCE, leeway_s=0.0))


def issue(tokens: Tokens, user: object) -> str:
    """Return a token for one of USERS. Raises InvalidRequest if there is no such user."""
    if not isinstance(user, str) or user not in USERS:
        raise InvalidRequest(f"user: expected one of {', '.join(USERS)}")
    return tokens.mint(user, _SUBSCRIBE, [], TOKEN_LIFETIME_S)


def demo_authenticator(tokens: Callable[[], Tokens], settings: Settings) -> Authenticator:
    """Return the gateway's authenticator. A client without a token is anonymous if the settings allow it."""
    return lambda handshake: token_authenticator(tokens(), settings)(handshake)
