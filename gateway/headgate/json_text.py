"""JSON text that has been checked, as a type of its own. No I/O.

In: what event.py has found right and written without blanks. Out: bytes that nobody needs to check again. This module is never
compiled, as mypyc makes no classes on top of `bytes`; event.py is.
"""

from __future__ import annotations


class JsonText(bytes):
    """JSON text that `event.compact_json` has made; nobody needs to check it again."""

    __slots__ = ()
