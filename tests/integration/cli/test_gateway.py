"""`headgate serve` before the gateway is loaded. A separate process, as it patches the standard library."""

import subprocess
import sys

SERVE = """
import sys, types

def run(overrides, target, config, *, with_consumers):
    from gevent import monkey
    print(monkey.is_module_patched("socket"), sorted(overrides.items()), target, config, with_consumers)
    return 7

import headgate.cli.main
sys.modules["headgate.cli.serve"] = types.SimpleNamespace(run=run)
for words in eval(sys.argv[1]):
    try:
        headgate.cli.main.main(["serve", *words])
    except SystemExit as ended:
        print(ended.code)
"""
GIVEN = {
    (): "True [('HEADGATE_WORKERS', '1')] None None False",
    ("shop:app", "--host", "::1", "--port", "0", "--redis", "redis://r", "--dev", "--demo"): (
        "True [('HEADGATE_DEMO', '1'), ('HEADGATE_DEV', '1'), ('HEADGATE_HOST', '::1'), ('HEADGATE_PORT', '0'), "
        "('HEADGATE_REDIS_URL', 'redis://r'), ('HEADGATE_WORKERS', '1')] shop:app None False"
    ),
    ("--config", "shop.toml", "--with-consumers"): "True [('HEADGATE_WORKERS', '1')] None shop.toml True",
}


def test_serve_patches_first_and_passes_on_only_the_options_that_were_given() -> None:
    """Options become settings' names; an absent one stays with the environment. The exit code is the server's.

    The number of workers is decided before.
    """
    result = subprocess.run(
        [sys.executable, "-c", SERVE, repr(list(GIVEN))], capture_output=True, text=True, timeout=60, check=True
    )

    assert result.stdout.splitlines() == [line for given in GIVEN.values() for line in (given, "7")], result.stderr
