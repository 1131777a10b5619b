"""Hypothesis' choice of examples. Every run of the test command draws the same ones."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st


def examples() -> list[tuple[int, str]]:
    drawn: list[tuple[int, str]] = []

    @given(st.integers(), st.text())
    def draw(number: int, text: str) -> None:
        drawn.append((number, text))

    draw()
    return drawn


@pytest.mark.skipif("FUZZ" in os.environ, reason="new examples are what was asked for")
def test_examples_do_not_depend_on_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis draws from the constants of modules, `_get_local_constants`, and tests/conftest.py keeps it from looking."""
    before = examples()
    module, file = ModuleType("many_constants"), tmp_path / "many_constants.py"
    file.write_text("".join(f"{number}, 'constant {number}'\n" for number in range(1000, 1100)))
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert examples() == before
