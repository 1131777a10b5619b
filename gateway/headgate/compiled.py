"""The compiled modules: whether this process runs them, and how it does without them. No I/O but to look for modules.

A build may hold the hot modules compiled beside their sources (setup.py makes it, pyproject.toml lists them), and Python prefers
a compiled module. With HEADGATE_PURE=1 in its environment a process runs the sources instead: to rule out the compiler when
something looks odd, or to compare. That is settled when headgate is first imported, before any module of the list.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.machinery import SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

PURE = "HEADGATE_PURE"
_OFF = ("", "0", "false", "no", "off")
_PACKAGE = __name__.rpartition(".")[0]
# All modules of the list are compiled, or none is; every process of ours loads this one.
_ONE_OF_THEM = f"{_PACKAGE}.event"
_DIRECT = f"{_PACKAGE}.delivery._direct"


class Build(StrEnum):
    """What the hot modules of a process are."""

    PYTHON = "python"
    DIRECT = "direct"  # sources, but for the direct writes (delivery/direct.py), which are C
    COMPILED = "compiled"  # and the hot modules too


class SourcesOnly:
    """Finds the modules of this package as sources, and no others."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not fullname.startswith(f"{_PACKAGE}."):
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname, target)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def wants_sources(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment asks for the sources of everything."""
    # Read here, as settings come too late: they import modules that may be compiled.
    environ = os.environ if environ is None else environ  # noqa: TID251
    return environ.get(PURE, "").strip().lower() not in _OFF


def obey(environ: Mapping[str, str] | None = None) -> None:
    """Run the sources from now on, if the environment says so."""
    if wants_sources(environ):
        sys.meta_path.insert(0, SourcesOnly())


def build_in_use() -> Build:
    """Return what the hot modules of this process are."""
    spec = find_spec(_ONE_OF_THEM)
    if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
        return Build.COMPILED
    has_direct = find_spec(f"{_PACKAGE}.delivery") is not None and find_spec(_DIRECT) is not None
    return Build.DIRECT if has_direct and not wants_sources() else Build.PYTHON
