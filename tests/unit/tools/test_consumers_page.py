"""The page about consumers: its tables are those of the code, its examples are right."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from headgate.consumers.process.config import TYPES, read_consumers
from headgate.consumers.webpush.encryption import new_keys
from tools import consumers_page

PUSH = Path(__file__).parents[3] / "examples/push"
PAGE = consumers_page.PAGE.read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_every_row_has_four_cells() -> None:
    """A `|` inside a cell would split it, a `<` would hide it."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") and "headgate_" not in line]
    assert len(rows) > 40
    for line in rows:
        assert len(line.replace("\\|", "").strip("| ").split(" | ")) == 4, line
        assert "<" not in re.sub(r"`[^`]*`", "", line), line


def test_every_type_is_shown() -> None:
    """Each type has an example on the page, and Web Push has one that runs."""
    assert len(TOML) >= 5
    assert all(f'type = "{name}"' in "".join(TOML) + PUSH.joinpath("headgate.toml").read_text() for name in TYPES)


def test_the_example_of_web_push_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions and its key are found as `headgate consume --check` finds them."""
    shutil.copytree(PUSH, tmp_path / "push")
    monkeypatch.chdir(tmp_path / "push")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "devices", raising=False)

    assert read_consumers("headgate.toml", {"VAPID_PRIVATE_KEY": new_keys()[0]})[1]


@pytest.mark.parametrize("content", TOML)
def test_every_example_is_right(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `headgate consume --check` would find it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, code in PYTHON:
        Path(f"{name}.py").write_text(code)
    Path("headgate.toml").write_text(content)

    assert read_consumers("headgate.toml", {"PARTNER_SECRET": "whsec_" + "A" * 32})[1]
