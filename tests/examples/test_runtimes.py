"""The script of examples/runtimes, with the packed client, in Node, Deno and Bun against a real gateway."""

import subprocess

import pytest

from tests.examples.conftest import BUILT
from tests.support.gateway_process import StartGateway

pytestmark = pytest.mark.nightly
FOLDER = BUILT / "runtimes"
COMMANDS = {
    "Node": ["node"],
    "Deno": ["node_modules/.bin/deno", "run", "--allow-net", "--allow-env", "--allow-read"],
    "Bun": ["node_modules/.bin/bun"],
}


@pytest.mark.parametrize("runtime", list(COMMANDS))
def test_a_script_hears_its_event_and_ends(start_gateway: StartGateway, redis_url: str, runtime: str) -> None:
    """It subscribes, publishes, reads from the log again, closes, and no timer keeps its process alive."""
    gateway = start_gateway({"HEADGATE_REDIS_URL": redis_url}, "--dev")
    done = subprocess.run(
        [*COMMANDS[runtime], "hear.js", gateway.url], cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("heard greetings.hello from "), done.stdout
    assert done.stdout.rstrip().endswith("status closed")
