"""API keys: their form, their owner, and how long a process remembers one. On a clock of the test's own."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headgate.auth.api_keys import MAX_REMEMBERED, ApiKeys, NewKey, check_key_id, new_key, shown_name
from headgate.auth.identity import Handshake, Identity
from headgate.errors import BusUnavailable, HeadgateError, Unauthorized, UnauthorizedReason
from headgate.redis.api_keys import StoredKey

NOW_S = 1_800_000_000.0
ADMIN = "an-admin-key-of-forty-characters-3141592"


class Store:
    """A hash of keys that counts its readers, on a clock that stands still."""

    def __init__(self, *keys: NewKey) -> None:
        self.now_s, self.asked, self.up = 100.0, 0, True
        self.keys = {key.stored.id: key.stored for key in keys}
        self.meanwhile: Callable[[], object] = lambda: None

    def find(self, key_id: str) -> StoredKey | None:
        self.asked += 1
        self.meanwhile()
        if not self.up:
            raise BusUnavailable("gone")
        return self.keys.get(key_id)

    def api_keys(self, admin_key: str | None = None, time_s: float = NOW_S) -> ApiKeys:
        return ApiKeys(self.find, admin_key, lambda: self.now_s, lambda: time_s)


def made(*scopes: str, **options: Any) -> NewKey:
    return new_key("billing", scopes or ("publish:orders.#", "clients"), time_s=lambda: NOW_S, **options)


def shown(token: str) -> Handshake:
    return Handshake("notifications", {"token": token}, {})


def refusal(keys: ApiKeys, token: str) -> tuple[UnauthorizedReason, str]:
    with pytest.raises(Unauthorized) as caught:
        keys.identify(shown(token))
    return caught.value.reason, caught.value.detail


# The form of a key ---------------------------------------------------------------------------------------------------------


def test_a_key_has_a_prefix_an_id_a_secret_and_a_checksum() -> None:
    """64 characters, which a scanner finds by one expression; only the hash of it is to be kept."""
    key = made(random=lambda size: bytes(range(1, size + 1)))
    assert re.fullmatch(r"hgk_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}", key.text)
    assert len(key.text) == 64
    assert key.text.startswith(f"hgk_{key.stored.id}_")
    assert len(key.stored.sha256) == 64
    secret = key.text.rpartition("_")[2]
    assert not any(secret[at : at + 6] in repr(key.stored) for at in range(len(secret) - 6))


def test_two_keys_have_nothing_in_common() -> None:
    """Neither id nor secret."""
    one, two = made(), made()
    assert one.stored.id != two.stored.id
    assert one.text[15:58] != two.text[15:58]


def test_a_typing_error_is_recognised_without_a_look_at_redis() -> None:
    """One wrong letter, one missing, two swapped: malformed."""
    key = made()
    store = Store(key)
    keys = store.api_keys()
    at = next(at for at in range(16, 50) if key.text[at] != key.text[at + 1])
    swapped = key.text[:at] + key.text[at + 1] + key.text[at] + key.text[at + 2 :]
    wrong = key.text[:20] + ("a" if key.text[20] != "a" else "b") + key.text[21:]
    for token in (wrong, key.text[:-1], swapped, "hgk_", key.text + "0", f"hgk_{'é' * 60}", "hgk_\udc80"):
        assert refusal(keys, token)[0] is UnauthorizedReason.MALFORMED
    assert store.asked == 0


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": " a"},
        {"name": "a\nb"},
        {"name": "x" * 81},
        {"scopes": ()},
        {"scopes": ("everything",)},
        {"namespaces": ("no name",)},
        {"namespaces": ("a",) * 65},
        {"ttl_s": 0},
        {"ttl_s": 10**12},
    ],
)
def test_a_key_that_cannot_be_is_not_made(options: dict[str, Any]) -> None:
    """An error of the tree says why."""
    with pytest.raises(HeadgateError):
        new_key(**{"name": "billing", "scopes": ("clients",), **options})


def test_the_id_of_a_key_is_taken_from_the_whole_key_too() -> None:
    """People have that at hand when they revoke one."""
    key = made()
    assert check_key_id(key.text) == check_key_id(key.stored.id) == key.stored.id
    with pytest.raises(HeadgateError):
        check_key_id("no id")


# Its owner -----------------------------------------------------------------------------------------------------------------


def test_a_key_is_an_identity_with_its_scopes_as_grants() -> None:
    """No user has its name; it is for the first namespace unless one is given."""
    key = made("publish:orders.#", "read:mail.*", "clients")
    identity = Store(key).api_keys().identify(shown(key.text))
    assert identity is not None
    assert (identity.publish, identity.subscribe) == (("orders.#",), ("mail.*",))
    assert identity.scopes == ("publish:orders.#", "read:mail.*", "clients")
    assert identity.namespaces is None
    assert shown_name(identity.user) != identity.user
    assert shown_name(identity.user) == f"key {key.stored.id}"
    assert shown_name("ana") == "ana"


@pytest.mark.parametrize(
    ("options", "namespaces"), [({"namespaces": ("other",)}, ("other",)), ({"namespaces": ("*",)}, ("*",)), ({}, None)]
)
def test_a_key_is_for_its_namespaces(options: dict[str, Any], namespaces: tuple[str, ...] | None) -> None:
    """`*` is all of them, whichever gateways serve them."""
    key = made("clients", **options)
    identity = Store(key).api_keys().identify(shown(key.text))
    assert identity is not None
    assert identity.namespaces == namespaces
    assert identity.may_enter("other", "notifications") is bool(namespaces)


def test_a_token_that_is_no_key_is_left_to_others() -> None:
    """With and without an admin key; and so is no token."""
    for keys in (Store().api_keys(), Store().api_keys(ADMIN)):
        assert keys.identify(shown("a.user.token")) is None
        assert keys.identify(Handshake("notifications", {}, {})) is None


def test_an_unknown_key_and_a_wrong_secret_get_the_same_answer() -> None:
    """A caller cannot find out which ids exist."""
    key, other = made(), made()
    forged = msgspec.structs.replace(other.stored, sha256="0" * 64)
    store = Store(key)
    store.keys[other.stored.id] = forged
    keys = store.api_keys()
    assert refusal(keys, made().text) == refusal(keys, other.text)
    assert refusal(keys, other.text)[0] is UnauthorizedReason.NOT_ACCEPTED


def test_a_key_ends_when_it_said() -> None:
    """To the second; reported only to a caller that has the whole key."""
    key = made(ttl_s=60)
    store = Store(key)
    assert store.api_keys(time_s=NOW_S + 59).identify(shown(key.text)) is not None
    assert refusal(store.api_keys(time_s=NOW_S + 60), key.text)[0] is UnauthorizedReason.EXPIRED


def test_the_admin_key_may_do_everything_everywhere() -> None:
    """And one that differs in a letter is no admin key."""
    keys = Store().api_keys(ADMIN)
    identity = keys.identify(shown(ADMIN))
    assert identity is not None
    assert (identity.scopes, identity.namespaces) == (("admin",), ("*",))
    assert identity.may_publish("any.thing")
    assert keys.identify(shown(ADMIN[:-1] + "x")) is None
    assert Store().api_keys().identify(shown(ADMIN)) is None


def test_a_head_that_was_looked_at_is_not_compared_again() -> None:
    """The same handshake gives the same identity object, of a key, of the admin and of a user."""
    key = made()
    keys = Store(key).api_keys(ADMIN)
    for token in (key.text, ADMIN):
        handshake = shown(token)
        assert keys.identify(handshake) is keys.identify(handshake)
    users = shown("a.user.token")
    users.keep(object(), Identity("ana"))
    assert keys.identify(users) is None


# Remembered answers ---------------------------------------------------------------------------------------------------------


def test_a_revoked_key_is_refused_within_two_seconds() -> None:
    """An answer of Redis holds for a second; an unknown key is remembered as long."""
    key, unknown = made(), made()
    store = Store(key)
    keys = store.api_keys()
    handshake = shown(key.text)
    assert keys.known(handshake) is None
    assert keys.identify(handshake) is keys.known(handshake) is not None
    assert refusal(keys, unknown.text)
    del store.keys[key.stored.id]
    store.keys[unknown.stored.id] = unknown.stored
    store.now_s += 0.9
    assert keys.identify(handshake) is keys.known(handshake) is not None
    assert refusal(keys, unknown.text)
    assert store.asked == 2
    store.now_s += 0.1
    assert keys.known(handshake) is None
    with pytest.raises(Unauthorized):
        keys.identify(handshake)
    assert keys.identify(shown(unknown.text)) is not None


def test_while_one_caller_asks_others_have_what_was_known_for_two_seconds_at_most() -> None:
    """One request to Redis, and no other caller waits for it."""
    key = made()
    store = Store(key)
    keys = store.api_keys()
    keys.identify(shown(key.text))
    store.now_s += 1.5
    asked_when_another_comes: list[int] = []

    def another_comes() -> None:
        store.meanwhile = lambda: None
        keys.identify(shown(key.text))
        asked_when_another_comes.append(store.asked)

    store.meanwhile = another_comes
    keys.identify(shown(key.text))
    assert (store.asked, asked_when_another_comes) == (2, [2])
    store.now_s += 2.0
    store.meanwhile = another_comes
    keys.identify(shown(key.text))
    assert (store.asked, asked_when_another_comes) == (4, [2, 4])


def test_a_key_that_changed_in_redis_is_read_anew() -> None:
    """The connection's own memory of it counts no more."""
    key = made("clients")
    store = Store(key)
    keys = store.api_keys()
    handshake = shown(key.text)
    keys.identify(handshake)
    store.keys[key.stored.id] = msgspec.structs.replace(key.stored, scopes=("trace",))
    store.now_s += 1
    keys.identify(shown(key.text))
    assert keys.known(handshake) is None
    identity = keys.identify(handshake)
    assert identity is not None
    assert identity.scopes == ("trace",)


def test_without_redis_no_key_is_taken_that_is_not_known_now() -> None:
    """The error is one to try again after; the admin key needs no Redis."""
    key = made()
    store = Store(key)
    store.up = False
    keys = store.api_keys(ADMIN)
    with pytest.raises(BusUnavailable):
        keys.identify(shown(key.text))
    assert keys.identify(shown(ADMIN)) is not None


def test_the_memory_of_keys_is_bounded() -> None:
    """Whatever is shown to it; the oldest go first."""
    key = made()
    store = Store(key)
    keys = store.api_keys()
    keys.identify(shown(key.text))
    for _ in range(MAX_REMEMBERED):
        refusal(keys, made().text)
    assert len(keys._remembered) == MAX_REMEMBERED
    asked = store.asked
    keys.identify(shown(key.text))
    assert store.asked == asked + 1
