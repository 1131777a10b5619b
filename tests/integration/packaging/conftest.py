"""The wheel of this checkout, made once for every test that installs it, whichever process of the test run it is in."""

import fcntl
import os
from pathlib import Path

import pytest

from tests.support.checkout import NO_PROGRAMS, copy_checkout, only_file, pip_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the processes of one run share it
    folder = folder / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            made = pip_wheel(copy_checkout(folder, built=True), folder / "being-made", NO_PROGRAMS)
            assert made.returncode == 0, made.stderr
            (folder / "being-made").rename(folder / "made")
    return only_file(folder / "made")
