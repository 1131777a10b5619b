"""The format of API keys, and the identity of an HTTP request with one.

    hgk_<id, 10>_<secret, 43><checksum, 6>        digits and letters only: 64 characters in all

The prefix lets secret scanners find leaked keys. The checksum (CRC-32 of everything before it) distinguishes a key from a typing
error without asking Redis. The id names the key in lists and logs. The secret has 256 random bits, so a plain SHA-256 is a safe
way to store it; salt and a slow hash protect secrets that people choose.

In: a handshake of the HTTP API. Out: the `Identity` of its key or of the operator's HEADGATE_ADMIN_KEY, or None if its token is
neither. A key is cached for FRESH_S, and for STALE_S while one caller refreshes it, so a revoked key may still work for that
long.

A failover may bring a revoked key back. So its account is revoked too, under a name that no user can have. Gateways write that
revocation back if Redis has lost it, and remove the key again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import NamedTuple

import msgspec

from headgate.errors import HeadgateError, InvalidRequest, Unauthorized, UnauthorizedReason
from headgate.events.topic import check_namespace
from headgate.redis import api_keys
from headgate.redis.api_keys import StoredKey
from headgate.redis.client import Client

from .identity import EVERY, Handshake, Identity
from .revocation import KEPT_S, USER, revoke_member
from .scopes import ADMIN, check_scopes, patterns_of

PREFIX = "hgk_"
_KEY = re.compile(r"hgk_(?P<id>[0-9A-Za-z]{10})_[0-9A-Za-z]{43}[0-9A-Za-z]{6}", re.ASCII)
_ID = re.compile(r"[0-9A-Za-z]{10}", re.ASCII)
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_BYTES, _ID_DIGITS = 7, 10
_SECRET_BYTES, _SECRET_DIGITS = 32, 43
_SUM_DIGITS = 6
FRESH_S, STALE_S = 1.0, 2.0
# About 600 bytes each. The least recently refreshed is evicted first.
MAX_REMEMBERED = 1024
NAME = "[A-Za-z0-9][A-Za-z0-9 ._:@/+-]{0,79}"
MAX_BY_CHARACTERS = 80
MAX_NAMESPACES = 64
MAX_TTL_S = 10 * 366 * 86400
# Prefix for the account of a key. No user name can contain it, so event ids and rates of users and keys never collide.
_ACCOUNT = "\0key:"


class Key(msgspec.Struct):
    """An API key, without its secret. Times are seconds since 1970. Without `expires` it is valid until revoked.

    `namespaces` may be `*` for all, or null for the first of each gateway.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    created: int
    created_by: str
    expires: int | None

    @classmethod
    def of(cls, key: StoredKey) -> Key:
        """Return a stored key in its public form."""
        return cls(key.id, key.name, key.scopes, key.namespaces, key.created_s, key.created_by, key.expires_s)


class NewKey(NamedTuple):
    """A new key. `text` is shown once and never stored."""

    text: str
    stored: StoredKey


def new_key(
    name: str,
    scopes: Sequence[str],
    *,
    namespaces: Sequence[str] = (),
    ttl_s: int | None = None,
    by: str = "",
    random: Callable[[int], bytes] = secrets.token_bytes,
    time_s: Callable[[], float] = time,
) -> NewKey:
    """Create a key. Raises InvalidRequest, InvalidPattern or UnknownNamespace for an invalid argument.

    Args:
        name: a display name that matches NAME.
        scopes: as in scopes.py.
        namespaces: where the key is valid; `*` means all, none means the first of each gateway.
        ttl_s: lifetime in seconds; None for no expiry.
        by: creator of the key.
    """
    if not re.fullmatch(NAME, name):
        raise InvalidRequest(
            "a key's name; expected 1 to 80 letters, digits and any of . _ : @ / + - and blanks, a letter or digit first"
        )
    if ttl_s is not None and not 1 <= ttl_s <= MAX_TTL_S:
        raise InvalidRequest(f"a key that ends in {ttl_s} s; expected 1 to {MAX_TTL_S}")
    if len(namespaces) > MAX_NAMESPACES:
        raise InvalidRequest(f"{len(namespaces)} namespaces; expected at most {MAX_NAMESPACES}, or {EVERY}")
    named = tuple(dict.fromkeys(each if each == EVERY else check_namespace(each.removeprefix("/")) for each in namespaces))
    key_id = _in_digits(random(_ID_BYTES), _ID_DIGITS)
    front = f"{PREFIX}{key_id}_{_in_digits(random(_SECRET_BYTES), _SECRET_DIGITS)}"
    text = front + _checksum(front)
    now_s = int(time_s())
    stored = StoredKey(
        id=key_id,
        name=name,
        scopes=check_scopes(scopes),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        created_s=now_s,
        created_by=by[:MAX_BY_CHARACTERS],
        namespaces=named or None,
        expires_s=None if ttl_s is None else now_s + ttl_s,
    )
    return NewKey(text, stored)


def check_key_id(text: str) -> str:
    """Return the id of a key, given its id or the whole key. Raises InvalidRequest if the text is neither."""
    whole = _KEY.fullmatch(text)
    if whole is not None:
        return whole["id"]
    if not _ID.fullmatch(text):
        raise InvalidRequest("expected the id of a key: 10 letters and digits, as `headgate keys list` shows it")
    return text


def revoke_key(client: Client, key_id: str) -> StoredKey | None:
    """Revoke a key and return it, or None if it is unknown. Waits for Redis.

    Raises BusUnavailable, BusRefused: as `redis.client.call`.
    """
    was = api_keys.remove(client, key_id)
    if was is not None:
        with suppress(HeadgateError):  # the key itself is already removed
            revoke_member(client, f"{USER}:{_ACCOUNT}{key_id}", KEPT_S)
    return was


def key_of(user: str) -> str | None:
    """Return the id of the key with this account; None for another user."""
    return user.removeprefix(_ACCOUNT) if user.startswith(_ACCOUNT) else None


def shown_name(user: str) -> str:
    """Return the display name of an identity, which is the user's name or `key <id>`."""
    return user if (key_id := key_of(user)) is None else f"key {key_id}"


class ApiKeys:
    """See the module.

    Args:
        find: returns the stored key with an id from Redis; may block; raises BusUnavailable or BusRefused.
        admin_key: the operator's key, or None.
        now_s: monotonic clock; time_s: seconds since 1970.
    """

    def __init__(
        self,
        find: Callable[[str], StoredKey | None],
        admin_key: str | None = None,
        now_s: Callable[[], float] = monotonic,
        time_s: Callable[[], float] = time,
    ) -> None:
        self._find = find
        self._now_s, self._time_s = now_s, time_s
        self._admin_digest = None if admin_key is None else _digest(admin_key)
        self._admin = _identity(ADMIN, (ADMIN,), None)
        self._remembered: OrderedDict[str, tuple[StoredKey | None, float]] = OrderedDict()
        self._asking: set[str] = set()

    def identify(self, handshake: Handshake) -> Identity | None:
        """Return the identity of a handshake with a key, or None without one. May wait for Redis.

        Raises:
            Unauthorized: the token looks like a key and is not a valid one.
            BusUnavailable, BusRefused: Redis did not answer.
        """
        token = handshake.token
        if token is None:
            return None
        if token.startswith(PREFIX):
            return self._of_key(handshake, token)
        if self._admin_digest is None:
            return None
        if (kept := handshake.kept(self)) is not None or handshake.kept() is not None:
            return kept
        # Hashing first makes the time of the comparison independent of the contents and the length of the key.
        if not hmac.compare_digest(_digest(token), self._admin_digest):
            return None
        handshake.keep(self, self._admin)
        return self._admin

    def known(self, handshake: Handshake) -> Identity | None:
        """Return the identity of an accepted handshake, if its key is cached, unchanged and not expired. Never waits."""
        identity = handshake.kept()
        stored, read_s = (None, 0.0) if identity is None else self._remembered.get(key_of(identity.user) or "", (None, 0.0))
        if stored is None or handshake.kept(stored) is None or self._now_s() - read_s >= FRESH_S:
            return None
        return None if stored.expires_s is not None and stored.expires_s <= self._time_s() else identity

    def _of_key(self, handshake: Handshake, token: str) -> Identity:
        match = _KEY.fullmatch(token)
        # A handshake checked before still has the same token.
        if match is None or (handshake.kept() is None and _checksum(token[:-_SUM_DIGITS]) != token[-_SUM_DIGITS:]):
            raise Unauthorized(UnauthorizedReason.MALFORMED, "it begins like an API key but is not a whole one")
        stored = self._stored(match["id"])
        # An unknown id takes the same steps as a wrong secret and gets the same answer.
        expected = stored.sha256 if stored is not None else _NO_DIGEST
        identity = handshake.kept(stored) if stored is not None else None
        if identity is None:
            if not hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), expected) or stored is None:
                raise Unauthorized(UnauthorizedReason.NOT_ACCEPTED, "the API key is not known here, or was revoked")
            identity = _identity(stored.id, stored.scopes, stored.namespaces, stored.expires_s)
            handshake.keep(stored, identity)
        if stored is not None and stored.expires_s is not None and stored.expires_s <= self._time_s():
            raise Unauthorized(UnauthorizedReason.EXPIRED, "the API key has expired")
        return identity

    def _stored(self, key_id: str) -> StoredKey | None:
        """Return a stored key, cached if recent. While one caller refreshes it, others get the older copy."""
        known, now_s = self._remembered.get(key_id), self._now_s()
        if known is not None:
            age_s = now_s - known[1]
            if age_s < FRESH_S or (age_s < STALE_S and key_id in self._asking):
                return known[0]
        self._asking.add(key_id)
        try:
            stored = self._find(key_id)
        finally:
            self._asking.discard(key_id)
        if known is not None and stored == known[0]:
            stored = known[0]  # the same object, because handshakes cache identities by it
        self._remembered[key_id] = stored, now_s
        self._remembered.move_to_end(key_id)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return stored


_NO_DIGEST = "0" * 64


def _identity(name: str, scopes: tuple[str, ...], namespaces: tuple[str, ...] | None, expires_s: int | None = None) -> Identity:
    return Identity(
        _ACCOUNT + name,
        subscribe=patterns_of(scopes, "read"),
        publish=patterns_of(scopes, "publish"),
        expires_at=expires_s,
        namespaces=(EVERY,) if ADMIN in scopes else namespaces,
        scopes=scopes,
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _in_digits(data: bytes, digits: int) -> str:
    """Encode bytes in a fixed number of letters and digits."""
    number, letters = int.from_bytes(data), []
    for _ in range(digits):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "".join(reversed(letters))


def _checksum(text: str) -> str:
    return _in_digits(zlib.crc32(text.encode("utf-8", "surrogatepass")).to_bytes(4), _SUM_DIGITS)
