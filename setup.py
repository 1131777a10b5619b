"""The parts of a build that pyproject.toml cannot express: the C extension, the long description, and the project's addresses.

    pip wheel --config-settings compiled=yes .    # with the C extension

The index shows README.md as the page of the package, where links to files of the project lead nowhere. HEADGATE_PROJECT_URL is
the address of these files, which the release sets. With it, links lead there and the metadata names it; without it, they are
plain text.

A compiled wheel is for one platform and holds the sources too. Without the setting nothing is compiled, and the wheel is for any
platform. tools/build_backend.py reads the setting. An editable install, which `make build` makes, has the extension if there is a
compiler.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

PROJECT_URL = "HEADGATE_PROJECT_URL"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")
_PICTURE = re.compile(r'<img src="([^":]+)" width="\d+" alt="([^"]*)">')
_NOTE = re.compile(r"<!--.*?-->\n", re.DOTALL)
HINT = "or build without --config-settings compiled=yes: the C extension is optional"


def fault() -> str | None:
    """Return what is missing for compiling, or None."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"a compiled wheel needs a C compiler, and {compiler} is missing: install it (Debian, Ubuntu: apt-get install gcc)"
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        return (
            f"a compiled wheel needs Python's headers, and there is no Python.h in {include}: install them "
            "(Debian, Ubuntu: apt-get install python3-dev)"
        )
    return None


def extensions() -> list[Extension]:
    """Return the module in C if this build has it. tools/build_backend.py, which runs in this process, knows.

    A wheel that asks for it fails without a compiler; an editable install does without it.
    """
    compiled = getattr(getattr(sys.modules.get("build_backend"), "compiled", None), "name", "NO")
    if compiled == "NO":
        return []
    if compiled == "YES" and (missing := fault()) is not None:
        sys.exit(f"headgate: {missing}; {HINT}.")
    source = "gateway/headgate/_native"
    parts = [f"{source}_{part}.h" for part in ("frame", "head", "json", "message", "page", "redis")]
    return [Extension("headgate._native", [f"{source}.c"], depends=parts, optional=compiled != "YES")]


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
    setup(ext_modules=extensions(), **described())
