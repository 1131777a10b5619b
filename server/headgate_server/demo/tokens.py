"""The demo's tokens: which of the two users a browser is, signed with the demo's secret (kept.py), short-lived.

Not an identity system, as anyone may sign in as Ana or Ben. It marks the place for an application's own sign-in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

from headgate.errors import InvalidRequest, Unauthorized
from headgate.errors import UnauthorizedReason as Reason

# The users of the demo, and their names on the page.
USERS = {"ana": "Ana", "ben": "Ben"}
TOKEN_LIFETIME_S = 900
# A signed name has about 60 characters. A much longer text is not ours and not worth hashing.
MAX_TOKEN_LENGTH = 512


class DemoTokens:
    """Issues and verifies tokens with a secret that never leaves the server. The first token calls `find_secret`; both methods
    raise its errors.
    """

    def __init__(self, find_secret: Callable[[], bytes]) -> None:
        self._find_secret = find_secret

    @cached_property
    def _signer(self) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._find_secret(), salt="headgate demo session")

    def issue(self, user: object) -> str:
        """Return a token for one of USERS.

        Raises:
            InvalidRequest: there is no such user.
        """
        if not isinstance(user, str) or user not in USERS:
            raise InvalidRequest(f"user: expected one of {', '.join(USERS)}")
        token = self._signer.dumps(user)
        return token.decode() if isinstance(token, bytes) else token

    def verify(self, token: str | None) -> str:
        """Return the user of a token.

        Raises:
            Unauthorized: it is missing, forged, signed with another secret, or older than TOKEN_LIFETIME_S.
        """
        if not token:
            raise Unauthorized(Reason.NO_TOKEN, "no token; POST /demo/session gives one")
        if len(token) > MAX_TOKEN_LENGTH:
            raise Unauthorized(Reason.TOO_LARGE, "the token is not one of ours")
        try:
            user = self._signer.loads(token, max_age=TOKEN_LIFETIME_S)
        except SignatureExpired as error:
            raise Unauthorized(Reason.EXPIRED, "the token has expired; POST /demo/session gives a new one") from error
        except BadSignature as error:
            raise Unauthorized(Reason.BAD_SIGNATURE, "the token is not one of ours") from error
        if user not in USERS:
            raise Unauthorized(Reason.INVALID_CLAIM, "the token names nobody")
        return str(user)
