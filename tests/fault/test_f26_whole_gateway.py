"""F26 for all of a gateway: its address leads to another Redis, the old one lives on, and all connections leave with the bus.

A relay leads to one server, then to the other; open connections stay where they are, and nothing breaks them.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import jwt
import pytest

from headgate.services.publisher import Publisher
from tests.fault.pair import Pair
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

SECRET = "a-secret-of-forty-characters-27182818284"
DEADLINE_S = 60.0
TOPIC = "rooms.7"


@pytest.fixture
def gateway(pair: Pair, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway at the address of the two servers, of which the replica is in step."""
    pair.begin_to_follow()
    settings = {"HEADGATE_REDIS_URL": pair.url, "HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_FENCE_INTERVAL_S": "0.2"}
    with GatewayProcess(tmp_path / "gateway", settings) as gateway:
        yield gateway


def join(gateway: GatewayProcess, user: str) -> RawClient:
    """Return a welcomed client."""
    token = jwt.encode({"sub": user, "exp": 2**31, "aud": "headgate", "subscribe": ["#"]}, SECRET)
    client = RawClient(gateway.url, {"token": token, "subscriptions": [{"pattern": TOPIC}]})
    client.wait_for(partial(client.named, "welcome"), "the welcome", DEADLINE_S)
    return client


def test_a_gateway_whose_connections_lead_to_the_old_primary_has_what_is_at_the_new_one(
    pair: Pair, gateway: GatewayProcess
) -> None:
    """A revocation: nothing notifies its link, which only listens, and the old primary answers its PINGs for good.

    Members of a topic, those from before and a later one. To the others they would be gone as soon as the lease has ended.
    """
    with (
        closing(join(gateway, "ana")) as ana,
        closing(join(gateway, "eve")) as eve,
        Publisher(pair.replica.url) as elsewhere,
    ):
        assert ana.request("presence", {"topic": TOPIC, "act": "enter"})["ok"]
        pair.replica.call("REPLICAOF", "NO", "ONE")  # the old primary lives on, and knows nothing of it
        pair.take_over()
        elsewhere.revoke(user="eve")
        with closing(join(gateway, "ben")) as ben:
            assert ben.request("presence", {"topic": TOPIC, "act": "enter"})["ok"]

            def there() -> list[str]:
                return [member.user for member in elsewhere.presence_page(TOPIC).members]

            wait_until(lambda: there() == ["ana", "ben"], "both at the new primary")
        eve.wait_for(lambda: eve.closed, "the revoked client to be disconnected", DEADLINE_S)
