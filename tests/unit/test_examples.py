"""The Python examples: one that lacks a package says which command installs it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# What is started. `headgate consume` loads `consumer/ledger.py` and `push/devices.py`, and is there by then. `celery/start.py`
# and `progress/app.py` import tasks; pytest loads tests, and an application `outbox/shop.py`.
ENTRIES = (
    *("celery/tasks.py", "django/manage.py", "fastapi/main.py", "flask/app.py", "script/nightly.py"),
    *("outbox/relay.py", "progress/tasks.py", "server/shop.py", "vite/app.py", "chat/app.py", "bell/app.py"),
    *("push/app.py", "webhook/receiver.py"),
)


def packages(entry: str) -> set[str]:
    """Return the packages that an entry imports itself."""
    imports = [
        node for node in ast.walk(ast.parse((EXAMPLES / entry).read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    return {str(node.module).partition(".")[0] for node in imports} - {*sys.stdlib_module_names, "__future__"}


@pytest.mark.parametrize(("entry", "package"), [(entry, each) for entry in ENTRIES for each in sorted(packages(entry))])
def test_an_example_without_its_package_says_which_command_installs_it(entry: str, package: str, tmp_path: Path) -> None:
    """One line and no traceback, about the first one that is not there; and the command installs that package."""
    hide = f"import runpy, sys; sys.modules[{package!r}] = None; runpy.run_path({str(EXAMPLES / entry)!r}, run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", hide], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    named, _, command = line.partition(" is not installed: ")
    assert named.partition(".")[0] in packages(entry)
    if command == "pip install -r requirements.txt":
        wanted = (EXAMPLES / entry).parent / "requirements.txt"
        assert any(each.startswith(named.partition(".")[0]) for each in wanted.read_text(encoding="utf-8").splitlines())
    else:
        assert command.startswith(("pip install headgate", 'pip install "headgate['))


def test_every_python_example_that_is_started_is_among_them() -> None:
    """A new example does not go untried."""
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.py")}
    files = {file for file in files if not file.partition("/")[2].startswith(("test_", "conftest"))}
    assert files - {
        "consumer/ledger.py",
        "celery/start.py",
        "progress/app.py",
        "stream/follow.py",
        "outbox/shop.py",
        "push/devices.py",
    } == set(ENTRIES)
