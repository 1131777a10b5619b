"""Prints the lines of a process for the operator, each in one write.

Several processes share a terminal or a log, and each may be killed at any moment. When Python is unbuffered (PYTHONUNBUFFERED, as
in most containers), `print` writes a line and its newline separately. If a process is killed between the two, the next line of
another process continues the same line.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

# Whether each line is a JSON object, like a log line (logging.py).
as_json = False


# UTF-8 of U+0000 to U+001F, U+007F to U+009F, U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def for_terminal(line: str | bytes) -> bytes:
    """Return a line that is safe for a terminal. White space, which may spread JSON over several lines, becomes spaces."""
    text = line.encode(errors="backslashreplace") if isinstance(line, str) else line
    return _CONTROLS.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), re.sub(rb"\s", b" ", text))


def wants_no_colour() -> bool:
    """Return whether NO_COLOR asks programs for text without colours."""
    return bool(os.environ.get("NO_COLOR"))  # noqa: TID251 - not a setting of ours


def open_closed_streams() -> None:
    """Let text for standard streams that the parent has closed go nowhere. Their descriptors may be those of other files."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process


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
