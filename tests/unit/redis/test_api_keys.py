"""API keys in Redis: kept until their revocation, bounded in number. On a small Redis in this process."""

import pytest

from headgate.errors import LimitReached
from headgate.redis import api_keys
from headgate.redis.api_keys import StoredKey, add, find, find_all, remove
from headgate.redis.keys import API_KEYS
from tests.support.small_redis import SmallRedis

KEY = StoredKey("k1", "billing", ("publish:orders.#", "clients"), "ab" * 32, 1_800_000_000, "ana", ("a", "b"), 1_900_000_000)
PLAIN = StoredKey("k2", "board", ("trace",), "cd" * 32, 1_700_000_000)


def test_a_key_counts_until_it_is_revoked() -> None:
    """It comes back as it was, the oldest first; a second end finds nothing."""
    client = SmallRedis().client()
    assert (find(client, "k1"), find_all(client)) == (None, [])
    add(client, KEY)
    add(client, PLAIN)
    assert find(client, "k1") == KEY
    assert find_all(client) == [PLAIN, KEY]
    assert remove(client, "k1") == KEY
    assert remove(client, "k1") is None
    assert find_all(client) == [PLAIN]


def test_what_was_put_there_by_hand_is_no_key() -> None:
    server = SmallRedis()
    for field, value in (("k1", "no JSON"), ("k2", '{"id":"k2"}'), ("k3", b'{"id":"\xff"}')):
        server.execute_command("HSET", API_KEYS, field, value)
    client = server.client()
    assert find(client, "k1") is None
    assert find_all(client) == []
    assert remove(client, "k2") is None


def test_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_KEYS", 1)
    client = SmallRedis().client()
    add(client, KEY)
    with pytest.raises(LimitReached) as caught:
        add(client, PLAIN)
    assert caught.value.parts["name"] == "api_keys"
