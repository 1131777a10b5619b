"""The parts of a build that pyproject.toml cannot say: the compiled modules, the long description, and the project's addresses.

    pip install --config-settings compiled=direct .    # the direct writes in C
    pip wheel --config-settings compiled=yes .         # and the hot modules compiled

The index shows README.md as the page of the package, where links to files of the project lead nowhere. HEADGATE_PROJECT_URL is
the address at which these files can be read; whoever releases it knows that. With it such links lead there, and the metadata has
it; without it they are plain text.

In: the modules that pyproject.toml lists in `[tool.headgate.compiled]`, and the direct writes in C. Out: extension modules, for a
wheel of this platform that holds their sources too; or one line that says what is missing. Without the setting nothing is
compiled, and the wheel is for any platform. tools/build_backend.py reads the setting. An editable install, as `make build` makes
it, has the direct writes in C where they can be compiled, and does without where not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

# Everything that mypyc writes on the way.
TARGET = "build/mypyc"
PROJECT_URL = "HEADGATE_PROJECT_URL"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")
_PICTURE = re.compile(r'<img src="([^":]+)" width="\d+" alt="([^"]*)">')
_NOTE = re.compile(r"<!--.*?-->\n", re.DOTALL)
HINT = "or build without --config-settings compiled=…: Headgate is complete without compiled modules"


def modules() -> list[str]:
    """Return the names of the modules that are compiled."""
    listed: list[str] = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["headgate"]["compiled"]["modules"]
    return listed


def source_of(module: str) -> str:
    """Return the path of a module of the list."""
    return f"gateway/{module.replace('.', '/')}.py"


def fault(*, with_mypyc: bool = True) -> str | None:
    """Return what is missing for compiling, or None; `with_mypyc`: of Python too."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"compiled modules need a C compiler, and {compiler} is not here: install it (Debian, Ubuntu: apt-get install gcc)"
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        return (
            f"compiled modules need Python's headers, and there is no Python.h in {include}: install them "
            "(Debian, Ubuntu: apt-get install python3-dev)"
        )
    try:
        if with_mypyc:
            import mypyc.build  # noqa: F401
    except ImportError:
        return "compiled modules need mypyc, and mypy is not installed here: `pip install mypy`, or build with isolation"
    return None


def need_compiler(*, with_mypyc: bool) -> None:
    """End the process with one line where something is missing for compiling."""
    if (missing := fault(with_mypyc=with_mypyc)) is not None:
        sys.exit(f"headgate: {missing}; {HINT}.")


def extensions() -> list[Extension]:
    """Return the extension modules of the hot modules, with their C written."""
    need_compiler(with_mypyc=True)
    from mypyc.build import mypycify

    # Faults of modules that are not compiled are none of this build's: it may lack the packages that they import.
    words = ["--strict", "--follow-imports=silent", "--no-warn-unused-ignores", *map(source_of, modules())]
    found: list[Extension] = mypycify(words, group_name="headgate", target_dir=TARGET, opt_level="3", debug_level="0")
    return found


def direct_writes(*, optional: bool) -> Extension:
    """Return the extension module of delivery/direct.py. Where it cannot be compiled, an optional one is left out."""
    folder = "gateway/headgate/delivery"
    parts = [f"{folder}/_direct_json.h", f"{folder}/_direct_message.h"]
    return Extension("headgate.delivery._direct", [f"{folder}/_direct.c"], depends=parts, optional=optional)


def wanted() -> list[Extension]:
    """Return the extension modules of the build that is under way. The backend has been loaded into this process, and knows."""
    compiled = getattr(getattr(sys.modules.get("build_backend"), "compiled", None), "name", "NO")
    if compiled == "WHERE_POSSIBLE":
        return [direct_writes(optional=True)]
    if compiled == "DIRECT":
        need_compiler(with_mypyc=False)
        return [direct_writes(optional=False)]
    return [*extensions(), direct_writes(optional=False)] if compiled == "YES" else []


def long_description(text: str, url: str) -> str:
    """Return README.md as an index can show it: links lead below `url`, or are plain text without one, and pictures go then."""

    def led(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if url:
            return f"{picture}[{words}]({url}/{'raw' if picture else 'blob'}/main/{target})"
        return "" if picture else words

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(led, _PICTURE.sub(r"![\2](\1)", _NOTE.sub("", text))))


def described() -> dict[str, Any]:
    """Return what setup() is told of the long description and the addresses."""
    url = os.environ.get(PROJECT_URL, "").rstrip("/")
    files = {"Source": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
    return {
        "long_description": long_description(Path("README.md").read_text("utf-8"), url),
        "long_description_content_type": "text/markdown",
        "project_urls": {name: url + path for name, path in files.items()} if url else {},
    }


if __name__ == "__main__":
    setup(ext_modules=wanted(), **described())
