"""`headgate rebalance`: it asks, and announces the moves. On the small Redis of the tests."""

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.redis import client as redis_client
from headgate.redis import loads
from headgate.redis.loads import Load
from tests.support.registered import write_row
from tests.support.small_redis import SmallRedis

URL = "redis://127.0.0.1:1/0"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> SmallRedis:
    """The Redis that the command finds."""
    server = SmallRedis()
    monkeypatch.setattr(redis_client, "open_client", lambda *_, **__: server.client())
    return server


def headgate(*arguments: str) -> str:
    """Run `headgate rebalance` and return its output."""
    result = CliRunner().invoke(main, ["rebalance", *arguments, "--redis", URL], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_it_asks_all_gateways_and_says_how_many_will_move(server: SmallRedis) -> None:
    """For each group of processes that serve the same; `--show` asks no gateway."""
    assert headgate("--show") == "no gateway process is at work\n"
    for name, sessions, serves in (("a", 700, "shop"), ("b", 500, "shop"), ("c", 0, "shop"), ("d", 9, "chat,mail")):
        write_row(server.client(), name, Load(sessions, 900, serves))
    shown = "chat,mail: 1 process, sessions 9\nshop: 3 processes, sessions 700, 500, 0"
    assert headgate("--show") == f"{shown}\n"
    assert loads.read(server.client()).request is None
    assert headgate("--per-s", "50") == f"{shown}: up to 400 will move, in about 8 s\n"
    assert loads.read(server.client()).request == (1000, 50.0)
