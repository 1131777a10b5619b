"""The examples of Python programs, each run in a separate folder and environment, with the wheel of this checkout.

The fixtures are in tests/examples/conftest.py.
"""

import base64
import json
import shutil
import subprocess
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headgate.redis.client import call, open_client
from headgate.redis.keys import log_key
from tests.support.checkout import DEADLINE_S, users_environment

ROOT = Path(__file__).resolve().parents[2]
SECRET = bytes(range(32)).hex()
WEBHOOK_SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
MakeExample = Callable[..., "Example"]


class Example:
    """One example in a separate folder and environment."""

    def __init__(self, name: str, folder: Path, wheel: Path, redis_url: str, stack: ExitStack, extra: str = "") -> None:
        self.folder = folder / name
        shutil.copytree(ROOT / "examples" / name, self.folder)
        venv.create(self.folder / ".venv", with_pip=True)
        requirements = self.folder / "requirements.txt"
        needed = requirements.read_text().split() if requirements.exists() else []
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}{extra}", *needed)
        self.environment = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_TOKEN_SECRET": SECRET, "WEBHOOK_SECRET": WEBHOOK_SECRET}
        self._stack = stack

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return [str(self.folder / ".venv/bin" / words[0]), *words[1:]]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self._words(words),
            cwd=self.folder,
            env=self._inherited(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output.txt").open("a") as output:
            process = subprocess.Popen(self._words(words), cwd=self.folder, env=self._inherited(), stdout=output, stderr=output)
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.terminate)
        return process

    def _inherited(self) -> dict[str, str]:
        return users_environment(getattr(self, "environment", {}))


@pytest.fixture
def example(wheel: Path, tmp_path: Path, redis_url: str) -> Iterator[MakeExample]:
    """Make an example ready."""
    with ExitStack() as stack:
        yield lambda name, extra="": Example(name, tmp_path, wheel, redis_url, stack, extra)


def published(redis_url: str) -> list[tuple[str, Any]]:
    """Return topic and data of everything in the log."""
    client = open_client(redis_url)
    entries = [fields for _, fields in call(client, "XRANGE", log_key("notifications"), "-", "+")]
    client.close()
    return [(fields[b"topic"].decode(), json.loads(fields[b"data"])) for fields in entries]
