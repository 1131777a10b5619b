"""The wheel of this checkout, made once for every test that installs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkout import NO_PROGRAMS, copy_checkout, only_file, pip_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    made = pip_wheel(copy_checkout(folder, built=True), folder / "made", NO_PROGRAMS)
    assert made.returncode == 0, made.stderr
    return only_file(folder / "made")
