"""Objects that begin again in a forked child, where the threads that hold their locks and connections do not exist. No I/O."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class _Forked(Protocol):
    def reset(self) -> None: ...


_parts = WeakSet[_Forked]()


def reset_in_child(part: _Forked) -> None:
    """Call `reset` in each child that is forked while `part` exists."""
    _parts.add(part)


def _in_child() -> None:
    for part in list(_parts):
        part.reset()


os.register_at_fork(after_in_child=_in_child)
