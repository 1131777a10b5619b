"""Access, built whole: clients without the right to stay are found and handed over. Real counters, no Redis, no sockets."""

from collections.abc import Iterable
from typing import Any, cast

import pytest

from headgate.auth.api_keys import ApiKeys, new_key, revoke_key
from headgate.auth.identity import Handshake, Identity
from headgate.auth.repair import read_revoked
from headgate.auth.revocation import revoke
from headgate.delivery.client import Client
from headgate.errors import InvalidRequest, Unauthorized, UnauthorizedReason
from headgate.node.access.access import Access
from headgate.node.cluster.cluster import Cluster
from headgate.node.health import State
from headgate.redis.api_keys import add, find_all
from headgate.settings.settings import Settings
from tests.support.small_redis import SmallRedis
from tests.unit.node.connections import RecordedNamespace, joined


class House:
    """Access to one namespace, and evictions that note whom they were given, and why."""

    def __init__(self, **settings: Any) -> None:
        wanted = Settings(dev=True, redis_url="redis://127.0.0.1:1/0", **settings)
        self.namespace = RecordedNamespace()
        self.evicted: list[tuple[str, UnauthorizedReason | None]] = []
        namespaces = {"notifications": self.namespace.real()}
        self.cluster = Cluster(wanted, {}, State)
        self.access = Access(wanted, None, cast(Any, None), namespaces, cast(Any, self), self.cluster)

    def expired(self, clients: Iterable[Client]) -> None:
        self.evicted += [(client.session, None) for client in clients]

    def refused(self, clients: Iterable[Client], why: Unauthorized) -> None:
        self.evicted += [(client.session, why.reason) for client in clients]

    def join(self, session: str, user: str, **identity: Any) -> None:
        client = joined(self.namespace, session, [], user)
        client.identity = Identity(user, **identity)
        self.access.admission.join(client.real(), None)


def test_a_revocation_reaches_all_clients_of_the_user_or_token_and_no_others() -> None:
    """Foreign members are passed over."""
    house = House()
    for session, user in (("s1", "ana"), ("s2", "ana"), ("s3", "ben")):
        house.join(session, user)
    house.join("s4", "cleo", token_id="t-1")
    house.access.revocations.revocations.replace([])
    house.access.revocations._on_revoked(["user:ana", "rubbish", "token:nobody-has-it", "token:t-1"])
    assert sorted(house.evicted) == [(session, UnauthorizedReason.REVOKED) for session in ("s1", "s2", "s4")]


def test_what_redis_may_have_lost_of_rights_is_read_again_when_it_has_lost_what_processes_share() -> None:
    """A flush breaks no connection, and a gateway that starts after it would let a revoked user in."""
    house = House()
    house.access.revocations.was_known.set()
    house.cluster.table.on_lost()
    assert not house.access.revocations.was_known.is_set()


def test_an_api_key_that_a_failover_has_brought_back_is_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a gateway that has the revocation from another one. No caller of `revoke` can name the account of a key."""
    server = SmallRedis()
    made = new_key("deploy", ["admin"])
    add(server.client(), made.stored)
    revoke_key(server.client(), made.stored.id)
    add(server.client(), made.stored)
    house = House()
    monkeypatch.setattr(house.access, "_redis", server.client())
    decisions = read_revoked(server.client())
    house.access.revocations.revocations.replace(decisions)
    house.access.revocations._on_revoked([each.member for each in decisions])
    assert find_all(server.client()) == []
    handshake = Handshake("notifications", {"token": made.text}, {})
    key = ApiKeys(lambda key_id: made.stored).identify(handshake)
    assert key is not None
    with pytest.raises(Unauthorized):
        house.access.revocations.revocations.check(key)
    with pytest.raises(InvalidRequest):
        revoke(server.client(), user=key.user)


def test_a_client_is_due_when_its_identity_ends_and_never_when_it_has_left() -> None:
    """Being counted and being due begin and end together."""
    house = House()
    expiry = house.access.expiry
    house.join("s1", "ana", expires_at=2_000_000_000.0)
    house.join("s2", "ben")
    [client] = expiry._slot_of
    assert client.session == "s1"
    house.access.admission.leave(client)
    assert not expiry._slot_of
    house.access.close()
