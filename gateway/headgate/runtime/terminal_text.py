"""Text that is safe for a terminal: foreign text cannot move the cursor, hide parts or reverse its direction. No I/O.

In: one line with any contents. Out: the line in bytes. Every control character (C0, C1), line separator and bidirectional control
(Unicode TR 9, section 2; CVE-2021-42574) becomes its JSON escape, so JSON text keeps its value.
"""

from __future__ import annotations

import os
import re

# UTF-8 of U+0000 to U+001F, U+007F to U+009F, U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def for_terminal(line: str | bytes) -> bytes:
    """Return a line that is safe for a terminal. White space, which may spread JSON over several lines, becomes spaces."""
    text = line.encode(errors="backslashreplace") if isinstance(line, str) else line
    return _CONTROLS.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), re.sub(rb"\s", b" ", text))


def wants_no_colour() -> bool:
    """Return whether NO_COLOR asks programs for text without colours."""
    return bool(os.environ.get("NO_COLOR"))  # noqa: TID251 - not a setting of ours
