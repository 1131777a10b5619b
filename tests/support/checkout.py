"""A copy of this checkout to build packages from, so that a test never builds in the checkout itself."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
)
STAMP = Path("web", "dist", ".headgate-built")
DEADLINE_S = 240
# No npm and no node, as the package's build needs no program at all.
NO_PROGRAMS = {"PATH": os.devnull}


def copy_checkout(folder: Path, *, built: bool) -> Path:
    """Copy the packages' sources into a folder, with or without the output of `npm run build`. Node's packages are a link."""
    leave = ["node_modules", "dist", "test", "__pycache__", "*.egg-info"]
    if not built:
        leave += [f"headgate{part}.js*" for part in ("", ".http", ".socket.io", ".development")]
        leave += ["demo.js*", "demo.css*", "demo-icon.svg*"]
    copy = folder / ("built" if built else "unbuilt")
    for name in ("gateway", "server"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(*leave))
    shutil.copytree(ROOT / "web", copy / "web", ignore=shutil.ignore_patterns(*leave[:6]))
    (copy / "tools").mkdir()
    shutil.copy2(ROOT / "tools" / "build_backend.py", copy / "tools")
    for name in FILES:
        shutil.copy2(ROOT / name, copy)
    (copy / "node_modules").symlink_to(ROOT / "node_modules")
    os.utime(copy / "package-lock.json", (0, 0))  # older than these packages: `npm ci` would empty the folder behind the link
    if built:
        (copy / STAMP.parent).mkdir()
        (copy / STAMP).touch()
    return copy


def pip_wheel(source: Path, into: Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `pip wheel` on a checkout or an sdist, with the local tools."""
    words = [
        "pip",
        "wheel",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(into),
        str(source),
    ]
    return run_module(*words, environment=environment)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, made once, whichever process of the test run asks for it."""
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


def users_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a user of the packages: that of the test run without its settings, and with these."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HEADGATE_", "PYTHON"))} | {**environment}


def make_environment(folder: Path) -> Path:
    """Make an empty environment and return its folder of programs; its `pip` is the local one, which works on it."""
    venv.create(folder, with_pip=False)  # to unpack one into each takes longer than most of the work with it
    binaries = folder / "bin"
    # Most of the installed files there are never imported, and to compile them takes as long as to install them.
    lines = ("#!/bin/sh", f'PIP_COMPILE=0 exec "{sys.executable}" -m pip --python "{binaries}/python" "$@"', "")
    (binaries / "pip").write_text("\n".join(lines))
    (binaries / "pip").chmod(0o755)
    return binaries


def install_wheel(wheel: Path, folder: Path) -> None:
    """Make an environment in a folder, with this wheel and, instead of what it needs, the packages of the tests."""
    binaries = make_environment(folder)
    words = (str(binaries / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", str(wheel))
    subprocess.run(words, check=True, timeout=DEADLINE_S)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))


def run_module(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m …` to its end."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found
