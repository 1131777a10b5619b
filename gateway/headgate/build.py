"""The build that a process runs: with the C extension (events/event.py, delivery/direct.py), or without. It only checks for a
module.

The extension is optional, and the Python code is complete without it. HEADGATE_PURE=1 in the environment turns the extension off,
to rule it out as a cause or to compare.
"""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.util import find_spec

PURE = "HEADGATE_PURE"
_OFF = ("", "0", "false", "no", "off")


class Build(StrEnum):
    """The build of a process."""

    PYTHON = "python"
    COMPILED = "compiled"


def is_pure() -> bool:
    """Return whether the environment turns the extension off."""
    # Not a setting, because the extension is loaded on import, before settings are read.
    return os.environ.get(PURE, "").strip().lower() not in _OFF  # noqa: TID251


def build_in_use() -> Build:
    """Return the build of this process."""
    return Build.PYTHON if is_pure() or find_spec(f"{__package__}._native") is None else Build.COMPILED
