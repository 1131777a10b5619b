"""Text for a terminal: nothing in it that somebody else wrote can move the cursor, hide a part or turn its order round. No I/O.

In: one line that may hold anything. Out: the same line in bytes, in which every control character (C0, C1), line separator and
bidirectional control (Unicode TR 9, section 2; CVE-2021-42574) is the escape that JSON has for it: JSON text keeps its value.
"""

from __future__ import annotations

import re

# UTF-8 of U+0000 to U+001F, U+007F to U+009F, U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def for_terminal(line: str | bytes) -> bytes:
    """Return a line that may reach a terminal. White space, which may lay out JSON over several lines, becomes blanks."""
    text = line.encode(errors="backslashreplace") if isinstance(line, str) else line
    return _CONTROLS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), re.sub(rb"\s", b" ", text))
