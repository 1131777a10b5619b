"""F3: Sentinels fail over to a replica that lacks the newest revocations. F41 has failovers that lose events."""

import contextlib
from pathlib import Path

import jwt

from headgate.auth.api_keys import new_key, revoke_key
from headgate.auth.repair import read_regrants, read_revoked
from headgate.errors import BusUnavailable
from headgate.redis import api_keys
from headgate.redis.client import open_client
from headgate.redis.keys import API_KEYS
from headgate.services.clients import Clients
from headgate.services.publisher import Publisher
from tests.fault.site import DEADLINE_S, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_client import RawClient
from tests.support.sentinels import start_sentinels

SECRET = "a-secret-of-forty-characters-27182818284"


def login(gateway: GatewayProcess, user: str) -> str:
    """Let a user connect, and return `welcome` or the reason of the refusal."""
    token = jwt.encode({"sub": user, "exp": 2**31, "aud": "headgate"}, SECRET)
    with contextlib.closing(RawClient(gateway.url, {"token": token})) as client:
        client.wait_for(lambda: client.named("welcome") or client.refusal, "an answer", DEADLINE_S)
        return "welcome" if client.refusal is None else str(client.refusal["data"]["reason"])


def test_a_failover_that_loses_revocations_lets_nobody_in(tmp_path: Path) -> None:
    """Gateways write them back, and one that starts later reads them. What was lifted before they have followed stays lifted."""
    settings = {"HEADGATE_TOKEN_SECRET": SECRET}
    with contextlib.ExitStack() as ended:
        redis = ended.enter_context(start_sentinels(tmp_path / "redis"))
        settings["HEADGATE_REDIS_URL"] = redis.url
        gateways = [ended.enter_context(GatewayProcess(tmp_path / name, settings)) for name in ("one", "two")]
        wait_for(redis.is_known, "the Sentinels to know all")
        publisher = ended.enter_context(Publisher(redis.url, timeout_s=1.0))
        old, new = redis.servers
        client = ended.enter_context(open_client(redis.url, timeout_s=DEADLINE_S))
        key = new_key("deploy", ["admin"])
        api_keys.add(client, key.stored)
        wait_for(lambda: new.call("HLEN", API_KEYS) == 1, "the replica to have the key")
        new.call("REPLICAOF", "127.0.0.1", "1")
        assert revoke_key(client, key.stored.id) == key.stored
        assert [publisher.revoke(user=user) for user in ("ana", "ben")] == [len(gateways)] * 2
        clients = Clients(redis.url)
        ended.callback(clients.close)
        clients.regrant("eve", subscribe=["rooms.7"])
        old.pause()
        new.call("REPLICAOF", "127.0.0.1", old.port)

        def is_lifted() -> bool:
            try:
                publisher.revoke(user="ben", for_s=0)
            except BusUnavailable:
                return False
            return True

        wait_for(is_lifted, "a revocation to be lifted at the new primary")
        wait_for(lambda: "user:ana" in [each.member for each in read_revoked(client)], "the revocation to be written back")
        wait_for(lambda: list(read_regrants(client)) == ["eve"], "the grants to be written back")
        wait_for(lambda: api_keys.find_all(client) == [], "the key to be removed again")
        gateways.append(ended.enter_context(GatewayProcess(tmp_path / "three", settings)))
        for gateway in gateways:
            assert [login(gateway, user) for user in ("ana", "ben")] == ["revoked", "welcome"]
        old.go_on()
