"""README.md and docs/start.md as a newcomer follows them. Every block runs as it stands, in a folder with both packages.

A skipped block gives the reason in a comment above it. Only addresses are replaced, by a Redis and a gateway of the test's for
the reader's.
"""

import os
import re
import shlex
import shutil
import subprocess
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.auth.identity import Handshake
from headgate.cli.main import main
from headgate.errors import Unauthorized
from headgate.redis.client import call, open_client
from tests.e2e.shop import Shop
from tests.support.checkout import DEADLINE_S, ROOT, install_wheel, make_environment, users_environment
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_server import wait_until
from tests.support.unstarted_gateway import know_revocations

REDIS, GATEWAY = "redis://localhost:6379/0", "https://example.com"
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
PAGES = ("README.md", "docs/start.md")
SECRET = "a secret of the test that is long enough"
# Around the JavaScript of a page: its place, and the sign that it works.
PAGE = """
const fetchAnywhere = fetch;
globalThis.fetch = (path, options) => fetchAnywhere(new URL(path, "{url}"), options);
{snippet}
await gate.subscribed("orders.*.shipped");
console.log("subscribed");
process.stdin.on("end", () => gate.close()).resume();
"""

Serve = Callable[[str], GatewayProcess]

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    is_run: bool


def blocks() -> list[Block]:
    text = "".join((ROOT / page).read_text() for page in PAGES)
    found = re.findall(r"([^\n]*)\n```(\w*)\n(.*?)\n```\n", text, re.DOTALL)
    return [Block(language, code, NOT_RUN.fullmatch(above) is None) for above, language, code in found if language]


def only_block(language: str, holding: str) -> str:
    """Return the block of a language that holds a text; there is one."""
    (found,) = [block.code for block in blocks() if block.is_run and block.language == language and holding in block.code]
    return found


class Reader:
    """A program beside the test, with output read as it comes."""

    def __init__(self, *words: str, folder: Path) -> None:
        self.lines: deque[str] = deque(maxlen=1000)
        self._process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self.lines.extend(line.rstrip("\n") for line in output)

    def wait_for(self, line: str, count: int = 1) -> None:
        """Wait until it has written a line so many times."""
        wait_until(lambda: list(self.lines).count(line) >= count or self._process.poll() is not None, f"{line!r} in {self.lines}")
        assert list(self.lines).count(line) >= count, self.lines

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)


@pytest.fixture(scope="module", params=["local packages", pytest.param("packages of the index", marks=pytest.mark.nightly)])
def project(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's project: an empty folder with an environment, into which README's lines have installed both packages.

    At night pip fetches the packages that the wheel needs, which takes longer than all that is done with them.
    """
    folder = tmp_path_factory.mktemp("project")
    (folder / "dist").mkdir()
    shutil.copy2(wheel, folder / "dist")
    pack = ("npm", "pack", "--silent", "--ignore-scripts", "--workspace", "web", "--pack-destination", str(folder / "dist"))
    subprocess.run(pack, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S)
    pip_line, npm_line = only_block("sh", "pip install").splitlines()
    if request.param == "local packages":
        install_wheel(wheel, folder / ".venv")
    else:
        make_environment(folder / ".venv")
        shell(pip_line, folder)
    shell(npm_line, folder)
    return folder


@pytest.fixture
def serve(project: Path, redis_url: str) -> Iterator[Serve]:
    """Serve an application of the project, as README says: `serve(code)`."""
    started: list[GatewayProcess] = []

    def start(code: str) -> GatewayProcess:
        (project / "yourmodule.py").write_text(code)
        settings = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_TOKEN_SECRET": SECRET}
        gateway = GatewayProcess(project, settings)
        gateway.command = (str(project / ".venv/bin/headgate"), "serve", "yourmodule:app")
        started.append(gateway)
        return gateway.start()

    yield start
    for gateway in started:
        gateway.stop()


def shell(code: str, folder: Path, **environment: str) -> str:
    """Run lines in a shell with the environment of the project; return what they wrote."""
    path = f"{folder / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["sh", "-e", "-c", code],
        cwd=folder, env=users_environment({"PATH": path, **environment}), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_every_block_is_run_here_or_says_why_not() -> None:
    """`make run` has a separate test, and the lines that install are those of docs/start.md."""
    not_run = [block.code.split()[0] for block in blocks() if not block.is_run]
    assert not_run == ["git", "pip", "import"]
    assert sorted(block.language for block in blocks() if block.is_run) == [
        "js",
        "python",
        "python",
        "python",
        "sh",
        "sh",
        "sh",
        "toml",
    ]


def test_the_two_terminals_beside_the_demo_see_the_event(project: Path) -> None:
    """One listens and one publishes, with no setting, and they find the private Redis of the gateway in the same folder."""
    listen, publish = only_block("sh", "headgate tail").splitlines()
    gateway = GatewayProcess(project, {"HEADGATE_DATA_DIR": ".headgate"})
    gateway.command = (str(project / ".venv/bin/headgate"), "serve")
    with gateway, closing(Reader("sh", "-c", f"exec {listen}", folder=project)) as terminal:
        terminal.wait_for("listening to orders.# in notifications")

        assert shell(publish, project).startswith("offset 1 ")

        terminal.wait_for('1 orders.42.shipped {"carrier": "UPS"}')


def test_the_demo_starts_from_the_installed_wheel(project: Path, tmp_path: Path) -> None:
    """One command in an empty folder brings the page, its scripts, its consumer and a private Redis.

    Without a mail server, the mail about an order that fails is on the terminal. Other changes are mailed to no one.
    """
    gateway = GatewayProcess(tmp_path)
    gateway.command = (str(project / ".venv/bin/headgate"), "demo")
    with gateway:
        for path in ("/", "/headgate/demo.js"):
            with urllib.request.urlopen(gateway.url + path, timeout=DEADLINE_S) as answer:
                assert answer.status == 200
        gateway.wait_for_line(r"^headgate: consuming notifications as on-call .*: orders\.\*\.failed, from offset 1$")
        shop = Shop(gateway.url, "ana")
        shop.move("41", "packed")
        shop.move("41", "failed")
        for line in ("To: on-call@example.com", "Subject: Order 41 failed", "customer: Lindqvist & Co"):
            gateway.wait_for_line(f"^    {line}$")
        assert gateway.output.count("Subject:") == 1


def test_events_of_python_and_of_redis_cli_reach_the_page(project: Path, serve: Serve, redis_url: str) -> None:
    """The application makes the page's token, the page subscribes, and each of the two ways to publish is shown there."""
    gateway = serve(only_block("python", "def token"))
    snippet = only_block("js", "connect").replace(GATEWAY, gateway.url)
    (project / "page.mjs").write_text(PAGE.format(url=gateway.url, snippet=snippet))
    with closing(Reader("node", "page.mjs", folder=project)) as page:
        page.wait_for("subscribed")

        (project / "publish.py").write_text(only_block("python", "publisher.publish").replace(REDIS, redis_url))
        assert re.fullmatch(r"[0-9a-f]{16} 1\n", shell("python publish.py", project))
        page.wait_for("orders.42.shipped UPS")
        # There may be no redis-cli here, so its words go to Redis as it would send them.
        program, *words = shlex.split(only_block("sh", "redis-cli"))
        with closing(open_client(redis_url)) as client:
            assert (program, int(call(client, *words).split()[1])) == ("redis-cli", 2)

        page.wait_for("orders.42.shipped UPS", 2)


def test_the_authenticator_lets_known_users_in(redis_url: str, patched_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the grants that it gives; no other user."""
    monkeypatch.setenv("HEADGATE_REDIS_URL", redis_url)
    written: dict[str, Any] = {"__name__": "yourmodule"}
    exec(only_block("python", "gate.authenticate"), written)
    with closing(written["gate"]) as gate:
        know_revocations(gate)
        ana = gate.identify(Handshake("notifications", {"token": "token-of-ana"}, {}))
        assert ana.user == "ana"
        assert [ana.may_subscribe(pattern) for pattern in ("orders.#", "users.ana.#", "users.ben.#")] == [True, True, False]
        with pytest.raises(Unauthorized):
            gate.identify(Handshake("notifications", {"token": "another"}, {}))


def test_the_consumer_is_one_that_headgate_accepts(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headgate.toml").write_text(only_block("toml", "[consumers."))
    monkeypatch.chdir(tmp_path)
    checked = CliRunner().invoke(main, ["consume", "--check"], env={"HEADGATE_REDIS_URL": redis_url})
    assert (checked.exit_code, "on-call" in checked.output) == (0, True)
