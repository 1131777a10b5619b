"""The parts of a build that pyproject.toml cannot say: the compiled modules, the long description, and the project's addresses.

    pip install --config-settings compiled=yes .
    pip wheel --config-settings compiled=yes .

The index shows README.md as the page of the package, where links to files of the project lead nowhere. HEADGATE_PROJECT_URL is
the address at which these files can be read; whoever releases it knows that. With it such links lead there, and the metadata has
it; without it they are plain text.

In: the modules that pyproject.toml lists in `[tool.headgate.compiled]`. Out: extension modules of the same names, which mypyc
makes of the same sources, for a wheel of this platform that holds both; or one line that says what is missing. Without the
setting nothing is compiled, and the wheel is for any platform. tools/build_backend.py reads the setting.
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
HINT = "or build without --config-settings compiled=yes: Headgate is complete without compiled modules"


def modules() -> list[str]:
    """Return the names of the modules that are compiled."""
    listed: list[str] = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["headgate"]["compiled"]["modules"]
    return listed


def source_of(module: str) -> str:
    """Return the path of a module of the list."""
    return f"gateway/{module.replace('.', '/')}.py"


def fault() -> str | None:
    """Return what is missing for compiling, or None."""
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
        import mypyc.build  # noqa: F401
    except ImportError:
        return "compiled modules need mypyc, and mypy is not installed here: `pip install mypy`, or build with isolation"
    return None


def extensions() -> list[Extension]:
    """Return the extension modules, with their C written; ends the process with one line where that cannot be done."""
    if (missing := fault()) is not None:
        sys.exit(f"headgate: {missing}; {HINT}.")
    from mypyc.build import mypycify

    # Faults of modules that are not compiled are none of this build's: it may lack the packages that they import.
    words = ["--strict", "--follow-imports=silent", "--no-warn-unused-ignores", *map(source_of, modules())]
    found: list[Extension] = mypycify(words, group_name="headgate", target_dir=TARGET, opt_level="3", debug_level="0")
    return found


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
    # The backend has been loaded into this process, and knows the setting.
    setup(ext_modules=extensions() if getattr(sys.modules.get("build_backend"), "is_compiled", False) else [], **described())
