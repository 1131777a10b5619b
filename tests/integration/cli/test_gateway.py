"""`headgate serve`: what happens before the gateway is loaded. A process of its own, as it patches the standard library."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVE = """
import socket, sys, types
from headgate.cli.main import main

def run(overrides, target, config, *, with_consumers):
    from gevent import monkey
    print(monkey.is_module_patched("socket"), sorted(overrides.items()), target, config, with_consumers)
    return 7

sys.modules["headgate.cli.serve"] = types.SimpleNamespace(run=run)
main()
"""


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ((), "True [] None None False"),
        (
            ("shop:app", "--host", "::1", "--port", "0", "--redis", "redis://r", "--dev", "--demo"),
            "True [('HEADGATE_DEMO', '1'), ('HEADGATE_DEV', '1'), ('HEADGATE_HOST', '::1'), ('HEADGATE_PORT', '0'), "
            "('HEADGATE_REDIS_URL', 'redis://r')] shop:app None False",
        ),
        (("--config", "shop.toml", "--with-consumers"), "True [] None shop.toml True"),
    ],
)
def test_serve_patches_first_and_passes_on_only_what_was_given(arguments: tuple[str, ...], given: str) -> None:
    """Options become settings' names; what is not given stays with the environment. The exit code is the server's."""
    result = subprocess.run(
        [sys.executable, "-c", SERVE, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.stdout.strip(), result.returncode) == (given, 7), result.stderr
