"""F3: Sentinels fail over to a replica, again and again, under load; the replica may lack the newest events, and revocations."""

import contextlib
import time
from pathlib import Path
from typing import Any

import jwt

from headgate.auth.api_keys import new_key, revoke_key
from headgate.auth.repair import read_regrants, read_revoked
from headgate.errors import BusUnavailable, HeadgateError
from headgate.redis import api_keys
from headgate.redis.client import call, open_client
from headgate.redis.keys import API_KEYS
from headgate.services.clients import Clients
from headgate.services.publisher import Publisher
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.figures import Figures
from tests.fault.site import DEADLINE_S, Load, Publishing, Site, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_client import RawClient
from tests.support.sentinels import PRIMARY, Sentinels, dict_of, start_sentinels

ROUNDS = 20
SECRET = "a-secret-of-forty-characters-27182818284"


class FailingOver:
    """A primary, a replica and Sentinels as a site needs them."""

    def __init__(self, servers: Sentinels) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        return self.servers.url

    def call(self, *command: str | bytes | int) -> Any:
        client = open_client(self.url, timeout_s=DEADLINE_S)
        try:
            return call(client, *command)
        finally:
            client.close()

    def in_step(self) -> bool:
        """Whether every Sentinel knows one living replica, and the replica follows its primary."""
        try:
            roles = [server.call("INFO", "replication") for server in self.servers.servers]
            followers = [role for role in roles if role["role"] == "slave"]
            known = [
                int(dict_of(sentinel.call("SENTINEL", "MASTER", PRIMARY))["num-slaves"]) for sentinel in self.servers.sentinels
            ]
        except HeadgateError:
            return False
        return len(followers) == 1 and followers[0]["master_link_status"] == "up" and min(known) >= 1

    def primary(self) -> int:
        """Return which server is the primary, by its own word."""
        roles = [server.call("INFO", "replication")["role"] for server in self.servers.servers]
        return roles.index("master")


@ONLY_NIGHTLY
def test_a_failover_loses_nothing_without_a_word(tmp_path: Path, load: Load, figures: Figures) -> None:
    """The primary freezes under load with its replica a moment late; the log goes on at the new one, with reported losses."""
    flowing_s: list[float] = []
    with contextlib.ExitStack() as ended:
        redis = FailingOver(ended.enter_context(start_sentinels(tmp_path / "redis")))
        site = ended.enter_context(Site(tmp_path, load, behind=redis))
        site.wait_until_ready()
        swarm = site.swarm().open()
        ended.callback(swarm.close)
        publishing = ended.enter_context(Publishing(redis.url, load, timeout_s=1.0))
        for _ in range(ROUNDS):
            wait_for(redis.in_step, "Sentinels and replica to be in step")
            publishing.wait_for(30)
            old, new = redis.servers.servers[redis.primary()], redis.servers.servers[1 - redis.primary()]
            # For a moment the replica gets no events that publishers have receipts for.
            new.call("REPLICAOF", "127.0.0.1", "1")
            publishing.wait_for(10)
            frozen_s = time.monotonic()
            old.pause()
            new.call("REPLICAOF", "127.0.0.1", old.port)
            seen = len(publishing.receipts)
            wait_for(lambda seen=seen: len(publishing.receipts) > seen, "an event to be published to the new primary")
            published_s = time.monotonic()
            topic_had = len(swarm.records[0].seen())
            wait_for(lambda had=topic_had: len(swarm.records[0].seen()) > had, "events to flow")
            flowing_s.append(time.monotonic() - published_s)
            old.go_on()
            figures("F3", "failover of the Sentinels, until publishing goes on", published_s - frozen_s, "s", "theirs")
        history = publishing.stop()
        wait_for(redis.in_step, "Sentinels and replica to be in step")
        site.come_to_rest(swarm, history)
    assert any(record.gaps("rolled_back") for record in swarm.records)
    assert not any(record.gaps("log_lost") for record in swarm.records)
    figures("F3", "events flow again, after the first publish to the new primary", max(flowing_s), "s", "≤ 5 s")
    figures("F3", "failovers: events lost unreported, doubled or shown though lost", 0, "", "0 (checked)")


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
        redis = FailingOver(ended.enter_context(start_sentinels(tmp_path / "redis")))
        settings["HEADGATE_REDIS_URL"] = redis.url
        gateways = [ended.enter_context(GatewayProcess(tmp_path / name, settings)) for name in ("one", "two")]
        wait_for(redis.in_step, "Sentinels and replica to be in step")
        publisher = ended.enter_context(Publisher(redis.url, timeout_s=1.0))
        old, new = redis.servers.servers[redis.primary()], redis.servers.servers[1 - redis.primary()]
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
