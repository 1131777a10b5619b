"""The lines that a process of Headgate prints for the operator, each in one write.

Several processes share a terminal or a log, and each may be killed at any moment. When Python is unbuffered (PYTHONUNBUFFERED, as
in most containers), `print` writes a line and its newline separately. If a process is killed between the two, the next line of
another process continues the same line.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

from headgate.runtime.terminal_text import for_terminal

# Whether each line is a JSON object, like a log line (logging.py).
as_json = False


def say(line: str) -> None:
    """Print `line` on standard output, prefixed with our name."""
    _write(sys.stdout, "info", line)


def complain(line: str) -> None:
    """Print `line` on standard error, prefixed with our name."""
    _write(sys.stderr, "error", line)


def text(level: str, line: str) -> str:
    """Return a line for the operator in its written form, safe for a terminal, with its newline.

    It may have several lines, such as one for each invalid setting.
    """
    if not as_json:
        return "".join(f"{for_terminal(part).decode()}\n" for part in f"headgate: {line}".split("\n"))
    import msgspec  # imported here because a process manager may run without it

    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    fields = {"timestamp": now, "level": level, "logger": "headgate.operator", "event": "said", "message": line}
    return f"{msgspec.json.encode(fields).decode()}\n"


def _write(stream: TextIO, level: str, line: str) -> None:
    stream.write(text(level, line))
    stream.flush()
