"""The lines that a process of Headgate prints for the operator, each in one write.

Several processes share a terminal or a log, and any of them may be killed at any moment. `print` writes a line and its end apart
when Python is unbuffered (PYTHONUNBUFFERED, as in most containers): a process killed between the two leaves a line without its
end, and the next line of another process runs into it.
"""

from __future__ import annotations

import sys
from typing import TextIO


def say(line: str) -> None:
    """Tell the operator `line` on standard output, after our name."""
    _write(sys.stdout, line)


def complain(line: str) -> None:
    """Tell the operator `line` on standard error, after our name."""
    _write(sys.stderr, line)


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"headgate: {line}\n")
    stream.flush()
