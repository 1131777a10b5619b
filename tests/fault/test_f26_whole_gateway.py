"""F26 for all of a gateway: its address leads to another Redis, the old one lives on, and all connections leave with the bus.

A relay leads to one server, then to the other; open connections stay where they are, and nothing breaks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jwt
import pytest

from headgate.services.publisher import Publisher
from tests.fault.chaos_proxy import ChaosProxy
from tests.fault.redis_process import RedisProcess
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

SECRET = "a-secret-of-forty-characters-27182818284"
DEADLINE_S = 60.0
TOPIC = "rooms.7"


class Stage(NamedTuple):
    """A primary and a replica, the relay in front of them, and a gateway on it."""

    primary: RedisProcess
    replica: RedisProcess
    relay: ChaosProxy
    gateway: GatewayProcess

    def fail_over(self) -> None:
        """Make the replica a primary, and lead new connections there. The old primary lives on, and knows nothing of it."""
        wait_until(lambda: self.replica.call("INFO", "replication")["master_link_status"] == "up", "the replica to be in step")
        self.replica.call("REPLICAOF", "NO", "ONE")
        self.relay.redirect(("127.0.0.1", self.replica.port))

    def client(self, user: str) -> RawClient:
        """Return a welcomed client."""
        token = jwt.encode({"sub": user, "exp": 2**31, "aud": "headgate", "subscribe": ["#"]}, SECRET)
        client = RawClient(self.gateway.url, {"token": token, "subscriptions": [{"pattern": TOPIC}]})
        client.wait_for(partial(client.named, "welcome"), "the welcome", DEADLINE_S)
        return client


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as started:
        primary, replica = (started.enter_context(RedisProcess(tmp_path / name)) for name in ("one", "other"))
        primary.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica.call("REPLICAOF", "127.0.0.1", primary.port)
        relay = started.enter_context(ChaosProxy(("127.0.0.1", primary.port)))
        settings = {
            "HEADGATE_REDIS_URL": f"redis://127.0.0.1:{relay.port}",
            "HEADGATE_TOKEN_SECRET": SECRET,
            "HEADGATE_FENCE_INTERVAL_S": "0.2",
        }
        gateway = started.enter_context(GatewayProcess(tmp_path / "gateway", settings))
        yield Stage(primary, replica, relay, gateway)


def test_a_gateway_whose_connections_lead_to_the_old_primary_has_what_is_at_the_new_one(stage: Stage) -> None:
    """A revocation: nothing notifies its link, which only listens, and the old primary answers its PINGs for good.

    Members of a topic, those from before and a later one. To the others they would be gone as soon as the lease has ended.
    """
    with (
        closing(stage.client("ana")) as ana,
        closing(stage.client("eve")) as eve,
        Publisher(f"redis://127.0.0.1:{stage.replica.port}") as elsewhere,
    ):
        assert ana.request("presence", {"topic": TOPIC, "act": "enter"})["ok"]
        stage.fail_over()
        elsewhere.revoke(user="eve")
        with closing(stage.client("ben")) as ben:
            assert ben.request("presence", {"topic": TOPIC, "act": "enter"})["ok"]

            def there() -> list[str]:
                return [member.user for member in elsewhere.presence_page(TOPIC).members]

            wait_until(lambda: there() == ["ana", "ben"], "both at the new primary")
        eve.wait_for(lambda: eve.closed, "the revoked client to be disconnected", DEADLINE_S)
