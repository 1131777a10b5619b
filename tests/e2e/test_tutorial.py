"""docs/tutorial.md, followed word for word in an empty folder: the wheel, the files and commands as they stand, a real browser.

Two things differ from a reader's. The port is a free one, and the packages that the wheel needs are the local ones
(tests/integration/packaging/test_readme.py lets pip fetch them at night).
"""

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.integration.packaging.conftest import wheel as wheel
from tests.integration.packaging.test_readme import Reader, shell
from tests.support.checkout import DEADLINE_S, ROOT, install_wheel
from tests.support.gateway_process import GatewayProcess
from tests.support.redis_server import wait_until

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?\n)```$', PAGE, re.MULTILINE | re.DOTALL))
STEPS = dict(re.findall(r"^<!-- step: ([\w ]+) -->\n```sh\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL))
CONNECT_LINE = "  const gate = headgate.connect("

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
Serve = Callable[..., GatewayProcess]


@pytest.fixture
def folder(wheel: Path, tmp_path: Path) -> Path:
    """The reader's folder after steps 1 to 3."""
    (tmp_path / "templates").mkdir()
    line = STEPS["install"].splitlines()[1]
    assert line == '.venv/bin/pip install "$(echo dist/headgate-*.whl)[server,embedded]"'
    install_wheel(wheel, tmp_path / ".venv")
    for name in ("app.py", "templates/list.html"):
        (tmp_path / name).write_text(FILES[name])
    return tmp_path


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(step: str, port: str = "0") -> GatewayProcess:
            gateway = GatewayProcess(folder, {"HEADGATE_PORT": port, "HEADGATE_DATA_DIR": ".headgate"})
            command = shlex.split(STEPS[step])
            gateway.command = (str(folder / command[0]), *command[1:])
            stack.callback(gateway.stop)
            return gateway.start()

        yield start


@pytest.fixture
def open_page(context: BrowserContext) -> Callable[[str], Page]:
    def open_one(url: str) -> Page:
        page = context.new_page()
        page.goto(url)
        return page

    return open_one


def bought(page: Page, name: str) -> None:
    expect(page.locator("li", has_text=name)).to_have_attribute("style", re.compile("line-through"), timeout=DEADLINE_S * 1000)


def shown(page: Page, name: str) -> None:
    expect(page.locator("li", has_text=name)).to_have_count(1, timeout=DEADLINE_S * 1000)


def test_a_reader_gets_a_live_page(folder: Path, serve: Serve, open_page: Callable[[str], Page]) -> None:
    """Two windows agree, other programs publish, a restart loses nothing, and only signed-in readers come in."""
    gateway = serve("serve")
    first, second = open_page(gateway.url), open_page(gateway.url)
    for page in (first, second):
        expect(page.locator("#state")).to_have_text("live", timeout=DEADLINE_S * 1000)
    tail = Reader(*shlex.split(STEPS["tail"].replace(".venv", str(folder / ".venv"))), folder=folder)
    first.get_by_label("What is missing?").fill("Bread & Butter")
    first.get_by_role("button", name="Add").click()
    shown(second, "Bread & Butter")
    second.locator("li").get_by_role("button").click()
    bought(first, "Bread & Butter")
    shell(STEPS["publish"], folder)
    shown(first, "Coffee")
    shown(second, "Coffee")
    # A reader may begin after the first one.
    wait_until(lambda: bool(shell(STEPS["publish"], folder)) and any("Coffee" in line for line in tail.lines), "tail shows it")
    tail.close()

    port = gateway.url.rstrip("/").rpartition(":")[2]
    gateway.stop()
    expect(first.locator("#state")).to_have_text("waiting", timeout=DEADLINE_S * 1000)
    gateway = serve("serve again", port)
    shell(STEPS["publish again"], folder)
    shown(first, "Tea")
    shown(second, "Tea")
    assert [line.split()[0] for line in first.locator("li").all_inner_texts()] == ["Bread", "Coffee", "Tea"]

    gateway.stop()
    (folder / "app.py").write_text(FILES["app.py"] + FILES["app.py, at the end"])
    (line,) = [line for line in FILES["templates/list.html"].splitlines() if line.startswith(CONNECT_LINE)]
    signed_in = FILES["templates/list.html, instead of the line with connect"].rstrip("\n")
    (folder / "templates/list.html").write_text(FILES["templates/list.html"].replace(line, signed_in))
    gateway = serve("serve signed in")
    ana, nobody = open_page(f"{gateway.url}?token=secret-of-ana"), open_page(gateway.url)
    expect(ana.locator("#state")).to_have_text("live", timeout=DEADLINE_S * 1000)
    expect(nobody.locator("#state")).to_have_text("refused", timeout=DEADLINE_S * 1000)


def test_every_block_of_the_page_is_followed() -> None:
    """A block that no test meets may be wrong."""
    assert set(STEPS) == {"install", "serve", "publish", "tail", "serve again", "publish again", "serve signed in"}
    assert len(re.findall(r"^```\w", PAGE, re.MULTILINE)) == len(STEPS) + len(FILES) == 11
