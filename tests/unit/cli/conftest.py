"""The commands on a small Redis in this process."""

import pytest

from headgate.redis import client
from tests.support.small_redis import SmallRedis


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> SmallRedis:
    server = SmallRedis()
    monkeypatch.setenv("HEADGATE_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(client, "open_client", lambda *_, **__: server.client())
    return server
