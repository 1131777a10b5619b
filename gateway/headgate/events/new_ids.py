"""New event ids of 128 random bits each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import register_at_fork, urandom
from time import monotonic

_ID_BYTES = 16
# Ids created at once, and how long they may be kept. A copy of this process (a fork, a snapshot) must not use the same ids.
NEW_IDS = 64
_SPARE_S = 0.01


def new_ids(count: int) -> Sequence[str]:
    """Return new ids of 128 random bits each, requested from the system together."""
    digits = urandom(_ID_BYTES * count).hex()  # what `secrets` does, without its layers
    return [digits[at : at + 2 * _ID_BYTES] for at in range(0, len(digits), 2 * _ID_BYTES)]


_spare_ids: list[str] = []
_spare_until_s = 0.0
register_at_fork(after_in_child=_spare_ids.clear)


def spare_id() -> str:
    """Return a new id. A process that publishes often creates several at once and uses them within a moment."""
    global _spare_until_s
    now_s = monotonic()
    if now_s > _spare_until_s:
        _spare_ids.clear()
        _spare_until_s = now_s + _SPARE_S
    try:
        return _spare_ids.pop()
    except IndexError:
        new_id, *others = new_ids(NEW_IDS)
        _spare_ids.extend(others)
        return new_id


def endless_ids() -> Iterator[str]:
    """Yield new ids, for a batch of unknown length."""
    while True:
        yield from new_ids(NEW_IDS)
