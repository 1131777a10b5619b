"""The numbers that Python's `json` writes and JSON does not have: NaN and the infinities (RFC 8259 section 6). No I/O.

A browser cannot parse a packet with one of them, and disconnects. Most packets cost two substring searches.
"""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')


def refuse_not_json(text: str, namespace: str = "/") -> None:
    """Refuse the text of JSON, or of a packet after its namespace, with NaN or an infinity.

    Raises:
        ValueError: it says what to send instead.
    """
    if "NaN" not in text and "Infinity" not in text:
        return
    if re.search("NaN|Infinity", _STRING.sub("", text if namespace == "/" else text.partition(",")[2])):
        raise ValueError("NaN and infinities are not JSON, and a browser disconnects at them: send null, or a text")
