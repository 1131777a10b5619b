"""The build backend: setuptools, with the page's files built first. `pip install`, `pip wheel` and `python -m build` call it.

With `--config-settings compiled=yes` a wheel has the C extension too (setup.py), and is for one platform. An editable install has
it if there is a compiler.

In: the folder of the project, a checkout or an unpacked sdist. Out: a wheel or sdist that holds everything that browsers load,
or one line with the cure. A checkout builds them with npm when they are missing or older than web/; an sdist brings them.
An editable install builds nothing: make installs that first, and builds the page after it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  (hooks of setuptools)
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

WEB = Path("web")
# Written by web/build.mjs and web/pages.mjs, and touched when they are done, here and by make.
CLIENT, PAGES = Path("gateway", "headgate", "static"), Path("server", "headgate_server", "static")
BUILT = [
    *(CLIENT / f"headgate{part}.js{gz}" for part in ("", ".debug", ".development", ".http", ".socket.io") for gz in ("", ".gz")),
    *(
        PAGES / f"{name}{gz}"
        for name in ("demo.js", "demo.css", "demo-icon.svg", "console.js", "console.css", "console.svg")
        for gz in ("", ".gz")
    ),
]
# Where the modules in C are built in place.
PACKAGE = Path("gateway", "headgate")
STAMP = WEB / "dist" / ".headgate-built"
SOURCES = [Path(name) for name in ("package.json", "package-lock.json", "tsconfig.json")]
NO_SOURCES = {"node_modules", "dist", "test"}
# npm writes this when it has installed the lock.
INSTALLED, LOCK = Path("node_modules", ".package-lock.json"), Path("package-lock.json")
INSTALL = ("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
BUILD = ("npm", "run", "--silent", "build")


class Compiled(Enum):
    """Whether a build has the C extension."""

    NO = "no"
    YES = "yes"
    WHERE_POSSIBLE = "where possible"  # an editable install


# Of the present build; setup.py, which setuptools runs in this process, reads it.
compiled = Compiled.NO
_SETTINGS = {each.value: each for each in (Compiled.NO, Compiled.YES)}


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel with the page's files in it."""
    global compiled
    compiled = _compiled(config_settings)
    _have_page()
    # This build would take in the files of an earlier one, those of deleted modules included.
    for folder in Path("build").glob("lib*"):
        shutil.rmtree(folder, ignore_errors=True)
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Install the sources in place, with the C extension if there is a compiler."""
    global compiled
    compiled = Compiled.WHERE_POSSIBLE
    for old in PACKAGE.glob("_native.*.so"):  # of sources that have changed
        old.unlink()
    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build an sdist that needs no Node."""
    _have_page()
    return str(build_meta.build_sdist(sdist_directory, config_settings))


def _compiled(config_settings: Any) -> Compiled:
    value = (config_settings or {}).get("compiled", "no")
    if value not in _SETTINGS:
        sys.exit(f"headgate: --config-settings compiled={value}: expected yes or no.")
    return _SETTINGS[value]


def _have_page() -> None:
    """Build the page's files unless they are there and current; ends the process with one line where that cannot be done."""
    fault = _fault()
    if fault is None:
        return
    if not WEB.exists():
        sys.exit(f"headgate: {fault}, and this is no checkout that could build it: take a complete sdist, wheel or checkout.")
    if shutil.which("npm") is None or shutil.which("node") is None:
        sys.exit(
            f"headgate: {fault}, and there is no npm to build it with: install Node 20 or newer with npm and try again, "
            "or run `make build` where they are."
        )
    for command in (BUILD,) if _is_installed() else (INSTALL, BUILD):
        # Standard output is the backend's own; pip shows either only when the build fails, or with -v.
        if status := subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
            sys.exit(f"headgate: {fault}, and `{' '.join(command)}` failed with status {status}; see above.")
    if (fault := _fault(is_built=True)) is not None:
        sys.exit(f"headgate: {fault}, although `npm run build` has made it: web/build.mjs and tools/build_backend.py disagree.")
    STAMP.touch()


def _fault(*, is_built: bool = False) -> str | None:
    """Return what is wrong with the page's files, or None."""
    missing = [str(path) for path in BUILT if not path.exists()]
    if missing:
        return f"the browser client is not built ({', '.join(missing)} not there)"
    if WEB.exists() and not is_built:
        built_s = STAMP.stat().st_mtime if STAMP.exists() else 0.0
        newer = [str(path) for path in _sources() if path.stat().st_mtime > built_s]
        if newer:
            return f"the browser client that is built is older than its sources ({newer[0]})"
    return None


def _is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.stat().st_mtime >= LOCK.stat().st_mtime


def _sources() -> Iterator[Path]:
    yield from (path for path in SOURCES if path.exists())
    for path in sorted(WEB.rglob("*")):
        if path.is_file() and NO_SOURCES.isdisjoint(path.relative_to(WEB).parts):
            yield path
