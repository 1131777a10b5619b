"""The gateways' reports of single events, on a small Redis in the tests' process."""

from headgate.redis.traces import KEPT_S, read, write
from tests.support.small_redis import SmallRedis


def test_each_gateway_has_its_counts_of_an_event() -> None:
    """The newest word counts; another offset or epoch is another event."""
    server = SmallRedis()
    client = server.client()
    write(client, "n", "web-1/7", [("e1", 300, (3, 2)), ("e1", 301, (1, 1))])
    write(client, "n", "web-2/8", [("e1", 300, (9, 9))])
    write(client, "n", "web-1/7", [("e1", 300, (3, 3))])
    write(client, "n", "web-1/7", [("e2", 300, (5, 5))])
    write(client, "n", "web-1/7", [])
    assert read(client, "n", "e1", 300) == {"web-1/7": [3, 3], "web-2/8": [9, 9]}
    assert read(client, "n", "e1", 301) == {"web-1/7": [1, 1]}
    assert read(client, "n", "e1", 30) == {}
    assert read(client, "other", "e1", 300) == {}


def test_they_end() -> None:
    server = SmallRedis()
    write(server.client(), "n", "web-1/7", [("e1", 5, (1,)), ("e1", 600, (1,))])
    assert server.present() == {"hg:{n}:trace:0", "hg:{n}:trace:2"}
    server.now_s += KEPT_S + 1
    assert server.present() == set()
