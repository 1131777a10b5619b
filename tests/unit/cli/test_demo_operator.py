"""The demo operator is allowed only on loopback, to the user that started the gateway as a demo, with a private Redis."""

from typing import Any, cast

import pytest

from headgate.cli.demo_operator import DemoOperator, pop_restarted
from headgate.redis.embedded import EmbeddedRedis
from headgate.settings.settings import Settings

PRIVATE = cast(EmbeddedRedis, object())


def operator(
    private: EmbeddedRedis | None = PRIVATE, target: str | None = None, environ: dict[str, str] | None = None, **settings: Any
) -> DemoOperator | None:
    environ = {} if environ is None else environ
    is_again = pop_restarted(environ)
    return DemoOperator.of(Settings(**{"demo": True, **settings}), private, environ, target, is_again=is_again)


@pytest.mark.parametrize(
    "other",
    [
        {"private": None},
        {"demo": False},
        {"target": "shop:app"},
        {"host": "0.0.0.0"},
        {"host": "192.0.2.1"},
        {"environ": {"LISTEN_PID": "1"}},
    ],
    ids=["others' Redis", "no demo", "own application", "every address", "a public address", "systemd's socket"],
)
def test_only_the_demo_on_loopback_with_a_redis_of_its_own_has_an_operator(other: dict[str, Any]) -> None:
    """Any other gateway has none. Each difference alone is reason enough."""
    assert operator() is not None
    assert operator(**other) is None


def test_a_process_after_a_restart_is_the_demo_again_and_tells_no_child() -> None:
    """Its socket comes as systemd passes one."""
    environ = {"PATH": "/bin", "LISTEN_PID": "7", "_HEADGATE_DEMO_RESTARTED": "1"}
    assert operator(environ=environ) is not None
    assert "_HEADGATE_DEMO_RESTARTED" not in environ
