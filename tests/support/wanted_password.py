"""The shared Redis as one that wants a password, for as long as a test runs."""

from collections.abc import Iterator

import pytest

from headgate.redis.client import call, open_client


@pytest.fixture
def locked_redis_url(redis_url: str) -> Iterator[str]:
    """The URL of the shared Redis, without the password `right-hunter2` that it wants from all clients in that time."""
    place = redis_url.removeprefix("unix://")
    client = open_client(redis_url)
    call(client, "ACL", "SETUSER", "keeper", "on", ">key", "~*", "&*", "+@all")
    call(client, "CONFIG", "SET", "requirepass", "right-hunter2")
    client.close()
    yield redis_url
    keeper = open_client(f"unix://keeper:key@{place}")
    call(keeper, "CONFIG", "SET", "requirepass", "")
    keeper.close()
