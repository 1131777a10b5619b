"""Two databases of one Redis are two sites, whatever their namespaces are called, and nothing of one reaches the other."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from headgate.auth import revocation_watch
from headgate.auth.identity import Handshake, Identity
from headgate.auth.revocation import revoke
from headgate.node.presence import presence
from headgate.redis.client import call, open_client
from headgate.redis.keys import log_key
from headgate.redis.subscriber_link import SubscriberLink
from headgate.services.publisher import Publisher
from tests.support.bus_here import CooperativeLink
from tests.support.gateway_here import ClientHere, GatewayHere, StartGatewayHere
from tests.support.redis_process import Server

NAMESPACE = "notifications"
PATTERNS = [{"pattern": pattern} for pattern in ("orders.#", "users.ana.#", "rooms.7")]


def somebody(handshake: Handshake) -> Identity | None:
    return Identity(handshake.token or "", ("#",))


def url_of(redis_url: str, database: int) -> str:
    return f"{redis_url}/{database}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("databases") / "redis", "save ''") as server:
        yield server


@pytest.fixture
def redis_url(server: Server) -> str:
    server.call("FLUSHALL")
    return server.url


@pytest.fixture
def sites(
    gateway_here: StartGatewayHere, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> list[tuple[str, GatewayHere, ClientHere]]:
    """For database 0 and 1: its URL, a gateway there, and Ana in it."""
    for module in (presence, revocation_watch):
        monkeypatch.setattr(module, "SubscriberLink", CooperativeLink)
    made = []
    for database in (0, 1):
        url = url_of(redis_url, database)
        gateway = gateway_here(somebody, redis_url=url)
        client = gateway.join({"token": "ana", "subscriptions": PATTERNS})
        assert all(result["ok"] for result in client.welcome["subscriptions"])
        made.append((url, gateway, client))
    return made


@pytest.fixture
def everything(redis_url: str) -> Iterator[Callable[[], set[str]]]:
    """Returns the channels on which Redis has published since the test began."""
    link = SubscriberLink(redis_url)
    link.connect()
    link.settimeout(30)
    link.send(("PSUBSCRIBE", "*"))
    assert link.read()[0][0] == b"psubscribe"

    def heard() -> set[str]:
        link.send(("PING", b"end"))
        replies = link.read()
        while replies[-1][0] != b"pong":
            replies += link.read()
        return {reply[2].decode() for reply in replies if reply[0] == b"pmessage"}

    yield heard
    link.close()


def test_events_and_presence_stay_in_their_database(
    sites: list[tuple[str, GatewayHere, ClientHere]], everything: Callable[[], set[str]]
) -> None:
    """Of one namespace in each, from publishers of every kind; a listener to all of Redis shows the owner of each channel."""
    heard: set[str] = set()
    for number, (url, gateway, client) in enumerate(sites):
        with Publisher(url) as publisher:
            publisher.publish("orders.1", number)
            publisher.publish("mail", number, user="ana")
            publisher.publish_many([("orders.2", number), ("orders.3", number)])
            publisher.publish_prepared([publisher.prepare("orders.4", number)])
        client.wait_for_events(5)
        assert client.request("presence", {"topic": "rooms.7", "act": "enter"})["ok"]
        channels = {
            f"hg:{{{NAMESPACE}}}{'@1' if number else ''}{each}" for each in (":orders.4", "/users.ana", "/presence.rooms.7")
        }
        while not channels <= heard:
            gateway.wait(0.01)
            heard |= everything()
    assert [[data for _, data, _ in client.events] for _, _, client in sites] == [[0] * 5, [1] * 5]


def test_a_user_who_is_revoked_in_one_database_stays_in_the_other(sites: list[tuple[str, GatewayHere, ClientHere]]) -> None:
    """News reach the gateways of the same database, and so do an operator's questions."""
    for _, gateway, _ in sites:
        gateway.gateway.access.revocations.start()
        gateway.gateway.cluster.table.renew()
    (production, first, kept), (staging, second, revoked) = sites
    with closing(open_client(staging)) as client:
        hearers: list[Any] = [b"hg:questions", 1, b"hg:questions@1", 1]
        first.wait_until(lambda: call(client, "PUBSUB", "NUMSUB", *hearers[::2]) == hearers, "each to hear its own questions")
        revoke(client, user="ana")
        revoked.wait_for(lambda: revoked.closed or revoked.disconnected, "the end of the connection")
    with closing(open_client(production)) as client:
        call(client, "PUBLISH", "hg:revoked", "60 user:ben")
        first.wait_until(lambda: first.gateway.access.revocations.revocations.members() == ["user:ben"], "news of its own")
    assert second.gateway.access.revocations.revocations.members() == ["user:ana"]
    assert (kept.closed, kept.disconnected) == (None, False)


def test_a_publisher_alone_in_a_database_reaches_no_gateway_of_another(
    gateway_here: StartGatewayHere, redis_url: str, everything: Callable[[], set[str]]
) -> None:
    """Only the publisher has said there which database it is; another program's first event goes on no channel at all."""
    gateway = gateway_here(somebody)
    client = gateway.join({"token": "ana", "subscriptions": PATTERNS})
    assert client.welcome
    before = gateway.namespace.bus.epoch
    with closing(open_client(url_of(redis_url, 2))) as other, Publisher(url_of(redis_url, 2), namespace="shop") as publisher:
        call(other, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", "1")
        publisher.publish("orders.2", 2)
        assert everything() == {"hg:{shop}@2:orders.2"}
    with Publisher(redis_url) as publisher:
        publisher.publish("orders.3", 3)
    assert [data for _, data, _ in client.wait_for_events(1)] == [3]
    assert gateway.namespace.bus.epoch == before


def test_a_log_that_is_emptied_is_announced_in_its_database_again(sites: list[tuple[str, GatewayHere, ClientHere]]) -> None:
    """The database's number is lost with the log. The gateways say it once more as soon as they see that."""
    url, _, client = sites[1]
    with closing(open_client(url)) as other:
        call(other, "FLUSHDB")
        call(other, "FCALL", "headgate_publish", 1, log_key(NAMESPACE), "orders.1", "1")
    client.wait_for_events(1)
    with Publisher(url) as publisher:
        publisher.publish("orders.2", 2)
    assert [data for _, data, _ in client.wait_for_events(2)] == [1, 2]
    assert sites[0][2].events == []
