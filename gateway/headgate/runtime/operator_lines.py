"""The lines that a process of Headgate prints for the operator, each in one write.

Several processes share a terminal or a log, and any of them may be killed at any moment. `print` writes a line and its end apart
when Python is unbuffered (PYTHONUNBUFFERED, as in most containers): a process killed between the two leaves a line without its
end, and the next line of another process runs into it.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TextIO

from headgate.runtime.terminal_text import for_terminal

# Whether each line is a JSON object, as a log line is (logging.py).
as_json = False


def say(line: str) -> None:
    """Tell the operator `line` on standard output, after our name."""
    _write(sys.stdout, "info", line)


def complain(line: str) -> None:
    """Tell the operator `line` on standard error, after our name."""
    _write(sys.stderr, "error", line)


def text(level: str, line: str) -> str:
    """Return a line for the operator as it is written, with its end."""
    return f"{_json(level, line) if as_json else _text(line)}\n"


def _write(stream: TextIO, level: str, line: str) -> None:
    stream.write(text(level, line))
    stream.flush()


def _text(line: str) -> str:
    """Return it safe for a terminal; it may be several lines, such as one for each setting that is wrong."""
    return "\n".join(for_terminal(part).decode() for part in f"headgate: {line}".split("\n"))


def _json(level: str, line: str) -> str:
    import msgspec  # only here: a process manager may run without

    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    fields = {"timestamp": now, "level": level, "logger": "headgate.operator", "event": "said", "message": line}
    return msgspec.json.encode(fields).decode()
