"""`headgate pause` and `headgate resume`: wrong usage is one clear line, before Redis is asked."""

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from tests.support.small_redis import SmallRedis


def test_a_namespace_that_nobody_serves_is_paused_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name would stop nothing, and look as if it had."""
    server = SmallRedis()
    monkeypatch.setattr("headgate.cli.operations.open_redis", lambda url: server.client())
    monkeypatch.setattr("headgate.redis.registry.has_been_served", lambda client, name: (name == "shop", ["shop"]))
    wrong, right = (CliRunner().invoke(main, ["pause", "namespace", name]) for name in ("shpo", "shop"))
    assert (wrong.exit_code, wrong.stdout) == (0, "paused namespace shpo\n")
    assert wrong.stderr == "headgate: no gateway serves the namespace shpo now; gateways serve shop\n"
    assert (right.exit_code, right.stdout, right.stderr) == (0, "paused namespace shop\n", "")
