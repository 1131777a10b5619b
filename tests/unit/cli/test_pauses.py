"""`headgate pause` and `headgate resume`: wrong usage is one clear line, before Redis is asked."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from tests.support.small_redis import SmallRedis


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("pause", "everything"), 2, "'everything' is not one of 'connects', 'publishes', 'namespace'"),
        (("pause", "namespace"), 2, "expected connects, publishes or namespace NAME"),
        (("pause", "connects", "shop"), 2, "expected connects, publishes or namespace NAME"),
        (("resume", "namespace"), 2, "expected connects, publishes or namespace NAME"),
        (("resume",), 2, "Missing argument"),
        (("pause", "--for", "10m"), 2, "--for needs one of"),
        (("pause", "connects", "--for", "soon"), 2, "'soon' is not a time"),
        (("pause", "connects", "--for", "0"), 1, "expected a time from 1 second to 400 days"),
        (("pause", "connects", "--for", "401d"), 1, "expected a time from 1 second to 400 days"),
        (("pause", "namespace", "a b"), 1, "'a b'"),
        (("pause", "connects", "--redis", "redis://127.0.0.1:1/0"), 1, "the bus is unavailable"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    """Exit code 2 for a wrong word, 1 for a wrong value or a fault."""
    result = CliRunner().invoke(main, list(arguments), env={"HEADGATE_REDIS_URL": "redis://127.0.0.1:1/0"})
    assert result.exit_code == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_namespace_that_nobody_serves_is_paused_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name would stop nothing, and look as if it had."""
    server = SmallRedis()
    monkeypatch.setattr("headgate.cli.pauses.open_redis", lambda url: server.client())
    monkeypatch.setattr("headgate.redis.registry.has_been_served", lambda client, name: (name == "shop", ["shop"]))
    wrong, right = (CliRunner().invoke(main, ["pause", "namespace", name]) for name in ("shpo", "shop"))
    assert (wrong.exit_code, wrong.stdout) == (0, "paused namespace shpo\n")
    assert wrong.stderr == "headgate: no gateway serves the namespace shpo now; gateways serve shop\n"
    assert (right.exit_code, right.stdout, right.stderr) == (0, "paused namespace shop\n", "")
