"""New event ids of 128 random bits each."""

from __future__ import annotations

from collections.abc import Iterator
from os import urandom

_ID_BYTES = 16
# Ids that a batch requests from the system together.
_TOGETHER = 64


def new_id() -> str:
    """Return a new id."""
    return urandom(_ID_BYTES).hex()  # what `secrets` does, without its layers


def endless_ids() -> Iterator[str]:
    """Yield new ids, for a batch of unknown length."""
    while True:
        digits = urandom(_ID_BYTES * _TOGETHER).hex()
        for at in range(0, len(digits), 2 * _ID_BYTES):
            yield digits[at : at + 2 * _ID_BYTES]
